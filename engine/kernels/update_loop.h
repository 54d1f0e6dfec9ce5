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
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "engine/kernels/update.h"
#include "engine/kernels/vectorized.h"
#include "engine/team.h"

namespace bindery {

namespace flat {

// With several gradients or copies, a block of sums and of new weights stays in the first-level cache between its
// passes: memory sees one.
inline constexpr int64_t kUpdateBlock = 1024;

template <class Rule, class T, bool kClip>
[[gnu::always_inline]] inline void UpdateElements(const T* grad, const UpdateArrays* arrays, int64_t begin, int64_t n,
                                                  const double* numbers, T rescale, T clip) {
  constexpr int kStates = Rule::kStates;
  T c[std::tuple_size_v<UpdateNumbers>];
  for (size_t i = 0; i < std::size(c); ++i) c[i] = static_cast<T>(numbers[i]);
  const T* const old_weight = static_cast<const T*>(arrays->weight) + begin;
  T* const weight = static_cast<T*>(arrays->new_weight) + begin;
  const T* old_states[kStates + 1];
  T* states[kStates + 1];
  for (int k = 0; k < kStates; ++k) {
    old_states[k] = static_cast<const T*>(arrays->states[k]) + begin;
    states[k] = static_cast<T*>(arrays->new_states[k]) + begin;
  }
#pragma GCC ivdep  // new arrays are the old ones, or others
  for (int64_t i = 0; i < n; ++i) {
    T g = grad[i] * rescale;
    if constexpr (kClip) {  // NaN stays NaN
      g = g < -clip ? -clip : g;
      g = g > clip ? clip : g;
    }
    T w = old_weight[i], s[kStates + 1];
    for (int k = 0; k < kStates; ++k) s[k] = old_states[k][i];
    Rule::Step(c, g, w, s);
    weight[i] = w;
    for (int k = 0; k < kStates; ++k) states[k][i] = s[k];
  }
}

template <class Rule, class T, bool kClip>
[[gnu::always_inline]] inline void UpdateLoop(const UpdateArrays* arrays, int64_t begin, int64_t end,
                                              const double* numbers, T rescale, T clip) {
  const auto& gradients = arrays->gradients;
  const T* first = static_cast<const T*>(gradients[0]);
  if (gradients.size() == 1 && arrays->copies.empty()) {
    UpdateElements<Rule, T, kClip>(first + begin, arrays, begin, end - begin, numbers, rescale, clip);
    return;
  }
  T sums[kUpdateBlock];
  for (int64_t block = begin; block < end; block += kUpdateBlock) {
    const int64_t size = std::min(kUpdateBlock, end - block);
    const T* gradient = first + block;
    if (gradients.size() > 1) {
      const T* second = static_cast<const T*>(gradients[1]) + block;
      for (int64_t i = 0; i < size; ++i) sums[i] = gradient[i] + second[i];
      for (size_t k = 2; k < gradients.size(); ++k) {
        const T* next = static_cast<const T*>(gradients[k]) + block;
        for (int64_t i = 0; i < size; ++i) sums[i] += next[i];
      }
      gradient = sums;
    }
    UpdateElements<Rule, T, kClip>(gradient, arrays, block, size, numbers, rescale, clip);
    for (void* const copy : arrays->copies) {
      std::memcpy(static_cast<T*>(copy) + block, static_cast<const T*>(arrays->new_weight) + block, size * sizeof(T));
    }
  }
}

}  // namespace flat

template <class Rule>
void UpdateKernelOf(DType dtype, const UpdateArgs& args, const UpdateArrays& arrays) {
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) {
    Throw("an update: expected float32 or float64 weights, got {}", dtype);
  }
  if (arrays.gradients.empty()) Throw("an update: expected at least one gradient");
  if (arrays.states.size() != Rule::kStates || arrays.new_states.size() != Rule::kStates) {
    Throw("an update: expected {} states, got {} and {} new ones", Rule::kStates, arrays.states.size(),
          arrays.new_states.size());
  }
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

}  // namespace bindery
