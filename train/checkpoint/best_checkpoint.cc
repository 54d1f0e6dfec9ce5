#include "train/checkpoint/best_checkpoint.h"

#include <ranges>
#include <vector>

#include "base/error.h"
#include "train/checkpoint/going_back.h"

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
  GoingBack back(store);
  back.Keep();
  return back.best().empty() ? std::nullopt : std::optional(back.best());
}

}  // namespace bindery
