// Products of integers of 8 bits with sums of 32, exact whatever the values are. 32 bits of data are `taps` neighbours,
// whose products with as many weights are added at once; so there are two forms of an element of the data:
//   2 taps, int16: less the zero point; weights are widened, too. (Instructions that multiply bytes themselves keep sums
//     in 16 bits on processors without VNNI, where 255 times 127, twice, is too much.)
//   4 taps, uint8: bytes as they are, int8 + 128. Sums begin with what the zero point makes too much. Needs VNNI.
//
// One source, integers_body.h, compiled for the same instructions as loops.h, and for VNNI. Every function is serial.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

namespace bindery::cpu {

inline constexpr int64_t kPanel = 16;  // outputs that are computed side by side

// The element for x; what it gives of the zero point itself stands for 0.
template <class Element, class T>
constexpr Element ElementOf(T x, int zero) {
  if constexpr (sizeof(Element) == 2) return static_cast<Element>(x - zero);
  return static_cast<Element>(x - std::numeric_limits<T>::min());
}

// Some rows of data against a panel of weights. A row's taps lie in runs; run i is offsets[i] bytes behind the row's
// begin and `groups` groups of `taps` elements long. Weights are (runs, groups, kPanel, taps), sums (rows, kPanel);
// each row's begin with `begin`.
struct IntegerProducts {
  const void* const* rows;
  const int32_t* offsets;
  int64_t runs, groups;
  const int8_t* weights;
  const int32_t* begin;
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
  int64_t taps, most_rows;             // most_rows: that registers have room for
  ProductsOf products, half_products;  // of a whole panel, and of its first half, at least
  // What a panel's sums begin with; `zero` is the element that stands for 0, `groups` those of all runs.
  void (*begin)(const int8_t* weights, int64_t groups, int zero, int32_t* sums);
  void (*floats)(const int32_t* sums, const IntegerResults& results, int64_t rows, float* y);
  void (*bytes)(const int32_t* sums, const IntegerResults& results, int64_t rows, uint8_t* y);  // the low 8 bits
  void (*quantize)(const float* x, const IntegerScale& to, int64_t n, uint8_t* y);              // likewise
  // Elements; `zero` is the zero point.
  void (*load_unsigned)(const uint8_t* x, void* y, int64_t n, int zero);
  void (*load_signed)(const int8_t* x, void* y, int64_t n, int zero);
};

}  // namespace bindery::cpu
