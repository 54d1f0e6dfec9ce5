// BatchNorm: y = gamma (x - mean) / sqrt(variance + eps) + beta, per channel (Ioffe and Szegedy, 2015).
#pragma once

#include "symbol/op_def.h"

namespace bindery {

struct BatchNormAttrs {
  double eps = 1e-3;
  double momentum = 0.9;          // running = momentum * running + (1 - momentum) * batch, variance biased
  bool fix_gamma = true;          // gamma counts as 1 and has gradient 0
  bool use_global_stats = false;  // use the running values in training too, and keep them
  int64_t axis = 1;               // the channel
  bool output_mean_var = false;   // make mean and variance visible outputs
  bool sync = false;              // statistics over all devices of the group
  bool relu = false;              // y = max(0, ...): made by fusion; adds the hidden output "state"
  // running_mean and running_var are the batch's mean and variance, which a kernel need not find out again where it
  // gives the same bits by them: made by recomputation.
  bool known = false;
  static FieldList Fields() {
    using A = BatchNormAttrs;
    return {{"eps", &A::eps, "added to the variance"},
            {"momentum", &A::momentum, "of the running values"},
            {"fix_gamma", &A::fix_gamma, "gamma counts as 1"},
            {"use_global_stats", &A::use_global_stats, "normalise by the running values, and keep them"},
            {"axis", &A::axis, "the channel axis"},
            {"output_mean_var", &A::output_mean_var, "mean and variance are outputs too"},
            {"sync", &A::sync, "statistics over all devices"},
            {"relu", &A::relu, "apply max(0, .) to the result"},
            {"known", &A::known, "the running values are the batch's"}};
  }
};

// Inputs data, gamma (C), beta (C), auxiliary running_mean (C), running_var (C).
// Outputs: output; mean (C), var (C; biased): hidden unless output_mean_var, without gradient; [state if relu: hidden].
// In training mode mean and var are the batch's; with use_global_stats or in prediction the running ones.
// gamma, beta, mean, var and the running values are float32 for float32 and 16-bit data, float64 for float64.
const OpDef& BatchNormOp();
inline constexpr OpFunction<BatchNormAttrs> BatchNorm{BatchNormOp};

// (output gradient, data, mean, var, gamma [, state if relu]) -> data, gamma, beta gradients. With n = elements per
// channel, x^ = (x - mean) / sqrt(var + eps), g = output gradient (zeroed where relu cut):
//   dbeta = sum g; dgamma = sum g x^ (0 if fix_gamma)
//   dx = gamma / sqrt(var + eps) * (g - dbeta / n - x^ sum(g x^) / n)
// and with use_global_stats dx = gamma / sqrt(var + eps) * g.
const OpDef& BatchNormGradOp();

// `sync` is made of these (OpDef::expand), and what moves the running values (OpDef::updates); statistics are (3, C):
// count, mean, M2 = sum (x - mean)^2.
const OpDef& BatchNormStatisticsOp();  // data -> statistics
// statistics -> statistics of all devices, in device order (Chan et al.)
const OpDef& MergeStatisticsOp();
// (mean, var) over `count` elements per channel -> statistics
struct BatchStatisticsAttrs {
  int64_t count = 0;
  static FieldList Fields() { return {{"count", &BatchStatisticsAttrs::count, "elements per channel"}}; }
};
const OpDef& BatchStatisticsOp();
// (statistics, running_mean, running_var) -> the next running_mean and running_var, by `momentum`
const OpDef& MoveStatisticsOp();
// (data, gamma, beta, statistics, running_mean, running_var) -> output, mean, var. In prediction mode by the running
// values.
const OpDef& BatchNormNormalizeOp();
// (output gradient, data, statistics) -> sums (2, C): sum g, sum g x^
const OpDef& BatchNormGradSumsOp();
// (output gradient, data, gamma, statistics, sums over all devices) -> data gradient
const OpDef& BatchNormGradInputOp();

}  // namespace bindery
