// FullyConnected: y = x W^T + b.
#pragma once

#include "symbol/op_def.h"
#include "symbol/ops/activation.h"

namespace bindery {

struct FullyConnectedAttrs {
  int64_t num_hidden = 0;
  bool no_bias = false;
  bool flatten = true;  // (N, ...) is seen as (N, K); otherwise only the last axis is contracted
  ActivationType activation = ActivationType::kNone;  // applied to the result
  static FieldList Fields() {
    using A = FullyConnectedAttrs;
    return {{"num_hidden", &A::num_hidden, "number of outputs, required"},
            {"no_bias", &A::no_bias, "leave the bias out"},
            {"flatten", &A::flatten, "join all axes but the first; else contract the last only"},
            {"activation", &A::activation, "applied to the result"}};
  }
};

// data (N, ...) -> (N, num_hidden); weight (num_hidden, K), bias (num_hidden).
const OpDef& FullyConnectedOp();
inline constexpr OpFunction<FullyConnectedAttrs, 3> FullyConnected{FullyConnectedOp};

// (output gradient, weight) -> data gradient, (N, K) if `flatten`
const OpDef& FullyConnectedGradDataOp();
inline constexpr OpFunction<FullyConnectedAttrs, 2> FullyConnectedGradData{FullyConnectedGradDataOp};
// (output gradient, data) -> weight gradient [, bias gradient unless no_bias]
const OpDef& FullyConnectedGradWeightOp();
inline constexpr OpFunction<FullyConnectedAttrs, 2> FullyConnectedGradWeight{FullyConnectedGradWeightOp};

}  // namespace bindery
