// The checker must find what it looks for: kernels and definitions that are wrong in one way each.
#include "tests/executor/check_operator.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "symbol/op_def.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/rules.h"
#include "tests/executor/graph_runner.h"

namespace bindery {
namespace {

// y = 2 x, with room for mistakes.
struct Mistakes {
  double gradient = 2;  // what the gradient rule says
  bool writes_beyond = false;
  bool changes_input = false;
  bool leaves_element = false;  // does not write the last one
  bool dirties_padding = false;
  bool wrong_in_place = false;  // declared, but reads what it wrote
  bool forgets_something_between_runs = false;
  double factor = 2;
  double factor_of_last = 2;  // of the last element
};

template <class T>
T Times(double factor, T x) {
  return StoreDouble<T>(factor * LoadDouble(x));
}

template <class T>
void Double(const Mistakes& m, T* x, T* y, int64_t n, int* runs) {
  for (int64_t i = 0; i < n; ++i) {
    if (m.wrong_in_place) y[i] = T{};
    y[i] = Times(m.factor, x[i]);
  }
  if (m.factor_of_last != 2) y[n - 1] = Times(m.factor_of_last, x[n - 1]);
  if (m.writes_beyond) y[n] = StoreDouble<T>(1);
  if (m.changes_input) x[0] = StoreDouble<T>(LoadDouble(x[0]) + 1);
  if (m.forgets_something_between_runs) y[0] = StoreDouble<T>(LoadDouble(y[0]) + (*runs)++);
}

template <class T>
std::optional<Kernel> MakeDouble(const KernelSpec& spec, const Mistakes& m) {
  Kernel kernel;
  kernel.implementation = "loop";
  const Format format = m.dirties_padding ? FormatOf(Layout::kBlocked8, spec.inputs[0].shape) : Format::Plain();
  kernel.input_formats = {format};
  kernel.output_formats = {format};
  const int64_t n = StorageElements(format, spec.inputs[0].shape);
  if (m.wrong_in_place) kernel.inplace = {{0, 0}};
  kernel.bind = [=](const KernelArgs& args) -> Call {
    auto* x = static_cast<T*>(args.inputs[0]);
    auto* y = static_cast<T*>(args.outputs[0]);
    return [=, runs = std::make_shared<int>(0)] {
      if (n == 0) return;
      Double(m, x, y, m.leaves_element ? n - 1 : n, runs.get());
      if (m.dirties_padding) y[n - 1] = StoreDouble<T>(1);
    };
  };
  return kernel;
}

// A case over a new operator that makes these mistakes.
OperatorCase CaseWith(const std::string& name, const Mistakes& mistakes, const Shape& shape = {2, 3}) {
  AddOp({.name = name,
         .doc = "y = 2 x",
         .infer = rule::Like(0),
         .gradient = [=](const GradientContext& g) -> std::vector<Symbol> {
           if (mistakes.gradient == 0) return {};
           return {g.output_grad(0) * mistakes.gradient};
         }});
  AddKernel(name, [=](const KernelSpec& spec) -> std::optional<Kernel> {
    switch (spec.inputs[0].dtype) {
      case DType::kFloat32: return MakeDouble<float>(spec, mistakes);
      case DType::kBFloat16: return MakeDouble<bfloat16>(spec, mistakes);
      case DType::kFloat16: return MakeDouble<float16>(spec, mistakes);
      default: return MakeDouble<double>(spec, {});  // the truth
    }
  });
  return {.name = name,
          .symbol = Apply(FindOp(name), {}, {Variable("x")}, "y"),
          .inputs = {{"x", AwayFromZero(shape)}},
          .test_dtypes = {DType::kFloat32}};
}

// The failures that checking a case records.
std::string FailuresOf(const OperatorCase& c) {
  testing::TestPartResultArray results;
  {
    testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    CheckOperators({c});
  }
  std::string text;
  for (int i = 0; i < results.size(); ++i) text += results.GetTestPartResult(i).message() + std::string("\n");
  return text;
}

void ExpectFound(const OperatorCase& c, const std::string& message) {
  EXPECT_NE(FailuresOf(c).find(message), std::string::npos) << FailuresOf(c);
}

TEST(CheckOperator, PassesWhatIsRight) { EXPECT_EQ(FailuresOf(CaseWith("Double", {})), ""); }

TEST(CheckOperator, FindsWrongResults) {
  ExpectFound(CaseWith("DoubleWrong", {.factor_of_last = 2.00001}), "y_output (2, 3), element 5");
}

// A sum of many terms is no excuse: it is taken in float, and rounded to the dtype once.
TEST(CheckOperator, FindsWrongResultsOfNarrowTypes) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (double factor : {0.0, 1.8, 2.2}) {
      OperatorCase c = CaseWith(fmt::format("Double{}{}", ToString(dtype), factor), {.factor = factor});
      c.test_dtypes = {dtype};
      c.terms = 5000;
      c.tolerance = 4;
      c.magnitude = 1;
      ExpectFound(c, "y_output (2, 3)");
    }
    OperatorCase right = CaseWith(fmt::format("Double{}", ToString(dtype)), {});
    right.test_dtypes = {dtype};
    EXPECT_EQ(FailuresOf(right), "");
  }
}

TEST(CheckOperator, FindsWrongGradients) {
  ExpectFound(CaseWith("DoubleWrongGradient", {.gradient = 1.9999}), "gradient of x against finite differences");
  ExpectFound(CaseWith("DoubleNoGradient", {.gradient = 1e-9}), "gradient of x against finite differences");
}

TEST(CheckOperator, FindsWritesOutside) {
  ExpectFound(CaseWith("DoubleBeyond", {.writes_beyond = true}), "wrote outside of output 0");
}

TEST(CheckOperator, FindsChangedInputs) {
  ExpectFound(CaseWith("DoubleChangesInput", {.changes_input = true}), "changed input 0");
}

TEST(CheckOperator, FindsElementsNotWritten) {
  ExpectFound(CaseWith("DoubleLeavesElement", {.leaves_element = true}), "gave other bits for output 0 when run again");
}

TEST(CheckOperator, FindsPaddingThatIsNotZero) {
  ExpectFound(CaseWith("DoubleDirty", {.dirties_padding = true}, {2, 3, 2, 2}), "left something in the padding");
}

TEST(CheckOperator, FindsWrongInPlace) {
  ExpectFound(CaseWith("DoubleInPlace", {.wrong_in_place = true}),
              "in place (input 0, output 0) gave another output 0");
}

TEST(CheckOperator, FindsResultsThatChange) {
  ExpectFound(CaseWith("DoubleForgets", {.forgets_something_between_runs = true}), "when run again");
}

TEST(CheckOperator, FindsShapesThatShouldFail) {
  OperatorCase c = CaseWith("DoubleAnyShape", {});
  c.wrong_shapes = {{{"x", {2}}}};
  ExpectFound(c, "with x (2)");
}

TEST(CheckOperator, FindsASecondOpinionThatDiffers) {
  OperatorCase c = CaseWith("DoubleOpinion", {});
  c.forward = [](const HostTensorMap& in) -> std::vector<HostTensor> { return {in.at("x")}; };
  ExpectFound(c, "the reference kernels");
}

}  // namespace
}  // namespace bindery
