#include "engine/kernels/vectorized.h"

#include <algorithm>
#include <atomic>

namespace bindery::flat {
namespace {

std::atomic<Isa>& TheIsa() {
  static std::atomic<Isa> isa{MachineIsa()};
  return isa;
}

}  // namespace

Isa MachineIsa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return Isa::kAvx512;
  }
  if (__builtin_cpu_supports("avx2")) return Isa::kAvx2;
#endif
  return Isa::kBaseline;
}

Isa CurrentIsa() { return TheIsa().load(std::memory_order_relaxed); }

void LimitIsa(Isa isa) { TheIsa().store(std::min(isa, MachineIsa()), std::memory_order_relaxed); }

}  // namespace bindery::flat
