// The options that make a training what it is, as texts by their names: what its checkpoints know of it (Checkpoint::
// info), so that a run can be gone on with, and tested, by its folder alone. Files are named by absolute paths.
#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <map>
#include <string>

#include "symbol/model.h"
#include "tools/cli/train_arguments.h"
#include "train/checkpoint/checkpoint.h"

namespace bindery::cli {

using OptionTexts =
    std::map<std::string, std::string>;  // "--data": "csv:/home/me/iris.csv"; options as they are in use

// Those of a training. What is of one call only (--resume, --progress ...) is not among them.
OptionTexts TextsOf(const CLI::App& command, const TrainArguments& arguments, const TrainerOptions& options);

OptionTexts TextsOf(const DataOptions& data);  // of these options alone

// To and from a checkpoint's info.
std::map<std::string, std::string> ToInfo(const OptionTexts& texts);
OptionTexts TextsIn(const std::map<std::string, std::string>& info);
// A checkpoint's model as its run scores and saves it: with averages in place of the values, if it uses them.
Model ModelIn(Checkpoint checkpoint);

// Gives the command these options, as if they stood on its command line, but for those that stand there, and for what
// belongs to one that does: --workload to --devices, --test-data to --data, say. Throws CheckpointError, which names
// the option, for what the command does not take. `whose`: "the checkpoint".
void TakeOver(const OptionTexts& texts, const std::string& whose, CLI::App* command);
bool IsOfData(const std::string& option);  // those of DataOptions

// Is one of these options on the command line, or taken over?
bool IsGiven(const CLI::App& command, std::initializer_list<const char*> options);

}  // namespace bindery::cli
