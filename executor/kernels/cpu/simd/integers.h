// Products of integers of 8 bits with sums of 32, exact whatever the values are: both factors are widened to 16 bits,
// neighbours are multiplied and added in pairs. (Instructions that multiply bytes themselves keep their sums in 16 bits
// on processors without VNNI, where 255 times 127, twice, is too much.)
//
// One source, integers_body.h, compiled for the same instructions as loops.h, whose LoopSet has them. Every function is
// serial.
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

// The integer for a number: the nearest to x / scale, + zero, within low and high, all three whole; of NaN 0.
struct IntegerScale {
  float scale = 1, zero = 0, low = 0, high = 0;
};
// y = f(scale sum + bias) of one or more rows of sums, and the integers for it; `outputs` of a row, and rows `step`
// elements apart.
struct IntegerResults {
  const float *scale, *bias;  // of kPanel outputs
  bool relu;
  int64_t outputs, step;
  IntegerScale to = {};
};

struct IntegerLoops {
  static constexpr int64_t kMostRows = 12;
  using ProductsOf = std::array<void (*)(const IntegerProducts&), kMostRows>;  // of 1, 2, ... rows
  int64_t most_rows;                                                           // that registers have room for
  ProductsOf products, half_products;  // of a whole panel, and of its first half, at least
  void (*floats)(const int32_t* sums, const IntegerResults& results, int64_t rows, float* y);
  void (*bytes)(const int32_t* sums, const IntegerResults& results, int64_t rows, uint8_t* y);  // the low 8 bits
  void (*quantize)(const float* x, const IntegerScale& to, int64_t n, uint8_t* y);              // likewise
  // y = x - zero
  void (*widen_unsigned)(const uint8_t* x, int16_t* y, int64_t n, int zero);
  void (*widen_signed)(const int8_t* x, int16_t* y, int64_t n, int zero);
};

}  // namespace bindery::cpu
