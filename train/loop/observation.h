// Observation: what a run reports of itself at one moment, values by name: "train/accuracy", "generator/loss".
//
// A value that is a mean says over how many samples (its weight), so that means over longer stretches come out exactly;
// one without weight stands for itself: a learning rate, or a metric of the whole epoch so far.
//
// It may be made when it is first looked at, so that a moment at which nobody looks costs nothing.
//
// Thread safety: none; one thread at a time.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "executor/metric.h"
#include "train/loop/archive.h"

namespace bindery {

class Observation {
 public:
  struct Value {
    double value = 0, weight = 0;
  };
  using Maker = std::function<void(Observation*)>;

  explicit Observation(Maker maker = {}) : maker_(std::move(maker)) {}
  // In place of what was reported under that name before.
  void Report(const std::string& name, double value, double weight = 0) { values_[name] = {value, weight}; }
  // As "<place>/<name>".
  void Report(const std::string& place, const NamedValues& values, double weight = 0);
  const Value* Find(const std::string& name) const;  // nullptr: not reported at this moment
  const std::map<std::string, Value>& values() const;

 private:
  std::map<std::string, Value> values_;
  Maker maker_;  // until it has been called
};

// What a value comes to over several moments: sum w v / sum w over those with weight; without, the last one.
class RunningMean {
 public:
  void Add(const Observation::Value& value);
  bool any() const { return any_; }
  double value() const { return weight_ > 0 ? sum_ / weight_ : sum_; }  // once there is any
  void Serialize(Archive* archive);

 private:
  double sum_ = 0, weight_ = 0;
  bool any_ = false;
};

// The same of all values that are reported.
class RunningMeans {
 public:
  void Add(const Observation& observation);
  std::map<std::string, double> Take();  // and begins anew
  void Serialize(Archive* archive);

 private:
  std::map<std::string, RunningMean> means_;
};

}  // namespace bindery
