// The run that --resume goes on with: what its checkpoints say of its options.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "kvstore/processes.h"
#include "tools/cli/run_options.h"

namespace bindery::cli {

struct EarlierRun {
  std::string source;   // of the options, for people
  OptionTexts options;  // as they were
};

// Of the newest checkpoint in the folder, or the best. No value if there is none and the command says what it trains: a
// job that begins with --resume is a new run the first time. Throws CheckpointError if nothing says that, or if none can
// be read; UsageError if there is no best one.
std::optional<EarlierRun> FindEarlierRun(const std::string& checkpoints, bool from_best, const CLI::App& command);
// What the first process has found, in all of them: the others need not see its files.
std::optional<EarlierRun> OfFirst(std::optional<EarlierRun> earlier, Processes* processes);
// A line of warning if the folder has no checkpoints, but one beside it, which may be meant, has.
void HintAtCheckpoints(const std::string& checkpoints);

}  // namespace bindery::cli
