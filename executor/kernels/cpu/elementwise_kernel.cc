// Kernels of elementwise operators: how their loops (elementwise.cc) go over whole values.
#include <array>
#include <utility>

#include "engine/team.h"
#include "executor/kernels/cpu/elementwise.h"
#include "executor/kernels/cpu/util.h"
#include "executor/kernels/cpu/walk.h"

namespace bindery::cpu {
namespace {

// In plain order with stretched operands.
Kernel Stretched(const KernelSpec& spec, const ElementLoop& loop) {
  const size_t count = spec.inputs.size();
  std::array<Shape, kMaxStretched + 1> shapes = {spec.outputs[0].shape};
  std::array<int64_t, kMaxStretched + 1> sizes = {SizeOf(spec.outputs[0].dtype)};
  for (size_t k = 0; k < count; ++k) {
    shapes[k + 1] = spec.inputs[k].shape;
    sizes[k + 1] = SizeOf(spec.inputs[k].dtype);
  }
  const auto walk = StretchedWalk<kMaxStretched + 1>(shapes[0], shapes, sizes);
  unsigned still = 0;
  for (size_t k = 0; k < count; ++k) still |= static_cast<unsigned>(walk.inner_steps()[k + 1] == 0) << k;
  return WithLoop(FlatKernel(spec, "broadcast loop", Format::Plain()),
                  [=, run = loop.run_of(still)](const Arguments& args) {
                    walk.ForRuns([&](const auto& at, const auto&, int64_t n) {
                      Operands x{};
                      for (size_t k = 0; k < count; ++k) x[k] = args.in<std::byte>(static_cast<int>(k)) + at[k + 1];
                      run(x, args.out<std::byte>(0) + at[0], n);
                    });
                  });
}

}  // namespace

Kernel ElementwiseKernel(const KernelSpec& spec, const ElementLoop& loop) {
  const Shape& shape = spec.outputs[0].shape;
  const int count = static_cast<int>(spec.inputs.size());
  unsigned still = 0;
  for (int k = 0; k < count; ++k) {
    if (spec.inputs[k].shape == shape) continue;
    if (spec.inputs[k].shape.Elements() != 1) return Stretched(spec, loop);
    still |= 1u << k;
  }
  Format format = Format::Plain();
  for (int k = 0; k < count && format.is_plain(); ++k) {
    if (!(still >> k & 1)) format = CommonFormat(spec, {k}, loop.zero_to_zero && still == 0);
  }
  Kernel kernel = FlatKernel(spec, "loop", format);
  std::array<int64_t, kMaxStretched> step{};
  for (int k = 0; k < count; ++k) {
    if (still >> k & 1) {
      kernel.input_formats[k] = Format::Plain();
    } else {
      step[k] = SizeOf(spec.inputs[k].dtype);
    }
  }
  const int64_t n = StorageElements(format, shape), size = SizeOf(spec.outputs[0].dtype);
  return WithLoop(std::move(kernel), [=, run = loop.run_of(still)](const Arguments& args) {
    ParallelFor(n, kGrain, kSerialElements, [&](int64_t begin, int64_t end, int) {
      Operands x{};
      for (int k = 0; k < count; ++k) x[k] = args.in<std::byte>(k) + begin * step[k];
      run(x, args.out<std::byte>(0) + begin * size, end - begin);
    });
  });
}

}  // namespace bindery::cpu
