#include "executor/kernels/cpu/simd/integers.h"

#include "engine/isa.h"
#include "executor/kernels/cpu/dnnl_util.h"

namespace bindery::cpu {

const IntegerLoops& BestIntegers() {
  static const IntegerLoops& loops = []() -> const IntegerLoops& {
    const Isa isa = MachineIsa();
    if (isa == Isa::kAvx512 && Allows(dnnl::cpu_isa::avx512_core)) return Avx512Integers();
    if (isa >= Isa::kAvx2 && Allows(dnnl::cpu_isa::avx2)) return Avx2Integers();
    return BaselineIntegers();
  }();
  return loops;
}

}  // namespace bindery::cpu
