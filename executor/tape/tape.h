// The tape: gradients of what a program computes with arrays, as it computes it.
//
//   w.AttachGradient();
//   NDArray loss;
//   {
//     const RecordScope record;                                   // from here on calls are recorded
//     loss = Apply([](const Symbol& y, const Symbol& label) { return SoftmaxCrossEntropy(y, label); },
//                  {Apply(FullyConnected, {x, w, b}, {.num_hidden = 10}), label});
//   }
//   loss.Backward();                                              // of the sum of all its elements
//   w -= 0.1 * w.gradient();
//
// What is recorded is a Symbol: the graph of the calls, with the arrays as its variables. Backward takes its gradient
// (symbol/gradient.h), compiles that and runs it. Graphs of equal structure (calls, attributes, shapes, types) have one
// program, so that a loop compiles its first round only.
//
// Forward values are saved, not computed again: the results of calls, and what operators leave for their gradients (a
// batch's mean and variance, a dropout's mask, so that it is one and the same in both directions). Only what has a form
// of its kernel's own (a max-pooling's winners) is computed again, from saved inputs. Saved values live until
// Backward, which gives them back, or until nobody has a result of the calls any more.
//
// Only calls are recorded that a gradient can flow through: with an argument that a gradient is attached to, or that is
// recorded itself. A tape lies on one device: that of several devices is a tape for each, which run at once.
//
// Thread safety: scopes are the calling thread's, calls of several threads go to separate graphs unless they share
// arrays; a graph must not be recorded and differentiated at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "executor/kernel.h"
#include "executor/tape/ndarray.h"

namespace bindery {

namespace tape {
struct TapeMode;
}

// Sets the thread's mode, and sets it back.
class TapeScope {
 public:
  ~TapeScope();
  TapeScope(const TapeScope&) = delete;
  TapeScope& operator=(const TapeScope&) = delete;

 protected:
  TapeScope(bool sets_recording, bool records, bool sets_mode, Mode mode);

 private:
  const std::unique_ptr<tape::TapeMode> outer_;
};

// Calls are recorded while it lives, and computed in training mode: dropout drops, batch-norm normalises by the batch
// and moves its running values.
class RecordScope : public TapeScope {
 public:
  explicit RecordScope(Mode mode = Mode::kTrain) : TapeScope(true, true, true, mode) {}
};
// Calls are not recorded while it lives, and computed in prediction mode, unless it is told otherwise.
class PauseScope : public TapeScope {
 public:
  explicit PauseScope(Mode mode = Mode::kPredict) : TapeScope(true, false, true, mode) {}
};
// The mode alone. All that one Backward goes through must have been recorded in one mode.
class ModeScope : public TapeScope {
 public:
  explicit ModeScope(Mode mode) : TapeScope(false, false, true, mode) {}
};
bool IsRecording();
Mode CurrentTapeMode();  // kPredict, unless a scope says otherwise

struct BackwardOptions {
  // Of each head, of its shape and element type; empty ones, and by default all, are ones. Losses (SoftmaxOutput,
  // MakeLoss) have gradients of their own and ignore them.
  std::vector<NDArray> head_gradients = {};
  bool retain = false;  // keep the values, for another Backward
  // The samples that losses with normalisation `batch` divide by: of all devices, where a batch is split. 0: the rows
  // of what the first head is computed from.
  int64_t batch_size = 0;
};
// The gradient of the heads' weighted sum, into the gradients of all arrays that it depends on, as these request.
// Asynchronous. Throws Error, naming the operation: nothing was recorded; the values were given back by a Backward
// before; a value that is needed was changed in place since; heads of several devices, or recorded in several modes;
// an operator on the way has no gradient. ShapeError: a head gradient that does not fit.
void Backward(const std::vector<NDArray>& heads, const BackwardOptions& options = {});

}  // namespace bindery
