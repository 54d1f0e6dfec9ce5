#include "train/checkpoint/best_checkpoint.h"

#include <filesystem>
#include <ranges>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace bindery {
namespace {

constexpr const char *kBestEpoch = "best epoch", *kThis = "this", *kAnother = "another";

}  // namespace

void SayWhetherBest(bool is_best, std::map<std::string, std::string>* info) {
  (*info)[kBestEpoch] = is_best ? kThis : kAnother;
}

bool KeepsBest(const std::map<std::string, std::string>& info) { return info.contains(kBestEpoch); }

bool IsOfBestEpoch(const std::map<std::string, std::string>& info) {
  const auto found = info.find(kBestEpoch);
  return found != info.end() && found->second == kThis;
}

std::optional<std::string> FindBest(const CheckpointStore& store) {
  const std::vector<std::string> paths = store.List();
  for (const std::string& path : std::views::reverse(paths)) {
    try {
      if (IsOfBestEpoch(LoadCheckpointInfo(path))) return path;
    } catch (const CheckpointError&) {  // LoadNewest complains of it
    }
  }
  return std::nullopt;
}

std::optional<Checkpoint> LoadBest(const CheckpointStore& store) {
  const std::optional<std::string> path = FindBest(store);
  return path ? std::optional(LoadCheckpoint(*path)) : std::nullopt;
}

std::optional<std::string> GoBackToBest(const CheckpointStore& store) {
  const std::optional<std::string> best = FindBest(store);
  if (!best) return std::nullopt;
  LoadCheckpoint(*best);  // before anything is set aside for it
  const std::vector<std::string> paths = store.List();
  for (const std::string& path : std::views::reverse(paths)) {
    if (path == *best) break;
    std::error_code error;
    std::filesystem::rename(path, path + ".old", error);
    if (error) Throw<DataError>("cannot rename \"{}\": {} (errno {})", path, error.message(), error.value());
    LogLine(LogLevel::kInfo, fmt::format("\"{0}\" is later than the best one: it is kept as \"{0}.old\"", path));
  }
  return best;
}

}  // namespace bindery
