// Mixed precision: operators that cost much run in bfloat16 or float16, those that would lose by it in float32, and the
// rest in the type of what they are given. Parameters, states, outputs and their gradients stay what they are, float32:
// what runs lower reads Casts of them, and Cast's gradient is float32 again. So optimizers, checkpoints and whoever sets
// or gets parameters see nothing of it.
//
//   Symbol mixed = MixedPrecision(symbol, {.dtype = DType::kFloat16, .operators = {{"Pooling", Precision::kFloat32}}});
//
// What small gradients need besides in float16: ScaleLosses (symbol/ops/loss.h) of the result.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/dtype.h"
#include "symbol/infer.h"
#include "symbol/symbol.h"

namespace bindery {

enum class Precision : uint8_t {
  kLow,      // in the low type, as far as the operator's rule takes it: BatchNorm's own parameters stay float32
  kFloat32,  // in float32
  kFollow,   // as its inputs are, if its rule takes them so; else all of them in float32
};

// By the operator's name (OpDef::name).
using OperatorPrecisions = std::map<std::string, Precision>;
// What is not here follows. Low: products of matrices, convolutions, attention and recurrent layers. In float32: losses,
// softmax, norms other than BatchNorm (whose kernels keep statistics in float32), sums, and functions that grow or
// shrink what they get by powers.
const OperatorPrecisions& DefaultPrecisions();

struct MixedPrecisionOptions {
  DType dtype = DType::kBFloat16;     // or kFloat16
  OperatorPrecisions operators = {};  // in place of what DefaultPrecisions() say
};
// Throws Error for another type, for operators that do not exist (with the nearest name) and losses in the low type.
void CheckMixedPrecision(const MixedPrecisionOptions& options);

// The same names, arguments, states and outputs, all of the types they had; each value is cast once to each type, and a
// Cast back of what was cast from there is the value itself. Casts are named after the value and the type,
// "fc1_weight_bfloat16". Done a second time it changes nothing. Losses that are heads are always float32, and so are a
// head of several outputs and operators whose by-products others of the graph read, as in a symbol of gradients: the
// pass comes before these. Numbers (Scalar, and Constants without axes) take the type of what they are combined with,
// but for those that would be infinite or 0 in it, as -1e9 and 1e-8 in float16: these keep the others in float32.
// `dtypes`: those of arguments that are not declared and not float32.
// Throws what CheckMixedPrecision throws.
Symbol MixedPrecision(const Symbol& symbol, const MixedPrecisionOptions& options = {}, const DTypeMap& dtypes = {});

}  // namespace bindery
