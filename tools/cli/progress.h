// Progress of training on standard error: a bar on a terminal, a line now and then elsewhere.
#pragma once

#include <chrono>
#include <string>

#include "train/trainer.h"

namespace bindery::cli {

enum class ProgressStyle { kAuto, kBar, kLines, kNone };

class Progress {
 public:
  // Is the best model saved? And what is it judged by: "test" or "validation"?
  Progress(ProgressStyle style, bool keeps_best, std::string judged_on);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  void OnBatch(const BatchReport& report, int64_t epochs);
  void OnEpoch(const EpochReport& report, int64_t epochs);
  void Clear();  // removes a bar that stands on the line

 private:
  using Clock = std::chrono::steady_clock;
  ProgressStyle style_;
  const bool keeps_best_;
  const std::string judged_on_;
  Clock::time_point last_ = {};
  bool on_line_ = false;
};

int Columns();                                  // of the terminal at standard error; 80 where there is none
std::string ToText(double value);               // "0.9812"; "--": NaN
std::string ToText(const NamedValues& values);  // "accuracy 0.9812, loss --"
// For standard error, with its end: on a terminal, several lines if it is too long for one, cut at spaces.
std::string AsLines(const std::string& line);

}  // namespace bindery::cli
