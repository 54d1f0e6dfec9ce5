// Which neighbouring operators have a kernel that does both in one pass over memory.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "symbol/infer.h"
#include "symbol/op_def.h"

namespace bindery {

struct FusedOp {
  const OpDef* op;
  AnyAttrs attrs;
};

// `producer`, whose output 0 nobody reads but `reader`, as its input 0, becomes one node together with it. Its inputs
// are the producer's, then the reader's others; its outputs are the reader's where that has several inputs, else the
// producer's, of which output 0 is the reader's (more of them are for its gradient). No value: not these two.
struct Fusion {
  using TypeOf = std::function<const ValueType&(const Entry&)>;
  const OpDef* producer;
  const OpDef* reader;
  std::function<std::optional<FusedOp>(const Node& producer, const Node& reader, const TypeOf& type_of)> fuse;
  bool commutes = false;  // the reader's inputs 0 and 1 may change places
};

std::span<const Fusion> Fusions();
// Of what has no gradient, to come before the others: the sum of a convolution and something of its shape.
std::span<const Fusion> PredictionFusions();

// (data, weight [, bias], addend) -> f(the linear convolution + addend), of ConvolutionAttrs
const OpDef& ConvolutionAddOp();

}  // namespace bindery
