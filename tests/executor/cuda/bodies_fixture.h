// Bodies of kernels for GPUs beside the reference kernels, in builds with and without CUDA. Tests fill in the
// arguments: the makers need its headers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "executor/kernels/cuda/args.h"
#include "symbol/op_def.h"
#include "tests/engine/cuda/cpu_block.h"
#include "tests/executor/graph_runner.h"
#include "tests/executor/values.h"

namespace bindery::cuda {

inline constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16};

// What floats of a type are computed with, and what statistics of them are kept in.
inline DType ComputedWith(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

inline Source From(const HostTensor& tensor) { return {tensor.raw(), tensor.dtype()}; }
Source From(HostTensor&& tensor) = delete;
inline Target To(HostTensor* tensor) { return {tensor->raw(), tensor->dtype()}; }

// The first outputs of an operator's reference kernel. Its node is "y", and its inputs are "x0", "x1" ...
inline std::vector<HostTensor> Reference(const OpDef& op, const AnyAttrs& attrs, const std::vector<HostTensor>& inputs,
                                         size_t outputs = 1, RunOptions options = {}) {
  HostTensorMap values;
  std::vector<Symbol> variables;
  for (const HostTensor& input : inputs) {
    variables.push_back(Variable("x" + std::to_string(variables.size())));
    values[variables.back().name()] = input;
  }
  std::vector<Symbol> symbols = ApplyAll(op, attrs, variables, "y");
  symbols.resize(outputs);
  options.policy = KernelPolicy::kReference;
  options.watch = false;
  return RunGraph(Group(symbols), values, options).outputs;
}

// What rounding may cost, of sums of so many terms in float or double.
inline double Tolerance(const HostTensor& expected, double terms) {
  if (!IsFloat(expected.dtype())) return 0;
  return (8 * EpsilonOf(ComputedWith(expected.dtype())) * std::sqrt(terms) + EpsilonOf(expected.dtype())) *
         std::max(MaxAbs(expected), terms > 1 ? 1.0 : 0.0);
}

// run(targets, blocks, threads) writes all of what is expected, by numbers of blocks and threads that divide nothing.
template <class Run>
void ExpectWrites(const std::vector<HostTensor>& expected, double terms, const Run& run) {
  struct Launch {
    int blocks, threads;
  };
  for (const auto [blocks, threads] : {Launch{3, 7}, Launch{2, 70}}) {
    std::vector<HostTensor> written = expected;
    std::vector<Target> targets;
    for (HostTensor& tensor : written) {
      if (tensor.bytes() > 0) std::memset(tensor.raw(), 0x7B, static_cast<size_t>(tensor.bytes()));
      targets.push_back(To(&tensor));
    }
    run(targets, blocks, threads);
    for (size_t o = 0; o < expected.size(); ++o) {
      ExpectNear(written[o], expected[o], Tolerance(expected[o], terms),
                 fmt::format("output {} of {} by {} x {} threads", o, expected[o].dtype(), blocks, threads));
    }
  }
}

// The same of kernels that have one output, `out`.
template <class Args>
void ExpectOut(Args args, const HostTensor& expected, double terms = 1) {
  ExpectWrites({expected}, terms, [&](const std::vector<Target>& out, int blocks, int threads) {
    args.out = out[0];
    RunOnCpu(args, blocks, threads);
  });
}
// And of rows, each by a block and by a thread.
template <class Args>
void ExpectRowsOut(Args args, const HostTensor& expected, double terms) {
  for (const int by_block : {0, 1}) {
    args.rows.by_block = by_block;
    ExpectOut(args, expected, terms);
  }
}

// A grid and the places of a plain tensor of a shape in it, stretched to it.
inline Grid GridOver(const Shape& shape) {
  Grid grid{.rank = shape.rank(), .n = shape.Elements()};
  std::ranges::copy(shape, grid.extents);
  return grid;
}
inline Strides StridesIn(const Shape& shape, const Shape& of) {
  Strides strides;
  const int more = shape.rank() - of.rank();
  for (int axis = 0; axis < of.rank(); ++axis) strides.of[more + axis] = of[axis] == 1 ? 0 : of.CountFrom(axis + 1);
  return strides;
}

// Of units of 1 to 8 bytes.
inline constexpr DType kSizes[] = {DType::kInt8, DType::kBFloat16, DType::kFloat32, DType::kFloat64};
inline const Shape kShape = {4, 5, 3};

inline int32_t UnitOf(const HostTensor& tensor) { return static_cast<int32_t>(SizeOf(tensor.dtype())); }

// The same of kernels whose output is an address.
template <class Args>
void ExpectAddressed(Args args, const HostTensor& expected) {
  ExpectWrites({expected}, 1, [&](const std::vector<Target>& out, int blocks, int threads) {
    args.out = static_cast<decltype(args.out)>(out[0].data);
    RunOnCpu(args, blocks, threads);
  });
}

}  // namespace bindery::cuda
