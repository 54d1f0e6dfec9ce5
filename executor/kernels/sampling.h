// Where the places of a grid are among the elements along an axis of data, and with which weights: for the kernels of
// CPUs and of GPUs, which are compared with formulas of the reference kernels' own.
//
// `constexpr` lets compilers for accelerators use it there.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace bindery {

// What GridSampleAttrs say (symbol/ops/grid.h), for code of accelerators.
enum class Sampling : int32_t { kNearest, kLinear, kCubic };
enum class Outside : int32_t { kZeros, kBorder, kReflection };
constexpr int TapsAlongAxis(Sampling sampling) {
  return sampling == Sampling::kNearest ? 1 : sampling == Sampling::kLinear ? 2 : 4;
}

struct SampledAxis {
  int64_t extent = 1;
  Outside outside = {};
  bool align_corners = false;
};

// A place among an axis' elements, and how fast it moves by the number in the grid; 0 and NaN where there is none.
template <class T>
struct PlaceOnAxis {
  T at, slope;
};

// The elements along one axis that a place is made of. One that is not `inside` counts as 0.
template <class T, int kCount, class Index>
struct Taps {
  Index index[kCount];  // 0 where it is not inside
  bool inside[kCount];
  T weight[kCount];
  T slope[kCount];  // of the weight, by the number in the grid
};

// Turned over at the first and the last centre, or at the edges, as often as it needs; *slope is turned with it. The
// period of a single centre is any: what comes of it is not above 0, to which it is moved.
template <class T>
constexpr T ReflectedPlace(const SampledAxis& axis, T at, T* slope) {
  const T low = axis.align_corners ? T{0} : T{-0.5};
  const T span = static_cast<T>(axis.align_corners ? axis.extent - 1 : axis.extent);
  const T period = span > T{0.5} ? 2 * span : T{1};
  T turned = at - low;
  if (turned < 0) {
    turned = -turned;
    *slope = -*slope;
  }
  if (!(turned < period)) turned = std::fmod(turned, period);
  if (turned <= span) return low + turned;
  *slope = -*slope;
  return low + (2 * span - turned);
}

// Within bounds, beyond and at which there is no slope, as in PyTorch. NaN stays.
template <class T>
constexpr T PlaceWithin(T at, T low, T high, T* slope) {
  *slope = ((at > low) & (at < high)) ? *slope : T{0};
  const T raised = at < low ? low : at;
  return raised > high ? high : raised;
}

// Where the number of a grid is: within the axis, or as far outside as no element near it is inside. Of a cubic the
// elements are reflected, one by one.
template <Sampling kSampling, class T>
constexpr PlaceOnAxis<T> PlaceAt(const SampledAxis& axis, T grid) {
  const T last = static_cast<T>(axis.extent - 1);
  T slope = static_cast<T>(axis.align_corners ? axis.extent - 1 : axis.extent) / 2;
  T at = (grid + 1) * slope - (axis.align_corners ? T{0} : T{0.5});
  const bool zeros = axis.outside == Outside::kZeros, reflects = axis.outside == Outside::kReflection;
  if (reflects && kSampling != Sampling::kCubic) at = ReflectedPlace(axis, at, &slope);
  const T beyond = kSampling == Sampling::kCubic ? T{3} : zeros ? T{2} : T{0};
  if (!reflects || kSampling != Sampling::kCubic) at = PlaceWithin(at, -beyond, last + beyond, &slope);
  const bool exists = at - at == 0;
  return {exists ? at : T{0}, exists ? slope : std::numeric_limits<T>::quiet_NaN()};
}

// Of a place that is near the axis.
template <class Index, class T>
constexpr Index FloorOfPlace(T at) {
  const auto cut = static_cast<Index>(at);
  return cut - static_cast<Index>(at < static_cast<T>(cut));
}

template <class T, int kCount, class Index>
constexpr void SetTap(const SampledAxis& axis, bool exists, Index index, int tap, Taps<T, kCount, Index>* taps) {
  const bool inside = exists & (index >= 0) & (index < static_cast<Index>(axis.extent));
  taps->inside[tap] = inside;
  taps->index[tap] = inside ? index : 0;
}

// `Index` holds what is near the axis.
template <Sampling kSampling, class Index, class T>
constexpr auto TapsOf(const SampledAxis& axis, const PlaceOnAxis<T>& place) {
  Taps<T, TapsAlongAxis(kSampling), Index> taps{};
  const auto [at, slope] = place;
  const bool exists = slope == slope, zeros = axis.outside == Outside::kZeros;
  const T nothing = slope - slope;  // 0, or NaN
  if constexpr (kSampling == Sampling::kCubic) {
    constexpr T a = T{-0.75};  // as in PyTorch and ONNX
    const T last = static_cast<T>(axis.extent - 1), below = std::floor(at), part = at - below + nothing;
    const T distances[4] = {part + 1, part, 1 - part, 2 - part};
    for (int tap = 0; tap < 4; ++tap) {
      const T x = distances[tap], side = tap < 2 ? slope : -slope;
      const bool near = tap == 1 || tap == 2;
      taps.weight[tap] = near ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
      taps.slope[tap] = side * (near ? (3 * (a + 2) * x - 2 * (a + 3)) * x : (3 * a * x - 10 * a) * x + 8 * a);
      T element = below + static_cast<T>(tap - 1), ignored = 0;
      if (axis.outside == Outside::kReflection) element = ReflectedPlace(axis, element, &ignored);
      if (!zeros) element = PlaceWithin(element, T{0}, last, &ignored);
      SetTap(axis, exists, FloorOfPlace<Index>(element), tap, &taps);
    }
  } else {
    const auto below = FloorOfPlace<Index>(at);
    const T part = at - static_cast<T>(below) + nothing;
    if constexpr (kSampling == Sampling::kLinear) {
      SetTap(axis, exists, below, 0, &taps);
      SetTap(axis, exists, below + 1, 1, &taps);
      taps.weight[0] = 1 - part;
      taps.weight[1] = part;
      taps.slope[0] = -slope;
      taps.slope[1] = slope;
    } else {  // of two that are as near the even one
      const Index above = static_cast<Index>(part > T{0.5}) | (static_cast<Index>(part == T{0.5}) & below & 1);
      SetTap(axis, !zeros | exists, below + above, 0, &taps);
      taps.weight[0] = 1;
    }
  }
  return taps;
}

}  // namespace bindery
