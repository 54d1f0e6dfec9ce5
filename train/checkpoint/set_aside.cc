#include "train/checkpoint/set_aside.h"

#include <fmt/format.h>

#include <filesystem>

namespace bindery {

std::string SetAside(const std::string& path, std::error_code* error) {
  namespace fs = std::filesystem;
  std::string name = path + ".old";
  for (int number = 2; fs::exists(fs::symlink_status(name)); ++number) name = fmt::format("{}.old{}", path, number);
  fs::rename(path, name, *error);
  return name;
}

}  // namespace bindery
