#include "engine/team.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"

namespace bindery::cpu {

// Equal bytes are copied; everything else is oneDNN's. It knows no 8-byte elements, and its reorders of bfloat16 do not
// keep all bits without AVX-512: those are left to the reference.
MaybeKernel MakeFastReorder(DType dtype, const Shape& shape, const Format& from, const Format& to, int threads) {
  if (Canonical(from, shape) == Canonical(to, shape)) {
    return CopyKernel(StorageBytes(from, dtype, shape), from, to, threads);
  }
  // Only where elements lie matters: the type that travels is any of the same size.
  const int64_t size = SizeOf(dtype);
  if (size != 4 && size != 1) return std::nullopt;
  const DType carrier = size == 4 ? DType::kFloat32 : DType::kUInt8;
  const auto source = ToDesc(from, carrier, shape);
  const auto target = ToDesc(to, carrier, shape);
  if (!source || !target) return std::nullopt;

  const int64_t elements = shape.Elements();
  Kernel kernel{.input_formats = {from}, .output_formats = {to}};
  kernel.threads = elements <= kSerialElements ? 1 : threads;
  const TeamScope team(kernel.threads);
  const dnnl::reorder::primitive_desc desc(Engine(), *source, Engine(), *target, UserScratchpad(), true);
  if (!desc) return std::nullopt;
  return WithDnnl(
      std::move(kernel), "Reorder", dnnl::reorder(desc), desc,
      {{DNNL_ARG_FROM, *source, DnnlArgument::kInput, 0, from}, {DNNL_ARG_TO, *target, DnnlArgument::kOutput, 0, to}});
}

}  // namespace bindery::cpu
