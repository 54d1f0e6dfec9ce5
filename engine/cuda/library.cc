#include "engine/cuda/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

namespace bindery::cuda {

void* OpenLibrary(const std::string& file, std::string* problem) {
  std::vector<std::string> folders = {""};
  if (const char* const home = std::getenv("CUDA_HOME"); home && *home) {
    folders.insert(folders.end(), {home + std::string("/lib64/"), home + std::string("/lib/")});
  }
  folders.emplace_back("/usr/local/cuda/lib64/");
  folders.emplace_back("/usr/local/cuda/lib/");
  for (const std::string& folder : folders) {
    const std::string path = folder + file;
    if (void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL)) return library;
    // The search path's is the one to tell, unless a folder has it and cannot give it, for want of another, say.
    const std::string reason = dlerror();
    const bool is_there = !reason.starts_with(path + ":") || !reason.ends_with("No such file or directory");
    if (problem && (problem->empty() || is_there)) *problem = reason;
  }
  return nullptr;
}

LibraryFunctions::LibraryFunctions(const std::string& file) : who_(file) {
  std::string problem;
  handle_ = OpenLibrary(file, &problem);
  if (!handle_) Throw<DeviceError>("{}", problem);
}

LibraryFunctions::Found LibraryFunctions::operator()(const char* name) const {
  if (!handle_) return {nullptr};
  void* const address = dlsym(handle_, name);
  if (!address) Throw<DeviceError>("{} has no {}", who_, name);
  return {address};
}

}  // namespace bindery::cuda
