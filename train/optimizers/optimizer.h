// Optimizer: an update rule (engine/kernels/update.h) with its settings. It has no memory: its state is tensors that
// the caller keeps, shaped and stored like the parameter, so a checkpoint holds them as they are and every device can
// update a range of its own.
//
//   auto optimizer = MakeOptimizer("adam(lr=0.001, wd=1e-4)");
//
// With g = clip(rescale * sum of gradients) and G = g + wd w:
//
//   sgd(momentum=0)                              w = w - lr G                            without momentum
//                                                m = momentum m - lr G;  w = w + m       with
//   nag(momentum=0.9)                            m = momentum m - lr G;  w = w + momentum m - lr G
//   adam(beta1=0.9, beta2=0.999, epsilon=1e-8)   m = beta1 m + (1 - beta1) G;  v = beta2 v + (1 - beta2) G^2
//                                                w = w - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
//   adamw(beta1=0.9, beta2=0.999, epsilon=1e-8), nadam(... , schedule_decay=0.004), adamax(as adam),
//   rmsprop(momentum=0, rho=0.9, epsilon=1e-8), centered_rmsprop(as rmsprop), adagrad(lr_decay=0, epsilon=1e-10),
//   adadelta(rho=0.9, epsilon=1e-6), ftrl(lambda1=0.01, beta=1), signum(momentum=0.9, wd_lh=0),
//   lion(beta1=0.9, beta2=0.99), and by norms of whole parameters
//   lars(momentum=0.9, eta=0.001, epsilon=0), lamb(beta1=0.9, beta2=0.999, epsilon=1e-6, lower=0, upper=0)
//                                                with the formulas of engine/kernels/update_rules.h
//
// all with lr=, wd=, clip_gradient=, rescale= and clip_norm=. Without lr= the rate is 0.01; that of adam, adamw and
// lamb 0.001, of nadam and adamax 0.002, of adadelta 1, of ftrl and lars 0.1, of lion 1e-4. A new one is a row
// (engine/kernels/update_rules.h), or, in a program of one's own, AddOptimizer with a rule from
// engine/kernels/update_loop.h. Optimizers are immutable: any thread may use them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kernels/update.h"

namespace bindery {

// Settings that every optimizer has.
struct OptimizerOptions {
  double learning_rate = 0.01;                  // where no schedule says otherwise
  double weight_decay = 0;                      // times a parameter's wd_mult
  double clip_gradient = 0;                     // > 0: each element is clipped to [-clip, clip], after the rescale
  double clip_norm = 0;                         // > 0: before that, gradients of all parameters that are updated are
                                                // scaled down together to this norm, where theirs is larger
  std::optional<double> rescale_gradient = {};  // default: 1 / samples of the whole step
};

class Optimizer {
 public:
  // `settings`: the rule's own, in its order; its defaults for those left out. An `epsilon` that a rule divides by is
  // at least the smallest normal float32. Throws Error if some make no sense.
  explicit Optimizer(const UpdateRule& rule, const OptimizerOptions& options = {}, std::vector<double> settings = {});

  const std::string& name() const { return rule_.name; }  // "sgd"
  const OptimizerOptions& options() const { return options_; }
  std::span<const double> settings() const { return settings_; }
  UpdateKernel kernel() const { return without_first_ ? rule_.without_first : rule_.kernel; }
  MeasureKernel measure() const { return rule_.measure; }
  // MakeOptimizer(Text()) is the same optimizer.
  std::string Text() const;

  // State tensors per parameter, by name: {"momentum"}. They start at zero.
  std::vector<std::string> state_names() const;
  int state_count() const { return static_cast<int>(state_names().size()); }

  // Elements 0..n-1 of one parameter of `dtype` (float32 or float64; throws Error otherwise), in place, in host memory,
  // by the calling thread's team. The gradient is the sum of `grads` in list order; `states[i]` is the range of state
  // i; the new weight is written to every one of `copies` too. Pointers are to the range's first element. Clipping and
  // settings are the optimizer's own, whatever `args` say.
  // `args.squares`: what Measure gave of the whole parameter, if the rule goes by norms (measure()).
  void Update(DType dtype, UpdateArgs args, std::span<const void* const> grads, void* weight,
              std::span<void* const> states, std::span<void* const> copies, int64_t n) const;
  // The same from and to arrays of any kind.
  void Update(DType dtype, UpdateArgs args, const UpdateArrays& arrays) const;
  // Of elements 0..n-1, before any is updated; those of several ranges add up.
  UpdateSquares Measure(DType dtype, UpdateArgs args, std::span<const void* const> grads, const void* weight,
                        std::span<void* const> states, int64_t n) const;

 private:
  UpdateRule rule_;
  OptimizerOptions options_;
  std::vector<double> settings_;
  bool without_first_ = false;
};

Optimizer Sgd(const OptimizerOptions& options = {}, double momentum = 0);

// "sgd", "sgd(momentum=0.9, wd=1e-4, lr=0.1, clip_gradient=1, rescale=1)". Throws Error.
std::unique_ptr<Optimizer> MakeOptimizer(std::string_view text);

// A user's rule, for MakeOptimizer and so for whatever names an optimizer by its text. Throws Error if the name is
// taken (they are lower case) or the rule is not whole. Thread safe.
void AddOptimizer(UpdateRule rule);

}  // namespace bindery
