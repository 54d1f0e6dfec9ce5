// What docs/adding_an_operator.md shows compiles, and its Limit is an operator: the page's kernel and gradient pass the
// page's case.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "executor/custom_operator.h"
#include "executor/kernel_table.h"
#include "symbol/ops.h"
#include "tests/executor/check_operator.h"

namespace bindery {
namespace page_adding_an_operator {
namespace {

using rule::Value;

// What the short form of a program's own operator takes from the whole one.
struct RadialAttrs {
  int64_t num_centers = 1;
  static FieldList Fields() { return {{"num_centers", &RadialAttrs::num_centers, "functions"}}; }
};
void Infer(InferContext& /*c*/) {}
std::vector<Symbol> Gradient(const GradientContext& /*g*/) { return {}; }
MaybeKernel MakeReference(const KernelSpec& /*spec*/) { return std::nullopt; }
MaybeKernel MakeFast(const KernelSpec& /*spec*/) { return std::nullopt; }

std::vector<OperatorCase> cases;

}  // namespace
}  // namespace page_adding_an_operator

#include "tests/docs/fragments/adding_an_operator.inc"

namespace page_adding_an_operator {
namespace {

TEST(AddingAnOperator, TheOperatorOfThePage) {
  const KernelEntry kernel = LimitKernels()[0];
  AddReferenceKernel(kernel.op, kernel.make);
  AddOp(LimitOp());
  RunAll();
  EXPECT_EQ(cases.size(), 1u);
  CheckOperators(cases);
}

}  // namespace
}  // namespace page_adding_an_operator
}  // namespace bindery
