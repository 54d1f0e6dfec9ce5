#include <array>
#include <cstddef>
#include <cstring>

#include "executor/kernel.h"

namespace bindery::reference {
namespace {

// The next index in C order.
void Advance(const Shape& shape, std::array<int64_t, Shape::kMaxRank>& index) {
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (++index[axis] < shape[axis]) return;
    index[axis] = 0;
  }
}

void Reorder(const std::byte* source, const Format& from, std::byte* target, const Format& to, const Shape& shape,
             DType dtype) {
  const int64_t size = SizeOf(dtype);
  std::memset(target, 0, static_cast<size_t>(StorageBytes(to, dtype, shape)));  // the padding
  std::array<int64_t, Shape::kMaxRank> index{};
  for (int64_t i = shape.Elements(); i > 0; --i, Advance(shape, index)) {
    std::memcpy(target + ElementOffset(to, shape, index.data()) * size,
                source + ElementOffset(from, shape, index.data()) * size, static_cast<size_t>(size));
  }
}

}  // namespace

MaybeKernel MakeReorder(DType dtype, const Shape& shape, const Format& from, const Format& to, int) {
  if (to.kind == Format::Kind::kOpaque) return std::nullopt;
  Kernel kernel;
  kernel.implementation = "reference";
  kernel.input_formats = {from};
  kernel.output_formats = {to};
  kernel.bind = [=](const KernelArgs& args) -> Call {
    const auto* source = static_cast<const std::byte*>(args.inputs[0]);
    auto* target = static_cast<std::byte*>(args.outputs[0]);
    if (shape.Elements() == 0) return [] {};
    return [=] { Reorder(source, from, target, to, shape, dtype); };
  };
  return kernel;
}

}  // namespace bindery::reference
