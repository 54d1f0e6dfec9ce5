#include "train/checkpoint/going_back.h"

#include <filesystem>
#include <ranges>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "train/checkpoint/best_checkpoint.h"

namespace bindery {
namespace {

// "<path>.old", or ".old2", ".old3" ...: the first that is not there, for what was set aside before is kept.
std::string FreeName(const std::string& path) {
  std::string name = path + ".old";
  for (int number = 2; std::filesystem::exists(std::filesystem::symlink_status(name)); ++number) {
    name = fmt::format("{}.old{}", path, number);
  }
  return name;
}

}  // namespace

GoingBack::GoingBack(const CheckpointStore& store) {
  const std::optional<std::string> best = FindBest(store);
  if (!best) return;
  LoadCheckpoint(*best);  // before anything is set aside for it
  const std::vector<std::string> paths = store.List();
  try {
    for (const std::string& path : std::views::reverse(paths)) {
      if (path == *best) break;
      std::error_code error;
      const std::string name = FreeName(path);
      std::filesystem::rename(path, name, error);
      if (error) Throw<DataError>("cannot rename \"{}\": {} (errno {})", path, error.message(), error.value());
      renamed_.emplace_back(path, name);
      LogLine(LogLevel::kInfo, fmt::format("\"{}\" is later than the best one: it is kept as \"{}\"", path, name));
    }
  } catch (...) {
    TakeBack();
    throw;
  }
  best_ = *best;
}

GoingBack::~GoingBack() { TakeBack(); }

void GoingBack::TakeBack() {
  for (; !renamed_.empty(); renamed_.pop_back()) {
    const auto& [path, name] = renamed_.back();
    std::error_code error;
    std::filesystem::rename(name, path, error);
    LogLine(error ? LogLevel::kWarning : LogLevel::kInfo,
            error ? fmt::format("cannot rename \"{}\" to \"{}\": {}", name, path, error.message())
                  : fmt::format("the run did not go on: \"{}\" is \"{}\" again", name, path));
  }
}

}  // namespace bindery
