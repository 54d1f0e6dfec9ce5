// What the reference kernels share: tensors in double precision, and walks over strided and broadcast shapes.
//
// Reference kernels take and give plain formats. Each call copies its inputs to double in scratch memory, runs one loop
// over these copies and stores the results, so a loop is the formula and nothing else, serves every dtype, and may
// always work in place. 64-bit integers are exact up to 2^53, like every integer in a double; beyond, results are
// rounded. Operators that only move elements copy bytes instead, for they must keep every bit.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "executor/kernel.h"
#include "executor/kernels/rules.h"
#include "symbol/ops/activation.h"

namespace bindery::reference {

// What a loop works on: doubles in plain order, or the tensors' own memory (`raw`, the only access to opaque states).
struct Tensors {
  std::vector<const double*> in;  // null if opaque
  std::vector<double*> out;       // zeros when the loop starts; null if opaque. Stored if somebody reads it
  std::vector<const std::byte*> raw_in;
  std::vector<std::byte*> raw_out;  // null if nobody reads the output
  const StepBlock* step = nullptr;
};
using Loop = std::function<void(const Tensors&)>;

// What becomes of a result that an integer type does not hold: the nearest that it does, or its lowest bits.
enum class Integers : uint8_t { kSaturate, kWrap };

// A kernel that runs `loop` between conversions from and to double. Output formats are plain unless given.
Kernel InDouble(const KernelSpec& spec, Loop loop, std::vector<Format> output_formats = {},
                Integers integers = Integers::kSaturate);
// The same of sums and products, whose integers wrap around.
inline Kernel Wrapping(const KernelSpec& spec, Loop loop) {
  return InDouble(spec, std::move(loop), {}, Integers::kWrap);
}
// A kernel that moves elements: `in` and `out` stay empty. The pairs given may share memory.
Kernel OnBytes(const KernelSpec& spec, Loop loop, std::vector<InplacePair> inplace = {});
// Output 0 = input 0, same elements in the same order.
MaybeKernel Copy(const KernelSpec& spec);

// An opaque state of these kernels, and whether an input is one.
Format StateFormat(int64_t bytes);
bool IsReferenceState(const Format& format);

double Activate(ActivationType type, double x);
// The derivative of the function above times dy, from its result y.
double ActivateGrad(ActivationType type, double dy, double y);

// Per axis of some shape: how far the next element along it is, in elements.
using Strides = std::array<int64_t, Shape::kMaxRank>;
Strides PlainStrides(const Shape& shape);
// Of `shape` stretched to `to` (axes aligned at the last; `shape` may have fewer): 0 where it is stretched.
Strides BroadcastStrides(const Shape& shape, const Shape& to);
// Of what remains of `shape` when the axes in the mask are reduced: 0 along these.
Strides ReducedStrides(const Shape& shape, uint32_t reduced);

// Calls f(offsets) for every index of `shape` in C order; offsets[k] is where strides[k] lead.
template <size_t N, class F>
void Walk(const Shape& shape, const std::array<Strides, N>& strides, const F& f) {
  const std::span<const int64_t> dims = shape.dims();
  std::array<int64_t, Shape::kMaxRank> index{};
  std::array<int64_t, N> at{};
  for (int64_t left = shape.Elements(); left > 0; --left) {
    f(at);
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      for (size_t k = 0; k < N; ++k) at[k] += strides[k][axis];
      if (++index[axis] < dims[axis]) break;
      for (size_t k = 0; k < N; ++k) at[k] -= strides[k][axis] * dims[axis];
      index[axis] = 0;
    }
  }
}

// Copies a box of elements of `size` bytes; strides in elements.
void CopyBox(const Shape& box, int64_t size, const std::byte* source, const Strides& source_strides, std::byte* target,
             const Strides& target_strides);

}  // namespace bindery::reference
