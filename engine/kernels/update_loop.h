// UpdateKernelOf<Rule>: the loop of an update rule over host memory, for the CPU and for simulated devices. A rule is a
// class of this form:
//
//   struct Momentum {
//     static constexpr int kStates = 1;
//     // The numbers that Step reads, computed once, in double.
//     static constexpr UpdateNumbers Prepare(const UpdateArgs& a) { return {a.learning_rate, a.weight_decay}; }
//     // One element. T: float or double, and on other devices their kinds of numbers.
//     template <class T>
//     [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
//       s[0] = c[2] * s[0] - c[0] * (g + c[1] * w);
//       w += s[0];
//     }
//   };
//   AddOptimizer({.name = "mine", .states = {"momentum"}, .settings = {{"momentum", 0.9, 1}},
//                 .kernel = UpdateKernelOf<Momentum>});                     // train/optimizers/optimizer.h
//
// One that goes by norms says in which direction an element would go, and has `.measure = MeasureKernelOf<Rule>`:
//
//     // `s` are copies, which Direction may change.
//     template <class T>
//     [[gnu::always_inline]] static constexpr T Direction(const T* c, T g, T w, T* s);
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "engine/kernels/flat.h"
#include "engine/kernels/update.h"
#include "engine/kernels/vectorized.h"
#include "engine/team.h"

namespace bindery {

namespace flat {

// With several gradients or copies, a block of sums and of new weights stays in the first-level cache between its
// passes: memory sees one.
inline constexpr int64_t kUpdateBlock = 1024;

template <bool kClip, class T>
[[gnu::always_inline]] inline T Clipped(T g, T clip) {
  if constexpr (kClip) {  // NaN stays NaN
    g = g < -clip ? -clip : g;
    g = g > clip ? clip : g;
  }
  return g;
}

template <class Rule, class T, bool kClip>
[[gnu::always_inline]] inline void UpdateElements(const T* grad, const UpdateArrays* arrays, int64_t begin, int64_t n,
                                                  const double* numbers, T rescale, T clip, T* weight) {
  constexpr int kStates = Rule::kStates;
  T c[std::tuple_size_v<UpdateNumbers>];
  for (size_t i = 0; i < std::size(c); ++i) c[i] = static_cast<T>(numbers[i]);
  const T* const old_weight = static_cast<const T*>(arrays->weight) + begin;
  const T* old_states[kStates + 1];
  T* states[kStates + 1];
  for (int k = 0; k < kStates; ++k) {
    old_states[k] = static_cast<const T*>(arrays->states[k]) + begin;
    states[k] = static_cast<T*>(arrays->new_states[k]) + begin;
  }
// New arrays are the old ones, or others.
#ifdef __clang__
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (int64_t i = 0; i < n; ++i) {
    T w = old_weight[i], s[kStates + 1];
    for (int k = 0; k < kStates; ++k) s[k] = old_states[k][i];
    Rule::Step(c, Clipped<kClip>(grad[i] * rescale, clip), w, s);
    weight[i] = w;
    for (int k = 0; k < kStates; ++k) states[k][i] = s[k];
  }
}

// The sum of elements begin..begin+n-1, which is `sums`, or the only gradient's own.
template <class T>
[[gnu::always_inline]] inline const T* SumOfGradients(std::span<const void* const> gradients, int64_t begin, int64_t n,
                                                      T* sums) {
  const T* const first = static_cast<const T*>(gradients[0]) + begin;
  if (gradients.size() == 1) return first;
  const T* second = static_cast<const T*>(gradients[1]) + begin;
  for (int64_t i = 0; i < n; ++i) sums[i] = first[i] + second[i];
  for (size_t k = 2; k < gradients.size(); ++k) {
    const T* next = static_cast<const T*>(gradients[k]) + begin;
    for (int64_t i = 0; i < n; ++i) sums[i] += next[i];
  }
  return sums;
}

template <class Rule, class T, bool kClip>
[[gnu::always_inline]] inline void UpdateLoop(const UpdateArrays* arrays, int64_t begin, int64_t end,
                                              const double* numbers, T rescale, T clip) {
  // Several devices' weights, which other cores have read, are written when a block of them is done: that takes a step
  // of a small network 0.97 of the time.
  T sums[kUpdateBlock], weights[kUpdateBlock];
  const bool in_one_pass = arrays->gradients.size() == 1 && arrays->copies.empty();
  const int64_t step = in_one_pass ? end - begin : kUpdateBlock;
  for (int64_t block = begin; block < end; block += step) {
    const int64_t size = std::min(step, end - block);
    T* const weight = static_cast<T*>(arrays->new_weight) + block;
    UpdateElements<Rule, T, kClip>(SumOfGradients(arrays->gradients, block, size, sums), arrays, block, size, numbers,
                                   rescale, clip, in_one_pass ? weight : weights);
    if (in_one_pass) continue;
    std::memcpy(weight, weights, size * sizeof(T));
    for (void* const copy : arrays->copies) std::memcpy(static_cast<T*>(copy) + block, weights, size * sizeof(T));
  }
}

// The directions of elements begin..begin+n-1, at most kUpdateBlock.
template <class Rule, class T, bool kClip>
[[gnu::always_inline]] inline void DirectionLoop(const UpdateArrays* arrays, int64_t begin, int64_t n,
                                                 const double* numbers, T rescale, T clip, T* directions) {
  constexpr int kStates = Rule::kStates;
  T c[std::tuple_size_v<UpdateNumbers>], sums[kUpdateBlock];
  for (size_t i = 0; i < std::size(c); ++i) c[i] = static_cast<T>(numbers[i]);
  const T* const grad = SumOfGradients(arrays->gradients, begin, n, sums);
  const T* const weight = static_cast<const T*>(arrays->weight) + begin;
  for (int64_t i = 0; i < n; ++i) {
    T s[kStates + 1];
    for (int k = 0; k < kStates; ++k) s[k] = static_cast<const T*>(arrays->states[k])[begin + i];
    directions[i] = Rule::Direction(c, Clipped<kClip>(grad[i] * rescale, clip), weight[i], s);
  }
}

template <class Rule>
void CheckUpdate(DType dtype, const UpdateArrays& arrays) {
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) {
    Throw("an update: expected float32 or float64 weights, got {}", dtype);
  }
  if (arrays.gradients.empty()) Throw("an update: expected at least one gradient");
  if (arrays.states.size() != Rule::kStates || arrays.new_states.size() != Rule::kStates) {
    Throw("an update: expected {} states, got {} and {} new ones", Rule::kStates, arrays.states.size(),
          arrays.new_states.size());
  }
}

}  // namespace flat

