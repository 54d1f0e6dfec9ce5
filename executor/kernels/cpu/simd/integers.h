// Products of integers of 8 bits with sums of 32, exact whatever the values are: both factors are widened to 16 bits,
// neighbours are multiplied and added in pairs. (Instructions that multiply bytes themselves keep their sums in 16 bits
// on processors without VNNI, where 255 times 127, twice, is too much.)
//
// One source, integers_body.h, compiled for the same instructions as loops.h. Every function is serial.
#pragma once

#include <array>
#include <cstdint>

namespace bindery::cpu {

inline constexpr int64_t kPanel = 16;  // outputs that are computed side by side

// Some rows of data against a panel of weights. A row's taps lie in runs; run i is offsets[i] elements behind the row's
// begin and `pairs` pairs of elements long. Weights are (runs, pairs, kPanel, 2), sums (rows, kPanel).
struct IntegerProducts {
  const int16_t* const* rows;
  const int32_t* offsets;
  int64_t runs, pairs;
  const int8_t* weights;
  int32_t* sums;
};

// y = f(scale sum + bias) of a row of sums, and the integer for it: the nearest to y / output_scale, + output_zero,
// within low and high, all of which are whole numbers.
struct IntegerResults {
  const float *scale, *bias;  // of kPanel outputs
  bool relu;
  float output_scale = 1, output_zero = 0, low = 0, high = 0;
};

struct IntegerLoops {
  static constexpr int64_t kMostRows = 12;
  int64_t most_rows;                                                 // that registers have room for
  std::array<void (*)(const IntegerProducts&), kMostRows> products;  // for 1, 2, ... rows
  // y[0..n) of sums[0..n), n at most kPanel
  void (*floats)(const int32_t* sums, const IntegerResults& results, float* y, int64_t n);
  void (*bytes)(const int32_t* sums, const IntegerResults& results, uint8_t* y, int64_t n);  // the low 8 bits
  // y = x - zero
  void (*widen_unsigned)(const uint8_t* x, int16_t* y, int64_t n, int zero);
  void (*widen_signed)(const int8_t* x, int16_t* y, int64_t n, int zero);
};

const IntegerLoops& BaselineIntegers();
const IntegerLoops& Avx2Integers();
const IntegerLoops& Avx512Integers();
const IntegerLoops& BestIntegers();

}  // namespace bindery::cpu
