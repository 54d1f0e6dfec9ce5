// Dropout: y = x mask / (1 - p), mask = 1 with probability 1 - p (Srivastava et al., 2014).
#pragma once

#include <array>

#include "symbol/op_def.h"

namespace bindery {

enum class DropoutMode { kTraining, kAlways };
inline std::span<const EnumName> EnumNames(DropoutMode*) {
  static constexpr std::array<EnumName, 2> names{{{0, "training"}, {1, "always"}}};
  return names;
}

struct DropoutAttrs {
  double p = 0.5;                             // probability of dropping, 0 <= p < 1
  std::vector<int64_t> axes = {};             // axes along which one decision is shared
  DropoutMode mode = DropoutMode::kTraining;  // always: in prediction too
  static FieldList Fields() {
    using A = DropoutAttrs;
    return {{"p", &A::p, "probability of dropping"},
            {"axes", &A::axes, "axes along which a decision is shared"},
            {"mode", &A::mode, "training, or always: in prediction too"}};
  }
};

// data -> output; hidden output "mask" (uint8, 0 or 1; data's shape with the shared axes 1).
// The mask of a sample depends on (seed, node name, step, micro-batch, global sample index, index in the sample) only.
const OpDef& DropoutOp();
inline constexpr OpFunction<DropoutAttrs> Dropout{DropoutOp};
// (output gradient, mask) -> data gradient = output gradient * mask / (1 - p); identity where the forward was
const OpDef& DropoutGradOp();
inline constexpr OpFunction<DropoutAttrs, 2> DropoutGrad{DropoutGradOp};

}  // namespace bindery
