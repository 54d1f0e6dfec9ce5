#include "engine/isa.h"

namespace bindery {

Isa MachineIsa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx512 ? Isa::kAvx512 : Isa::kAvx2;
  }
#endif
  return Isa::kBaseline;
}

const char* ToString(Isa isa) {
  switch (isa) {
    case Isa::kBaseline: return "baseline";
    case Isa::kAvx2: return "AVX2";
    case Isa::kAvx512: return "AVX-512";
  }
  return "unknown";
}

}  // namespace bindery
