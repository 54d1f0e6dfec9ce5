#include "executor/units.h"

#include "executor/kernels/cpu/dnnl_util.h"

namespace bindery {

bool HasUnitsFor(DeviceKind kind, DType dtype) {
  if (kind != DeviceKind::kCpu || !IsFloat(dtype) || SizeOf(dtype) > 2) return true;
  return dtype == DType::kBFloat16 && cpu::Allows(dnnl::cpu_isa::avx512_core_bf16);
}

}  // namespace bindery
