// The commands. Each adds itself to the program and runs when it was chosen; `run` is set to what then is to be done.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace bindery::cli {

using RunFn = std::function<int()>;  // returns the exit status

void AddTrain(CLI::App* app, RunFn* run);
void AddTest(CLI::App* app, RunFn* run);
void AddPredict(CLI::App* app, RunFn* run);
void AddGenerate(CLI::App* app, RunFn* run);
void AddInspect(CLI::App* app, RunFn* run);
void AddTime(CLI::App* app, RunFn* run);
void AddDevices(CLI::App* app, RunFn* run);
void AddVerify(CLI::App* app, RunFn* run);
void AddConvert(CLI::App* app, RunFn* run);
void AddOperators(CLI::App* app, RunFn* run);
void AddChoices(CLI::App* app, RunFn* run);
void AddManual(CLI::App* app, RunFn* run);  // `manual` and `completion`

inline constexpr const char* kDefaultCheckpoints = "bindery-checkpoints";

}  // namespace bindery::cli
