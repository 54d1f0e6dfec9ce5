#include "base/library_functions.h"

#include <dlfcn.h>

#include "base/error.h"

namespace bindery {

void* OpenLibrary(const std::string& file, const std::vector<std::string>& folders, std::string* problem, bool global) {
  std::vector<std::string> places = {""};
  places.insert(places.end(), folders.begin(), folders.end());
  for (const std::string& folder : places) {
    const std::string path = folder + file;
    if (void* const library = dlopen(path.c_str(), RTLD_LAZY | (global ? RTLD_GLOBAL : RTLD_LOCAL))) return library;
    // The search path's is the one to tell, unless a folder has it and cannot give it, for want of another, say.
    const std::string reason = dlerror();
    const bool is_there = !reason.starts_with(path + ":") || !reason.ends_with("No such file or directory");
    if (problem && (problem->empty() || is_there)) *problem = reason;
  }
  return nullptr;
}

LibraryFunctions::Found LibraryFunctions::operator()(const char* name) const {
  if (!handle_) return {nullptr};
  void* const address = dlsym(handle_, name);
  if (!address) Throw<DeviceError>("{} has no {}", who_, name);
  return {address};
}

}  // namespace bindery
