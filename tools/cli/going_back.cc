#include "tools/cli/going_back.h"

#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <optional>
#include <ranges>
#include <system_error>

#include "base/log.h"
#include "train/checkpoint/best_checkpoint.h"

namespace bindery::cli {
namespace {

namespace fs = std::filesystem;

std::optional<ino_t> FileAt(const std::string& path) {
  struct stat status = {};
  return lstat(path.c_str(), &status) == 0 ? std::optional(status.st_ino) : std::nullopt;
}

}  // namespace

// By the files themselves, whatever they are called when they have been set aside.
GoingBack::GoingBack(const CheckpointStore& store) {
  const std::vector<std::string> before = store.List();
  std::map<ino_t, std::string> names;
  for (const std::string& path : before) {
    if (const auto file = FileAt(path)) names[*file] = path;
  }
  const std::optional<std::string> best = GoBackToBest(store);
  if (!best) return;
  std::map<std::string, std::string> renamed;
  std::error_code error;  // of a folder that cannot be read any more: then nothing is taken back
  for (fs::directory_iterator at(fs::path(*best).parent_path(), error), end; !error && at != end; at.increment(error)) {
    const fs::path& name = at->path();
    const auto file = FileAt(name);
    const auto found = file ? names.find(*file) : names.end();
    if (found == names.end() || fs::path(found->second).filename() == name.filename()) continue;
    renamed[found->second] = name;
  }
  for (const std::string& path : std::views::reverse(before)) {
    if (const auto found = renamed.find(path); found != renamed.end()) renamed_.emplace_back(*found);
  }
}

GoingBack::~GoingBack() {
  for (const auto& [path, name] : std::views::reverse(renamed_)) {
    std::error_code error;
    fs::rename(name, path, error);
    LogLine(error ? LogLevel::kWarning : LogLevel::kInfo,
            error ? fmt::format("cannot rename \"{}\" to \"{}\": {}", name, path, error.message())
                  : fmt::format("the run did not go on: \"{}\" is \"{}\" again", name, path));
  }
}

}  // namespace bindery::cli
