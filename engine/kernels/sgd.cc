#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "engine/kernels/flat.h"
#include "engine/kernels/vectorized.h"
#include "engine/team.h"

namespace bindery::flat {
namespace {

// With several gradients or replicas, a block of sums and of new weights stays in the first-level cache between its
// passes: memory sees one.
constexpr int64_t kBlock = 1024;

// SgdArgs in the weights' type.
template <class T>
struct Rates {
  T learning_rate, momentum, weight_decay, rescale, clip;
};

template <class T, bool kMomentum, bool kClip>
[[gnu::always_inline]] inline void StepLoop(const T* __restrict grad, T* __restrict weight, T* __restrict state,
                                            int64_t n, Rates<T> rates) {
  for (int64_t i = 0; i < n; ++i) {
    T g = grad[i] * rates.rescale;
    if constexpr (kClip) {  // NaN stays NaN
      g = g < -rates.clip ? -rates.clip : g;
      g = g > rates.clip ? rates.clip : g;
    }
    const T step = rates.learning_rate * (g + rates.weight_decay * weight[i]);
    if constexpr (kMomentum) {
      const T m = rates.momentum * state[i] - step;
      state[i] = m;
      weight[i] += m;
    } else {
      weight[i] -= step;
    }
  }
}

template <class T, bool kMomentum, bool kClip>
[[gnu::always_inline]] inline void SgdLoop(const void* const* grads, size_t grad_count, T* weight, T* state,
                                           void* const* replicas, size_t replica_count, int64_t begin, int64_t end,
                                           Rates<T> rates) {
  if (grad_count == 1 && replica_count == 0) {
    StepLoop<T, kMomentum, kClip>(static_cast<const T*>(grads[0]) + begin, weight + begin,
                                  state + (kMomentum ? begin : 0), end - begin, rates);
    return;
  }
  T sums[kBlock];
  for (int64_t block = begin; block < end; block += kBlock) {
    const int64_t size = std::min(kBlock, end - block);
    const T* grad = static_cast<const T*>(grads[0]) + block;
    if (grad_count > 1) {
      const T* second = static_cast<const T*>(grads[1]) + block;
      for (int64_t i = 0; i < size; ++i) sums[i] = grad[i] + second[i];
      for (size_t k = 2; k < grad_count; ++k) {
        const T* next = static_cast<const T*>(grads[k]) + block;
        for (int64_t i = 0; i < size; ++i) sums[i] += next[i];
      }
      grad = sums;
    }
    StepLoop<T, kMomentum, kClip>(grad, weight + block, state + (kMomentum ? block : 0), size, rates);
    for (size_t r = 0; r < replica_count; ++r) {
      std::memcpy(static_cast<T*>(replicas[r]) + block, weight + block, size * sizeof(T));
    }
  }
}

template <class T>
void SgdPart(std::span<const void* const> grads, T* weight, T* state, std::span<void* const> replicas, int64_t begin,
             int64_t end, const SgdArgs& args) {
  const Rates<T> rates{static_cast<T>(args.learning_rate), static_cast<T>(args.momentum),
                       static_cast<T>(args.weight_decay), static_cast<T>(args.rescale), static_cast<T>(args.clip)};
  const auto run = [&]<bool kMomentum, bool kClip>() {
    Vectorized<SgdLoop<T, kMomentum, kClip>>(grads.data(), grads.size(), weight, state, replicas.data(),
                                             replicas.size(), begin, end, rates);
  };
  if (args.momentum != 0) {
    args.clip > 0 ? run.template operator()<true, true>() : run.template operator()<true, false>();
  } else {
    args.clip > 0 ? run.template operator()<false, true>() : run.template operator()<false, false>();
  }
}

}  // namespace

void Sgd(DType dtype, std::span<const void* const> grads, void* weight, void* momentum_state,
         std::span<void* const> replicas, int64_t n, const SgdArgs& args) {
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) {
    Throw("Sgd: expected float32 or float64 weights, got {}", dtype);
  }
  if (grads.empty()) Throw("Sgd: expected at least one gradient");
  if (args.momentum != 0 && !momentum_state && n > 0) Throw("Sgd: momentum {} needs a momentum state", args.momentum);
  const auto run = [&]<class T>() {
    ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
      SgdPart(grads, static_cast<T*>(weight), static_cast<T*>(momentum_state), replicas, begin, end, args);
    });
  };
  dtype == DType::kFloat32 ? run.template operator()<float>() : run.template operator()<double>();
}

}  // namespace bindery::flat
