// The exchange of values among processes as a part of a step, or as an operation.
//
// Whatever became of a process's own values, it takes part: the others wait for it. First each tells the others whether
// its values are there, and what else there is to be said of them; where those of one are not, the exchange fails, on
// every process. So a step counts everywhere or nowhere.
//
// Exchanges are done in the order in which they are pushed, whatever their values wait for: it must be the same on all
// processes, as must be what `together` says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/kernels/update.h"
#include "engine/step.h"
#include "engine/tensor.h"
#include "kvstore/processes.h"

namespace bindery {

class ProcessExchange {
 public:
  // What a process says of its values; plain numbers, which travel as they are. The payload of the parts, which may have
  // none: then it says nothing but whether they are there.
  struct Word {
    int64_t good = 0;        // set here: 1, if they are there
    int64_t step = 0;        // the same on all, else the exchange fails
    int64_t samples = 0;     // that the values are of
    int64_t asks = 0;        // for what, by whoever hears it
    double weight = 1;       // by which they count
    StepStatus status = {};  // of what this process has looked at
  };
  struct Options {
    std::string name = {};             // in messages
    Device device = {};                // whose worker does it; all tensors are of memory that the host can address
    std::vector<Tensor> values = {};   // one variable each, for all of it; they fail if the exchange does
    std::vector<VarPtr> own = {};      // what else has to be whole for this process's values to be there
    std::vector<Tensor> results = {};  // what it creates besides
    // What has failed on all processes if it has on one, which keeps all of them from exchanging anything.
    std::vector<VarPtr> together = {};
    std::function<void(Word* word)> say = {};  // before that is told
    // Is told what all have said, if the values of all are there, and exchanges them; none: float32 or float64, which
    // are summed in place. What it throws at what it was told it throws on all.
    std::function<void(Processes* processes, std::span<const Word> words)> run = {};
  };

  ProcessExchange(std::shared_ptr<Engine> engine, ProcessesPtr processes)
      : engine_(std::move(engine)), processes_(std::move(processes)), order_(engine_->NewVar()) {}

  // Values that fail carry the error, until the next exchange. Returns a variable that has failed where this process's
  // values were not there, by what they failed by: the values say only that.
  VarPtr Append(Options options, StepParts* parts) const;

 private:
  const std::shared_ptr<Engine> engine_;
  const ProcessesPtr processes_;
  const VarPtr order_;  // of all exchanges
};

}  // namespace bindery
