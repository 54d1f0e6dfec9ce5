#include "executor/reformat.h"

#include <vector>

#include "engine/team.h"
#include "executor/kernel.h"

namespace bindery {
namespace {

void Reorder(DType dtype, const Shape& shape, const Format& from, const void* in, const Format& to, void* out) {
  const Kernel kernel = MakeReorder(dtype, shape, from, to, /*threads=*/1, KernelPolicy::kFast);
  const HostTensor scratch(DType::kUInt8, {kernel.scratch_bytes});
  void* const inputs[] = {const_cast<void*>(in)};
  void* const outputs[] = {out};
  const TeamScope team(kernel.threads);
  kernel.bind({.inputs = inputs, .outputs = outputs, .scratch = const_cast<void*>(scratch.raw())})();
}

}  // namespace

void ToStorage(const HostTensor& plain, const Format& format, void* storage) {
  Reorder(plain.dtype(), plain.shape(), Format::Plain(), plain.raw(), format, storage);
}

HostTensor FromStorage(DType dtype, const Shape& shape, const Format& format, const void* storage) {
  HostTensor plain(dtype, shape);
  Reorder(dtype, shape, format, storage, Format::Plain(), plain.raw());
  return plain;
}

}  // namespace bindery
