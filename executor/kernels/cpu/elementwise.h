// What the kernels of elementwise operators are made of, and chains of them (chain.cc): loops over elements that lie
// one after another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "executor/kernel.h"

namespace bindery::cpu {

inline constexpr size_t kMaxOperands = 8, kMaxStretched = 3;  // of a run; of an operator that stretches them
using Operands = std::array<const void*, kMaxOperands>;
// n results, in the calling thread if they are at most kSerialElements. Of each operand the elements lie one after
// another, or one number stands for all. Any n elements of a value give the bits that they give among others.
using Run = std::function<void(const Operands& x, void* y, int64_t n)>;

struct ElementLoop {
  std::function<Run(unsigned still)> run_of;  // the run for operands some of which stand still: bit i for operand i
  bool zero_to_zero = false;                  // of zeros +0, so that padding stays what it is
};
using MaybeLoop = std::optional<ElementLoop>;
using LoopMaker = MaybeLoop (*)(const KernelSpec&);

// y = f(x0, ...): in memory order where operands have y's shape or are one number, else in plain order.
Kernel ElementwiseKernel(const KernelSpec& spec, const ElementLoop& loop);

// The loop of an operator that has one output and whose operands are stretched to its shape, where they are not of it.
// nullopt for all others (AllLoops, elementwise.cc, lists them), and where its kernel in the table of CPUs is another.
MaybeLoop LoopOf(const KernelSpec& spec);
MaybeLoop CastLoop(const KernelSpec& spec);         // copy.cc
MaybeLoop DropoutGradLoop(const KernelSpec& spec);  // dropout.cc

}  // namespace bindery::cpu
