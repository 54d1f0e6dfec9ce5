#include "tools/cli/earlier_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/names.h"
#include "train/checkpoint/best_checkpoint.h"

namespace bindery::cli {

void HintAtCheckpoints(const std::string& checkpoints) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::absolute(checkpoints, error).lexically_normal();
  const fs::path named = folder.has_filename() ? folder : folder.parent_path();
  std::vector<std::string> names;
  for (fs::directory_iterator at(named.parent_path(), error), end; !error && at != end; at.increment(error)) {
    std::error_code unknown;
    if (!at->is_directory(unknown)) continue;
    try {
      if (!CheckpointStore(at->path()).List().empty()) names.push_back(at->path().filename());
    } catch (const DataError&) {  // what cannot be read is not hinted at
    }
  }
  const std::string nearest = NearestName(named.filename().string(), names);
  if (nearest.empty()) return;
  LogLine(LogLevel::kWarning,
          fmt::format("--resume: \"{}\" has no checkpoints, but \"{}\" beside it has", checkpoints, nearest));
}

std::optional<EarlierRun> FindEarlierRun(const std::string& checkpoints, bool from_best, const CLI::App& command) {
  const CheckpointStore store(checkpoints);
  auto info = store.NewestInfo();
  if (!info) {
    store.LoadNewest();  // throws if there are some, and none can be read
    // A job that says what it trains begins; who says nothing means a run that is elsewhere, not one of drawn digits.
    if (IsGiven(command, {"--model", "--weights", "--data", "--train-digits"})) return std::nullopt;
    HintAtCheckpoints(checkpoints);
    Throw<CheckpointError>(
        "--resume: there is no checkpoint in \"{}\" to go on from; for a new run, say --model and --data", checkpoints);
  }
  if (from_best) {
    const std::optional<std::string> best = FindBest(store);
    if (!best) {
      throw UsageError(
          fmt::format("--resume: \"{}\" has no checkpoint of a best epoch, which --keep-best keeps; --resume alone "
                      "goes on from the newest",
                      checkpoints));
    }
    info = LoadCheckpointInfo(*best);
  }
  return EarlierRun{fmt::format("the {} checkpoint in \"{}\"", from_best ? "best" : "newest", checkpoints),
                    TextsIn(*info)};
}

std::optional<EarlierRun> OfFirst(std::optional<EarlierRun> earlier, Processes* processes) {
  std::string text;  // each word with a zero behind it
  if (earlier) {
    text = earlier->source + '\0';
    for (const auto& [option, value] : earlier->options) text += option + '\0' + value + '\0';
  }
  processes->Broadcast(&text);
  if (text.empty()) return std::nullopt;
  std::istringstream words(text);
  EarlierRun run;
  std::getline(words, run.source, '\0');
  for (std::string option; std::getline(words, option, '\0');) std::getline(words, run.options[option], '\0');
  return run;
}

}  // namespace bindery::cli
