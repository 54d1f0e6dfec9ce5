// Extensions that report: what is observed, to files and people, and what is to be observed besides.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/loop/extension.h"
#include "train/metrics/metrics.h"

namespace bindery {

using WriteLine = std::function<void(const std::string&)>;

// A line of JSON each time: epoch, iteration, seconds, and the mean since the last line of all that was reported:
// {"epoch":1,"iteration":50,"seconds":1.25,"main/accuracy":0.91}. What is not a number is null. Means are by samples
// (train/loop/observation.h). The file and its folder are made when a run begins, in place of an older file. A resumed
// run's goes on behind what its checkpoint knows of: lines of steps that are made again are removed. Throws DataError
// if it cannot be written.
struct LogReportOptions {
  std::string path = {};  // empty: no file
  WriteLine write = {};   // gets each line, too
  Trigger trigger = EveryEpochs();
};
Extension LogReport(LogReportOptions options);

// A row of the same means each time, under a row of names the first time: "epoch", "iteration", "seconds", or what is
// reported. A value that was not reported is blank.
Extension PrintReport(std::vector<std::string> columns, WriteLine write, Trigger trigger = EveryEpochs());

// How far it is, how fast and how long it will take, about every `seconds`: "epoch 3.20/20  iteration 160  48.1/s
// 00:17 left".
Extension PrintProgress(double epochs, WriteLine write, double seconds = 5);

// Reports what `evaluate` gives, as "<place>/<metric>".
Extension Evaluator(std::string place, std::function<NamedValues()> evaluate, Trigger trigger = EveryEpochs());

Extension ObserveValue(std::string name, std::function<double(Loop&)> value, Trigger trigger = Always());
Extension ObserveRate(const std::string& model = "main");  // of its next update, as "<model>/learning-rate"

std::string Duration(double seconds);  // "01:23", "1:00:00"; "--:--" if it is none: not a number, negative, endless

}  // namespace bindery
