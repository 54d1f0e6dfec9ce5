// Monitor: a number about each value of a network in every so many training steps: how large activations and gradients
// are, say, to see where training goes wrong.
//
//   Monitor monitor({.pattern = "^conv.*", .interval = 100, .sink = Monitor::Print});
//   trainer.Fit(train, {.epochs = 10, .monitor = &monitor});
//
// By hand, around a step of a group:
//
//   if (monitor.Begin(&group, step)) { ...forward, backward, update...; monitor.End(&group); }
//
// Values of nodes, and of the nodes that compute gradients, are called as ExecutorGroup::Watch has them,
// and come from every device. A step that is watched runs another program, which keeps them and does not fuse them into
// what follows: it computes the same up to rounding. The others are as fast as without a monitor.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/host_tensor.h"

namespace bindery {

class ExecutorGroup;

struct MonitorRecord {
  int64_t step = 0;                   // from 1
  std::optional<Device> device = {};  // none: the same on all of them
  std::string name = {};
  double value = 0;
};
using MonitorSink = std::function<void(const std::vector<MonitorRecord>& records)>;

struct MonitorOptions {
  std::string pattern = ".*";  // regular expression, of names; found anywhere in them
  int64_t interval = 1;        // every so many steps, beginning with the first
  // Parameters, their gradients as "NAME_grad" (each device's), and running statistics, too, as the step leaves them.
  // Not data, labels and states, which are the caller's.
  bool arguments = false;
  bool sorted = false;                                            // by name; else as they are computed, arguments last
  std::function<double(const HostTensor& value)> statistic = {};  // default: RootMeanSquare
  MonitorSink sink = {};                                          // is given what End returns
};

// The root of the mean of squares, |x| / sqrt(n); of no elements 0.
double RootMeanSquare(const HostTensor& value);

class Monitor {
 public:
  explicit Monitor(MonitorOptions options = {});  // throws Error for a pattern that is none and intervals below 1

  // Is this step (from 1) watched? Then the group keeps its values.
  bool Begin(ExecutorGroup* group, int64_t step);
  // After forward and backward: waits for the values and stops keeping them. What the step failed by is thrown.
  std::vector<MonitorRecord> End(ExecutorGroup* group);
  void Cancel(ExecutorGroup* group);  // in the place of End, for a step that was not done

  const MonitorOptions& options() const { return options_; }
  static void Print(const std::vector<MonitorRecord>& records);  // a line each, to standard error

 private:
  void AddArguments(const ExecutorGroup& group, std::vector<MonitorRecord>* records) const;

  MonitorOptions options_;
  std::regex pattern_;
  int64_t step_ = 0;
  std::string watched_before_;
};

}  // namespace bindery
