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
    if (void* const library = dlopen((folder + file).c_str(), RTLD_LAZY | RTLD_LOCAL)) return library;
    // The search path's is the one to tell, unless a folder has it and cannot give it.
    const char* const reason = dlerror();
    if (problem && (problem->empty() || !std::string(reason).ends_with("No such file or directory"))) *problem = reason;
  }
  return nullptr;
}

}  // namespace bindery::cuda
