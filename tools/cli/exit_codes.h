// What the program's exit status means; printed by --help.
#pragma once

#include <exception>

namespace bindery::cli {

enum ExitCode {
  kOk = 0,
  kFailed = 1,       // the run failed
  kUsage = 2,        // wrong command line
  kModel = 3,        // invalid model
  kData = 4,         // data that cannot be used, files that cannot be read or written
  kCheckpoint = 5,   // damaged or unsuitable checkpoint
  kDevice = 6,       // device absent, or out of memory
  kNumeric = 7,      // NaN, divergence
  kBelowTarget = 9,  // test: below --min-accuracy
  kStopped = 75,     // stopped by a signal, after saving: run again with --resume
};

ExitCode ExitCodeOf(const std::exception& error);

inline constexpr const char* kExitCodeHelp =
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 invalid model, 4 unusable data or file, 5 damaged checkpoint,\n"
    "6 device or memory, 7 diverged, 9 test below --min-accuracy, 75 stopped by a signal after saving (go on with "
    "--resume).";

}  // namespace bindery::cli
