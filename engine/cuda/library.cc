#include "engine/cuda/library.h"

#include <cstdlib>
#include <vector>

namespace bindery::cuda {

void* OpenLibrary(const std::string& file, std::string* problem) {
  std::vector<std::string> folders;
  if (const char* const home = std::getenv("CUDA_HOME"); home && *home) {
    folders = {home + std::string("/lib64/"), home + std::string("/lib/")};
  }
  folders.emplace_back("/usr/local/cuda/lib64/");
  folders.emplace_back("/usr/local/cuda/lib/");
  return bindery::OpenLibrary(file, folders, problem);
}

LibraryFunctions OpenFunctions(const std::string& file) {
  std::string problem;
  void* const library = OpenLibrary(file, &problem);
  if (!library) Throw<DeviceError>("{}", problem);
  return {library, file};
}

}  // namespace bindery::cuda
