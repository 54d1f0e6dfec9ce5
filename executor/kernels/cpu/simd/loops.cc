#include "executor/kernels/cpu/simd/loops.h"

#include <dnnl.hpp>

#include "engine/isa.h"

namespace bindery::cpu {
namespace {

// What the user has not forbidden to oneDNN (DNNL_MAX_CPU_ISA) is allowed to our loops too.
bool Allowed(dnnl::cpu_isa isa) {
  const int wanted = static_cast<int>(isa);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

}  // namespace

const Loops& BestLoops() {
  static const Loops& loops = []() -> const Loops& {
    const Isa isa = MachineIsa();
    if (isa == Isa::kAvx512 && Allowed(dnnl::cpu_isa::avx512_core)) return Avx512Loops();
    if (isa >= Isa::kAvx2 && Allowed(dnnl::cpu_isa::avx2)) return Avx2Loops();
    return BaselineLoops();
  }();
  return loops;
}

}  // namespace bindery::cpu