template <class Rule>
void UpdateKernelOf(DType dtype, const UpdateArgs& args, const UpdateArrays& arrays) {
  flat::CheckUpdate<Rule>(dtype, arrays);
  const UpdateNumbers numbers = Rule::Prepare(args);
  const auto run = [&]<class T>() {
    ParallelFor(arrays.elements, flat::kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
      const T rescale = static_cast<T>(args.rescale), clip = static_cast<T>(args.clip);
      if (args.clip > 0) {
        flat::Vectorized<flat::UpdateLoop<Rule, T, true>>(&arrays, begin, end, numbers.data(), rescale, clip);
      } else {
        flat::Vectorized<flat::UpdateLoop<Rule, T, false>>(&arrays, begin, end, numbers.data(), rescale, clip);
      }
    });
  };
  dtype == DType::kFloat32 ? run.template operator()<float>() : run.template operator()<double>();
}

// By the calling thread alone: whoever shares out ranges shares out this, too.
template <class Rule>
UpdateSquares MeasureKernelOf(DType dtype, const UpdateArgs& args, const UpdateArrays& arrays) {
  flat::CheckUpdate<Rule>(dtype, arrays);
  const UpdateNumbers numbers = Rule::Prepare(args);
  UpdateSquares squares;
  const auto run = [&]<class T>() {
    const T rescale = static_cast<T>(args.rescale), clip = static_cast<T>(args.clip);
    T directions[flat::kUpdateBlock];
    for (int64_t begin = 0; begin < arrays.elements; begin += flat::kUpdateBlock) {
      const int64_t n = std::min(flat::kUpdateBlock, arrays.elements - begin);
      if (args.clip > 0) {
        flat::Vectorized<flat::DirectionLoop<Rule, T, true>>(&arrays, begin, n, numbers.data(), rescale, clip,
                                                             directions);
      } else {
        flat::Vectorized<flat::DirectionLoop<Rule, T, false>>(&arrays, begin, n, numbers.data(), rescale, clip,
                                                              directions);
      }
      squares.weight += flat::SumOfSquares(dtype, static_cast<const T*>(arrays.weight) + begin, n);
      squares.direction += flat::SumOfSquares(dtype, directions, n);
    }
  };
  dtype == DType::kFloat32 ? run.template operator()<float>() : run.template operator()<double>();
  return squares;
}

}  // namespace bindery
