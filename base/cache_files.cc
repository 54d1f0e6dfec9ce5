#include "base/cache_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

namespace bindery {

std::string CacheFolder(std::string_view name) {
  const auto of = [](const char* variable) {
    const char* const text = std::getenv(variable);
    return std::string(text ? text : "");
  };
  // What is not absolute is to be ignored, as the XDG specification has it.
  if (const std::string cache = of("XDG_CACHE_HOME"); cache.starts_with('/')) {
    return fmt::format("{}/bindery/{}", cache, name);
  }
  if (const std::string home = of("HOME"); home.starts_with('/'))
    return fmt::format("{}/.cache/bindery/{}", home, name);
  return "";
}

bool IsOwnFolder(const std::string& folder) {
  struct stat about = {};
  return ::stat(folder.c_str(), &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == ::geteuid() &&
         (about.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::string ReadCached(const std::string& folder, const std::string& name, int64_t limit) {
  if (folder.empty() || !IsOwnFolder(folder)) return "";
  try {
    return ReadFile(folder + "/" + name, limit);
  } catch (const DataError&) {
    return "";
  }
}

bool WriteCached(const std::string& folder, const std::string& name, std::string_view content, std::string_view what) {
  if (folder.empty()) return false;
  try {
    MakeFolderOf(folder);
    ::mkdir(folder.c_str(), 0700);  // there already, or not: the next line sees
    if (!IsOwnFolder(folder)) {
      Throw<DataError>("{}: it cannot be made, or is not this user's alone to write to", folder);
    }
    WriteFileAtomically(folder + "/" + name, content);
    return true;
  } catch (const DataError& error) {
    LogLine(LogLevel::kInfo, fmt::format("{} is not kept for other processes: {}", what, error.message()));
  }
  return false;
}

}  // namespace bindery
