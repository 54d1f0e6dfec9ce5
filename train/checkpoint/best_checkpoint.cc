#include "train/checkpoint/best_checkpoint.h"

#include <filesystem>
#include <ranges>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "train/checkpoint/set_aside.h"

namespace bindery {
namespace {

namespace fs = std::filesystem;

constexpr const char *kBestEpoch = "best epoch", *kThis = "this", *kAnother = "another";

// A run may be writing there: it removes the best one when there is a better one.
bool IsGone(const std::string& path) {
  std::error_code unknown;
  return fs::symlink_status(path, unknown).type() == fs::file_type::not_found;
}

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
  for (bool any_is_gone = true; any_is_gone;) {
    any_is_gone = false;
    const std::vector<std::string> paths = store.List();
    for (const std::string& path : std::views::reverse(paths)) {
      try {
        if (IsOfBestEpoch(LoadCheckpointInfo(path))) return path;
      } catch (const CheckpointError&) {  // LoadNewest complains of it
        any_is_gone |= IsGone(path);
      }
    }
  }
  return std::nullopt;
}

std::optional<Checkpoint> LoadBest(const CheckpointStore& store) {
  for (;;) {
    const std::optional<std::string> path = FindBest(store);
    if (!path) return std::nullopt;
    try {
      return LoadCheckpoint(*path);
    } catch (const CheckpointError&) {
      if (!IsGone(*path)) throw;
    }
  }
}

std::optional<std::string> GoBackToBest(const CheckpointStore& store) {
  std::optional<std::string> best = FindBest(store);
  if (!best) return std::nullopt;
  LoadCheckpoint(*best);  // before anything is set aside for it
  std::vector<std::pair<std::string, std::string>> renamed;
  const std::vector<std::string> paths = store.List();
  std::error_code error;
  for (const std::string& path : std::views::reverse(paths)) {
    if (path == *best) break;
    const std::string name = SetAside(path, &error);
    if (error) {
      const std::string why = fmt::format("{} (errno {})", error.message(), error.value());
      for (const auto& [from, to] : std::views::reverse(renamed)) fs::rename(to, from, error);
      Throw<DataError>("cannot rename \"{}\": {}", path, why);
    }
    LogLine(LogLevel::kInfo, fmt::format("\"{}\" is later than the best one: it is kept as \"{}\"", path, name));
    renamed.emplace_back(path, name);
  }
  return best;
}

}  // namespace bindery
