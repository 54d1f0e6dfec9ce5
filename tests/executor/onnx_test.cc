// Our kernels against expectations that nobody here wrote: the operator tests of the ONNX project, from Debian's
// libonnx-testdata. Every test whose operators we have is run, on both kernel tables, unless it is listed below with
// the reason; a listed test that passes is an error, and so are fewer passing tests than there were.
#include "symbol/onnx/onnx.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "tests/executor/graph_runner.h"
#include "tests/executor/onnx_test_data.h"

namespace bindery {
namespace {

const std::string kRoot = "/usr/share/libonnx-testdata/data/";
// May only rise.
constexpr int kPassing = 922;

// Name -> part of the message with which it must fail.
const std::map<std::string, std::string> kExcluded = {
    // These files have the upper half of each float, not the nearest bfloat16.
    {"test_cast_FLOAT_to_BFLOAT16", "0.48046875 instead of 0.478515625"},
    {"test_castlike_FLOAT_to_BFLOAT16", "0.48046875 instead of 0.478515625"},
    {"test_castlike_FLOAT_to_BFLOAT16_expanded", "0.48046875 instead of 0.478515625"},
    // Strings.
    {"test_cast_FLOAT_to_STRING", "element type 8 of ONNX"},
    {"test_cast_STRING_to_FLOAT", "element type 8 of ONNX"},
    {"test_castlike_FLOAT_to_STRING", "element type 8 of ONNX"},
    {"test_castlike_FLOAT_to_STRING_expanded", "element type 8 of ONNX"},
    {"test_castlike_STRING_to_FLOAT", "element type 8 of ONNX"},
    {"test_castlike_STRING_to_FLOAT_expanded", "element type 8 of ONNX"},
    {"test_identity_opt", "is not a tensor"},
    {"test_identity_sequence", "is not a tensor"},
    // The winners, in ONNX' form.
    {"test_maxpool_with_argmax_2d_precomputed_pads", "only the first output can be had"},
    {"test_maxpool_with_argmax_2d_precomputed_strides", "only the first output can be had"},
    // NumPy's random numbers.
    {"test_training_dropout_default_mask", "reference kernels, output 0, element"},
    {"test_training_dropout_mask", "reference kernels, output 0, element"},
    {"test_training_dropout", "reference kernels, output 0, element"},
    {"test_training_dropout_default", "reference kernels, output 0, element"},
    {"test_bernoulli", "reference kernels, output 0, element"},
    {"test_bernoulli_double", "reference kernels, output 0, element"},
    {"test_bernoulli_double_expanded", "reference kernels, output 0, element"},
    {"test_bernoulli_expanded", "reference kernels, output 0, element"},
    {"test_bernoulli_seed", "reference kernels, output 0, element"},
    {"test_bernoulli_seed_expanded", "reference kernels, output 0, element"},
    // A quotient that float32 rounds to a half.
    {"test_dynamicquantizelinear_expanded", "178 instead of 179"},
    // A shape that is computed from what is fed.
    {"test_blackmanwindow_expanded", "the numbers that it takes have to follow from constants"},
    {"test_blackmanwindow_symmetric_expanded", "the numbers that it takes have to follow from constants"},
    {"test_hammingwindow_expanded", "the numbers that it takes have to follow from constants"},
    {"test_hammingwindow_symmetric_expanded", "the numbers that it takes have to follow from constants"},
    {"test_hannwindow_expanded", "the numbers that it takes have to follow from constants"},
    {"test_hannwindow_symmetric_expanded", "the numbers that it takes have to follow from constants"},
    {"test_einsum_batch_diagonal", "a diagonal, is not provided"},
};

// As NumPy's assert_allclose, with the tolerances of ONNX' own runner; integers and booleans exactly.
void ExpectClose(const HostTensor& actual, const HostTensor& expected, const std::string& what) {
  EXPECT_EQ(actual.dtype(), expected.dtype()) << what;
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  const double rtol = IsFloat(expected.dtype()) ? 1e-3 : 0, atol = IsFloat(expected.dtype()) ? 1e-7 : 0;
  for (int64_t i = 0; i < actual.elements(); ++i) {
    const double a = actual.At(i), e = expected.At(i);
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    ASSERT_LE(std::fabs(a - e), atol + rtol * std::fabs(e))
        << what << ", element " << i << ": " << a << " instead of " << e;
  }
}

void RunOnnxTest(const std::string& folder) {
  const OnnxTest test = ReadOnnxTest(folder);
  Model model = ParseOnnx(test.model, folder, "", {.known = test.feeds});
  HostTensorMap values = std::move(model.params);
  values.merge(model.aux);
  for (const std::string& name : model.symbol.ListInputs()) {
    if (const auto fed = test.feeds.find(name); fed != test.feeds.end()) values.insert(*fed);
  }
  for (KernelPolicy policy : {KernelPolicy::kReference, KernelPolicy::kFast}) {
    const RunResult result = RunGraph(model.symbol, values, {.mode = test.mode, .policy = policy});
    for (size_t i = 0; i < test.expected.size(); ++i) {
      ExpectClose(result.outputs[i], test.expected[i],
                  fmt::format("{} kernels, output {}", policy == KernelPolicy::kFast ? "fast" : "reference", i));
    }
  }
}

std::vector<std::string> TestFolders() {
  std::vector<std::string> folders;
  for (const char* kind : {"node", "simple", "pytorch-operator", "pytorch-converted"}) {
    for (const auto& entry : std::filesystem::directory_iterator(kRoot + kind)) folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  return folders;
}

// Failures recorded by gtest or thrown; "" if the test passes.
std::string ReasonToFail(const std::string& folder) {
  testing::TestPartResultArray results;
  std::string reason;
  {
    testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    try {
      RunOnnxTest(folder);
    } catch (const std::exception& e) {
      reason = e.what();
    }
  }
  for (int i = 0; i < results.size(); ++i) reason += std::string(results.GetTestPartResult(i).message()) + "\n";
  return reason;
}

TEST(Onnx, OperatorTests) {
  ASSERT_TRUE(std::filesystem::exists(kRoot)) << kRoot << " is missing: install Debian's package libonnx-testdata";
  const std::map<std::string, std::vector<int>> known = OnnxImports();
  std::set<std::string> not_met;
  for (const auto& [name, reason] : kExcluded) not_met.insert(name);
  int passed = 0;
  for (const std::string& folder : TestFolders()) {
    const std::set<std::string> operators = OnnxOperators(folder);
    if (!std::ranges::all_of(operators, [&](const std::string& op) { return known.contains(op); })) continue;
    const std::string name = std::filesystem::path(folder).filename();
    const std::string reason = ReasonToFail(folder);
    not_met.erase(name);
    if (kExcluded.contains(name)) {
      EXPECT_NE(reason, "") << name << " passes: take it off the list";
      EXPECT_NE(reason.find(kExcluded.at(name)), std::string::npos) << name << " fails otherwise: " << reason;
    } else {
      EXPECT_EQ(reason, "") << name;
      passed += reason.empty();
    }
  }
  for (const std::string& name : not_met) ADD_FAILURE() << name << " is listed, but there is no such test";
  EXPECT_EQ(passed, kPassing) << "if more pass than before, raise the number in this file";
}

}  // namespace
}  // namespace bindery
