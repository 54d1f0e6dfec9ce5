// Layers of integers of 8 bits: exact sums in 32 bits (simd/integers.h), rescaled once. One group, and at most two
// spatial axes; channels last. A full connection is a convolution whose samples are single places.
#pragma once

#include <cstdint>

#include "executor/kernel_table.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/quantized.h"

namespace bindery::cpu {

// Of one axis.
struct IntegerAxis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilate = 1, pad_begin = 0;
  int64_t Reach() const { return (kernel - 1) * dilate + 1; }
  int64_t Needed(int64_t outputs) const { return (outputs - 1) * stride + Reach(); }  // elements, padding included
};

struct IntegerProblem {
  int64_t samples, channels, outputs;
  IntegerAxis rows, columns;
  QuantizedInputs at;
  bool relu, one_scale;
  DType data, output;
  int64_t taps = BestIntegers().taps;

  // Are groups of taps along the columns? Else of channels.
  bool is_single() const { return channels == 1 && columns.dilate == 1 && columns.kernel > 1; }
  int64_t step() const { return is_single() ? 1 : RoundUp(channels, taps); }  // elements from column to column
  int64_t panels() const { return CeilDiv(outputs, kPanel); }
  int64_t width() const { return columns.Needed(columns.out) * step(); }  // of a row of elements
  // Padding and dilation can say more than memory has; their product, than 64 bits count.
  bool CanBeLoaded() const {
    return static_cast<double>(rows.Needed(rows.out)) * static_cast<double>(columns.Needed(columns.out)) *
               static_cast<double>(step()) <
           1e12;
  }
  double flops() const {
    return 2.0 * static_cast<double>(samples * rows.out * columns.out) * static_cast<double>(outputs) *
           static_cast<double>(rows.kernel * columns.kernel * channels);
  }
};

// What integers of the output stand for; of floats nothing.
inline IntegerScale IntegerScaleOf(const Arguments& args, const QuantizedInputs& at, DType output) {
  if (output == DType::kFloat32) return {};
  const float scale = args.in(at.output_scale)[0];
  if (output == DType::kInt8) return {scale, static_cast<float>(args.in<int8_t>(at.output_zero)[0]), -128, 127};
  return {scale, static_cast<float>(args.in<uint8_t>(at.output_zero)[0]), 0, 255};
}

// Rows of sums as elements of the output from `to` on.
inline void StoreSums(const Arguments& args, const IntegerLoops& loops, const IntegerResults& results, DType output,
                      const int32_t* sums, int64_t rows, int64_t to) {
  output == DType::kFloat32 ? loops.floats(sums, results, rows, args.out(0) + to)
                            : loops.bytes(sums, results, rows, args.out<uint8_t>(0) + to);
}

// Null where strips of the data would take more than memory has.
MaybeKernel MakeIntegerLayer(const KernelSpec& spec, const IntegerProblem& p, const Format& data, const Format& output);

}  // namespace bindery::cpu
