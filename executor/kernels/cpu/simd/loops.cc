#include "executor/kernels/cpu/simd/loops.h"

#include "engine/isa.h"
#include "executor/kernels/cpu/dnnl_util.h"

namespace bindery::cpu {

const LoopSet& BestLoopSet() {
  static const LoopSet& loops = []() -> const LoopSet& {
    const Isa isa = MachineIsa();
    if (isa == Isa::kAvx512 && Allows(dnnl::cpu_isa::avx512_core)) return Avx512Loops();
    if (isa >= Isa::kAvx2 && Allows(dnnl::cpu_isa::avx2)) return Avx2Loops();
    return BaselineLoops();
  }();
  return loops;
}

const IntegerLoops& BestIntegers() {
  static const IntegerLoops& loops = Allows(dnnl::cpu_isa::avx512_core_vnni) ? VnniIntegers() : BestLoopSet().integers;
  return loops;
}

}  // namespace bindery::cpu
