// TraceSteps: an extension (train/loop/extension.h) that records some steps of a run to a file, and each call of the
// operators in one more forward and backward behind them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "executor/executor_group.h"
#include "train/loop/extension.h"
#include "train/trace/trace.h"

namespace bindery {

struct TraceStepsOptions {
  std::string path;
  std::shared_ptr<Trace> trace;                // of the engine that the run uses (MakeTraceEngine)
  std::function<ExecutorGroup*()> group = {};  // what runs; none, or null: operations of the engine alone
  int64_t skip = 2, steps = 5;                 // of this run, before the first one that is recorded; recorded ones
};

// The file has, of the steps, the operations of the engine (forward and backward are one each or two) and how long the
// program took to push each step; then, "run again", what these consist of (train/trace/call_times.h), with operator,
// node, kernel and shape. Results of the run stay the same, to the bit. A run that ends before leaves what there is.
// Its folder is made when the run begins. Throws DataError if the file cannot be written; where running again fails,
// that is logged.
Extension TraceSteps(TraceStepsOptions options);

}  // namespace bindery
