#include "train/extensions/folder_of.h"

#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace bindery {

void MakeFolderOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) Throw<DataError>("cannot make the folder of \"{}\": {}", path, error.message());
}

}  // namespace bindery
