// Optimizer: one step of gradient descent on a range of one parameter, flat. It has settings but no memory: its state
// is tensors that the caller keeps, shaped and stored like the parameter, so a checkpoint holds them as they are and
// every worker can update a range of its own.
//
//   auto optimizer = MakeOptimizer("sgd(momentum=0.9, wd=1e-4)");
//   optimizer->Update(DType::kFloat32, {.step = t, .learning_rate = lr, .weight_decay = wd, .rescale = 1.0 / batch},
//                     grads, weight, states, copies, n);
//
// A new optimizer says how many state tensors it has and what one step does; numbers that change with the step (such as
// Adam's bias correction) follow from the step number. All objects are immutable: any thread may use them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "train/call_text.h"

namespace bindery {

// Settings that every optimizer has.
struct OptimizerOptions {
  double learning_rate = 0.01;                  // where no schedule says otherwise
  double weight_decay = 0;                      // times a parameter's wd_mult
  double clip_gradient = 0;                     // > 0: each element is clipped to [-clip, clip], after the rescale
  std::optional<double> rescale_gradient = {};  // default: 1 / samples of the whole step
};

// What one parameter's update depends on, besides the settings.
struct UpdateArgs {
  int64_t step = 1;             // number of this update, from 1
  double learning_rate = 0.01;  // of this step, times the parameter's lr_mult
  double weight_decay = 0;      // times the parameter's wd_mult
  double rescale = 1;           // factor of the gradients' sum
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  virtual std::string name() const = 0;  // "sgd"
  const OptimizerOptions& options() const { return options_; }
  // MakeOptimizer(Text()) is the same optimizer.
  std::string Text() const;

  // State tensors per parameter, by name: {"momentum"}. They start at zero.
  virtual std::vector<std::string> state_names() const = 0;
  int state_count() const { return static_cast<int>(state_names().size()); }

  // Elements 0..n-1 of one parameter of `dtype` (float32 or float64; throws Error otherwise), in place, by the calling
  // thread's team. The gradient is the sum of `grads` in list order; `states[i]` is the range of state i; the new
  // weight is written to every one of `copies` too. Pointers are to the range's first element.
  virtual void Update(DType dtype, const UpdateArgs& args, std::span<const void* const> grads, void* weight,
                      std::span<void* const> states, std::span<void* const> copies, int64_t n) const = 0;

 protected:
  explicit Optimizer(const OptimizerOptions& options);  // throws Error if they make no sense
  virtual void PrintSettings(CallPrinter*) const {}     // those of its own that differ from the default

 private:
  OptimizerOptions options_;
};

// Stochastic gradient descent, g = clip(rescale * sum of gradients):
//   w = w - lr (g + wd w)                          without momentum
//   m = momentum m - lr (g + wd w);  w = w + m     with
class Sgd final : public Optimizer {
 public:
  explicit Sgd(const OptimizerOptions& options = {}, double momentum = 0);  // 0 <= momentum < 1
  double momentum() const { return momentum_; }
  std::string name() const override { return "sgd"; }
  std::vector<std::string> state_names() const override;
  void Update(DType dtype, const UpdateArgs& args, std::span<const void* const> grads, void* weight,
              std::span<void* const> states, std::span<void* const> copies, int64_t n) const override;

 private:
  void PrintSettings(CallPrinter* printer) const override;
  double momentum_;
};

// "sgd", "sgd(momentum=0.9, wd=1e-4, lr=0.1, clip_gradient=1, rescale=1)". Throws Error.
std::unique_ptr<Optimizer> MakeOptimizer(std::string_view text);

}  // namespace bindery
