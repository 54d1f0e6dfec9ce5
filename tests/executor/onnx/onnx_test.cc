// Our kernels against expectations that nobody here wrote: the operator tests of the ONNX project, from Debian's
// libonnx-testdata. Every test is run, on both kernel tables; those that do not pass are listed below with the reason. A
// listed test that passes is an error, and so are fewer passing tests than there were.
#include "symbol/onnx/onnx.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "tests/executor/graph_runner.h"
#include "tests/executor/onnx/onnx_test_data.h"

namespace bindery {
namespace {

const std::string kRoot = "/usr/share/libonnx-testdata/data/";
// May only rise: of the 932 of operators, and of all.
constexpr int kPassingOfOperators = 834, kPassing = 958;

// What cannot pass, and why; each with part of the message with which it must fail.
struct Excluded {
  std::string why, message;
  std::vector<std::string> tests;
};
const Excluded kExcluded[] = {
    {"These files have the upper half of each float, not the nearest bfloat16.",
     "0.48046875 instead of 0.478515625",
     {"test_cast_FLOAT_to_BFLOAT16", "test_castlike_FLOAT_to_BFLOAT16", "test_castlike_FLOAT_to_BFLOAT16_expanded"}},
    {"Strings.",
     "element type 8 of ONNX",
     {"test_cast_FLOAT_to_STRING", "test_cast_STRING_to_FLOAT", "test_castlike_FLOAT_to_STRING",
      "test_castlike_FLOAT_to_STRING_expanded", "test_castlike_STRING_to_FLOAT",
      "test_castlike_STRING_to_FLOAT_expanded", "test_strnorm_model_monday_casesensintive_lower",
      "test_strnorm_model_monday_casesensintive_nochangecase", "test_strnorm_model_monday_casesensintive_upper",
      "test_strnorm_model_monday_empty_output", "test_strnorm_model_monday_insensintive_upper_twodim",
      "test_strnorm_model_nostopwords_nochangecase", "test_strnormalizer_export_monday_casesensintive_lower",
      "test_strnormalizer_export_monday_casesensintive_nochangecase",
      "test_strnormalizer_export_monday_casesensintive_upper", "test_strnormalizer_export_monday_empty_output",
      "test_strnormalizer_export_monday_insensintive_upper_twodim", "test_strnormalizer_nostopwords_nochangecase"}},
    {"Words are counted for these.",
     "TfIdfVectorizer (",
     {"test_tfidfvectorizer_tf_batch_onlybigrams_skip0", "test_tfidfvectorizer_tf_batch_onlybigrams_skip5",
      "test_tfidfvectorizer_tf_batch_uniandbigrams_skip5", "test_tfidfvectorizer_tf_only_bigrams_skip0",
      "test_tfidfvectorizer_tf_onlybigrams_levelempty", "test_tfidfvectorizer_tf_onlybigrams_skip5",
      "test_tfidfvectorizer_tf_uniandbigrams_skip5"}},
    {"Sequences and optionals, as inputs or outputs.",
     "is not a tensor",
     {"test_identity_opt",
      "test_identity_sequence",
      "test_if_opt",
      "test_if_seq",
      "test_loop13_seq",
      "test_loop16_seq_none",
      "test_optional_get_element",
      "test_optional_get_element_sequence",
      "test_optional_has_element",
      "test_optional_has_element_empty",
      "test_sequence_insert_at_back",
      "test_sequence_insert_at_front",
      "test_sequence_map_add_1_sequence_1_tensor",
      "test_sequence_map_add_1_sequence_1_tensor_expanded",
      "test_sequence_map_add_2_sequences",
      "test_sequence_map_add_2_sequences_expanded",
      "test_sequence_map_extract_shapes",
      "test_sequence_map_extract_shapes_expanded",
      "test_sequence_map_identity_1_sequence",
      "test_sequence_map_identity_1_sequence_1_tensor",
      "test_sequence_map_identity_1_sequence_1_tensor_expanded",
      "test_sequence_map_identity_1_sequence_expanded",
      "test_sequence_map_identity_2_sequences",
      "test_sequence_map_identity_2_sequences_expanded"}},
    {"Sequences within the graph.",
     "Sequence",
     {"test_sequence_model1", "test_sequence_model2", "test_sequence_model3", "test_sequence_model4",
      "test_sequence_model5", "test_sequence_model6", "test_sequence_model7", "test_sequence_model8"}},
    {"NumPy's random numbers.",
     "reference kernels, output 0, element",
     {"test_training_dropout", "test_training_dropout_default", "test_training_dropout_default_mask",
      "test_training_dropout_mask", "test_bernoulli", "test_bernoulli_double", "test_bernoulli_double_expanded",
      "test_bernoulli_expanded", "test_bernoulli_seed", "test_bernoulli_seed_expanded"}},
    {"A shape that is computed from what is fed.",
     "have to follow from constants",
     {"test_blackmanwindow_expanded", "test_blackmanwindow_symmetric_expanded", "test_hammingwindow_expanded",
      "test_hammingwindow_symmetric_expanded", "test_hannwindow_expanded", "test_hannwindow_symmetric_expanded"}},
    {"The number of steps is computed from what is fed.",
     "is computed from data or the batch",
     {"test_range_float_type_positive_delta_expanded", "test_range_int32_type_negative_delta_expanded"}},
    {"The shape depends on the data.",
     "Compress (",
     {"test_compress_0", "test_compress_1", "test_compress_default_axis", "test_compress_negative_axis"}},
    {"The shape depends on the data.", "NonZero (", {"test_nonzero_example"}},
    {"The shape depends on the data.",
     "NonMaxSuppression (",
     {"test_nonmaxsuppression_center_point_box_format", "test_nonmaxsuppression_flipped_coordinates",
      "test_nonmaxsuppression_identical_boxes", "test_nonmaxsuppression_limit_output_size",
      "test_nonmaxsuppression_single_box", "test_nonmaxsuppression_suppress_by_IOU",
      "test_nonmaxsuppression_suppress_by_IOU_and_scores", "test_nonmaxsuppression_two_batches",
      "test_nonmaxsuppression_two_classes"}},
    {"The shape depends on the data.",
     "Unique (",
     {"test_unique_not_sorted_without_axis", "test_unique_sorted_with_axis", "test_unique_sorted_with_axis_3d",
      "test_unique_sorted_with_negative_axis", "test_unique_sorted_without_axis"}},
    {"An operator that we do not have: sampling at places that are computed.",
     "RoiAlign (",
     {"test_roialign_aligned_false", "test_roialign_aligned_true"}},
    {"Operators that we do not have: of signals.", "DFT (", {"test_dft", "test_dft_axis", "test_dft_inverse"}},
    {"Operators that we do not have: of signals.", "STFT (", {"test_stft", "test_stft_with_window"}},
    {"Operators that we do not have: of signals.", "MelWeightMatrix (", {"test_melweightmatrix"}},
    {"Another domain: training within ONNX, which was given up.",
     "ai.onnx.preview.training.",
     {"test_adagrad", "test_adagrad_multiple", "test_adam", "test_adam_multiple", "test_gradient_of_add",
      "test_gradient_of_add_and_mul", "test_momentum", "test_momentum_multiple", "test_nesterov_momentum"}},
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
  std::map<std::string, const Excluded*> excluded;
  for (const Excluded& group : kExcluded) {
    for (const std::string& test : group.tests) EXPECT_TRUE(excluded.emplace(test, &group).second) << test;
  }
  int passed = 0, passed_of_operators = 0;
  for (const std::string& folder : TestFolders()) {
    const std::string name = std::filesystem::path(folder).filename();
    const std::string reason = ReasonToFail(folder);
    if (const auto found = excluded.find(name); found != excluded.end()) {
      EXPECT_NE(reason, "") << name << " passes: take it off the list";
      EXPECT_NE(reason.find(found->second->message), std::string::npos) << name << " fails otherwise: " << reason;
      excluded.erase(found);
    } else {
      EXPECT_EQ(reason, "") << name;
      passed += reason.empty();
      passed_of_operators += reason.empty() && folder.starts_with(kRoot + "node/");
    }
  }
  for (const auto& [name, group] : excluded) ADD_FAILURE() << name << " is listed, but there is no such test";
  EXPECT_EQ(passed, kPassing) << "if more pass than before, raise the number in this file";
  EXPECT_EQ(passed_of_operators, kPassingOfOperators);
}

}  // namespace
}  // namespace bindery
