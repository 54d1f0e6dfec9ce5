// Trigger: has the time come? A value: a rule, and the few numbers that it remembers, which are part of a checkpoint.
//
//   EveryEpochs(0.5)      EveryIterations(100)      AtEpochs({1, 2.5})      Once(AtIterations({10}))
//   AtMaximum("validation/accuracy")     Either(EveryEpochs(10), EarlyStopping({.value = "validation/loss"}))
//
// A trigger is asked once at every moment of a run, in order; it may come due late (several points passed at once),
// never twice for one point. Epochs are those of the data: where a batch reaches over the end of a sweep, the end is
// passed by that batch. Any function of this form is a trigger, too.
//
// Thread safety: none; one thread at a time.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/loop/observation.h"

namespace bindery {

// Where a run is, after an update. `previous` ones are those of the moment before; at the first, where the run begins.
struct Moment {
  int64_t iteration = 0, previous_iteration = 0;  // updates so far
  int64_t epoch = 0;                              // completed
  double epoch_detail = 0, previous_epoch_detail = 0;
  bool is_new_epoch = false;
  double seconds = 0;  // that the run has taken, parts before a resume included
};

class Trigger {
 public:
  // What a rule remembers: numbers by name, 0 before they are written.
  class Memory {
   public:
    explicit Memory(std::map<std::string, double>* numbers, std::string place = {})
        : numbers_(numbers), place_(std::move(place)) {}
    double& operator[](const std::string& name) const { return (*numbers_)[place_ + name]; }
    Memory In(const std::string& place) const { return Memory(numbers_, place_ + place + "."); }  // of a rule in a rule

   private:
    std::map<std::string, double>* numbers_;
    std::string place_;
  };
  using Rule = std::function<bool(const Moment&, const Observation&, const Memory&)>;

  template <std::convertible_to<Rule> F>
  Trigger(F rule) : rule_(std::move(rule)) {}
  bool Due(const Moment& moment, const Observation& observation) {
    return rule_(moment, observation, Memory(&numbers_));
  }
  const Rule& rule() const { return rule_; }
  bool remembers() const { return !numbers_.empty(); }  // something, by now
  void Serialize(Archive* archive) { archive->Numbers(&numbers_); }

 private:
  Rule rule_;
  std::map<std::string, double> numbers_;
};

// Throw Error for periods that are not > 0.
Trigger EveryIterations(int64_t period);
Trigger EveryEpochs(double period = 1);  // fractions, too: after every half sweep
Trigger EverySeconds(double period);     // of Moment::seconds
Trigger AtIterations(std::vector<int64_t> points);
Trigger AtEpochs(std::vector<double> points);
Trigger Always();  // at every moment
Trigger Never();
Trigger Once(Trigger trigger);         // the first time that it is due, and never again
Trigger Either(Trigger a, Trigger b);  // both are asked

// The mean of a value since the last check is the best so far. Not a number is never the best; a check without a value
// is none, but where one at the end of an epoch finds that the value was never reported at all, Error is thrown, with
// the names that are.
Trigger AtMaximum(const std::string& value, Trigger check = EveryEpochs());
Trigger AtMinimum(const std::string& value, Trigger check = EveryEpochs());

enum class Better { kAuto, kLarger, kSmaller };  // kAuto: what the value's name says, LargerIsBetter
struct EarlyStoppingOptions {
  std::string value;     // "validation/accuracy"
  int64_t patience = 3;  // checks in a row without a better mean since the check before
  Better better = Better::kAuto;
  Trigger check = EveryEpochs();
};
// Once due it stays so.
Trigger EarlyStopping(EarlyStoppingOptions options);

// Is the value better than the best so far, if there is one? What is not finite never is; a best that is no number counts
// for nothing.
bool IsBetter(double value, std::optional<double> best, bool larger);

// Is a larger value of that metric better? By its name rates of success that this library has are; what it does not
// know counts as a loss or an error, unless `better` says which way.
bool LargerIsBetter(const std::string& metric, Better better = Better::kAuto);

}  // namespace bindery
