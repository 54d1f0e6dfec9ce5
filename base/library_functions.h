// Shared libraries that are opened when they are wanted, and their functions by name: what a program may use where it
// is installed, and need not have to be built or run.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bindery {

// The library by the loader's search path, else from the first of `folders` (with a slash at their ends) that has it.
// Null if it is not there; never closed. `problem`: the loader's reason. `global`: what it opens in turn finds its
// functions.
void* OpenLibrary(const std::string& file, const std::vector<std::string>& folders, std::string* problem = nullptr,
                  bool global = false);

// Finds a library's functions, and other objects, by their names. A table of functions begins with one, `find`, by
// which the pointers behind it become what they are:
//   decltype(&::cuInit) init = find("cuInit");
class LibraryFunctions {
 public:
  struct Found {
    void* address;
    template <class T>
    operator T*() const {
      return reinterpret_cast<T*>(address);
    }
  };
  LibraryFunctions() = default;  // of no library: all are null
  // `who` lacks what is not found.
  LibraryFunctions(void* handle, std::string who) : who_(std::move(who)), handle_(handle) {}
  // Throws DeviceError, naming the function, if it has none of this name.
  Found operator()(const char* name) const;

 private:
  std::string who_;
  void* handle_ = nullptr;
};

}  // namespace bindery
