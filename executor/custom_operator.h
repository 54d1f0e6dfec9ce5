// What a program needs to compute operators of its own. Such an operator is described by an OpDef, as ours are, and
// added by AddOp (symbol/op_def.h; what rules are made of is in symbol/ops/rules.h). One that is made of others
// (symbol/compose.h) is complete then; else it has kernels:
//
//   AddReferenceKernel("Radial", MakeReference);   // the formula in double, for every type and every batch
//   AddKernel("Radial", MakeFast);                 // executor/kernel.h; if the former is too slow
//
// A maker of the former returns InDouble(spec, [...](const Tensors& t) { ... t.in[0][i] ... t.out[0][i] ... }); one of
// the latter usually WithLoop(PlainKernel(spec, "name"), [...](const Arguments& a) { ... a.in<float>(0) ... }), whose
// loop is shared out by ParallelFor (engine/team.h). examples/custom_operator.cc is a whole one.
#pragma once

#include <functional>
#include <string>

#include "engine/team.h"
#include "executor/kernel.h"
#include "executor/kernels/cpu/util.h"
#include "executor/kernels/reference/util.h"
#include "symbol/compose.h"
#include "symbol/op_def.h"
#include "symbol/ops/rules.h"

namespace bindery {

using cpu::Arguments, cpu::PlainKernel, cpu::WithLoop;
using reference::InDouble, reference::Tensors;

// The kernel that is made for CPUs where AddKernel's is not asked (KernelPolicy::kReference, values without elements)
// or declines, and for simulated devices that have none of their own. So AddKernel's may take what it is fast at and
// leave the rest, and EvaluateNode (executor/evaluate.h) computes both, to be compared. Thread safe; throws Error if
// there is one.
void AddReferenceKernel(const std::string& op, std::function<MaybeKernel(const KernelSpec&)> make);

}  // namespace bindery
