#include "executor/kernels/cpu/simd/loops.h"

#include <dnnl.hpp>

namespace bindery::cpu {
namespace {

bool Allowed(dnnl::cpu_isa isa) {
  const int wanted = static_cast<int>(isa);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

}  // namespace

bool CanRunAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool CanRunAvx512() {
  return CanRunAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
}

const Loops& BestLoops() {
  static const Loops& loops = CanRunAvx512() && Allowed(dnnl::cpu_isa::avx512_core) ? Avx512Loops()
                              : CanRunAvx2() && Allowed(dnnl::cpu_isa::avx2)        ? Avx2Loops()
                                                                                    : BaselineLoops();
  return loops;
}

}  // namespace bindery::cpu
