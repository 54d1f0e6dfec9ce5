// What the examples' first lines promise ("Expected: ...").
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tools/program.h"

namespace bindery {
namespace {

// What it prints.
std::string RunExample(const std::string& example) {
  const std::string path =
      std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") + "/examples/" + example;
  const Outcome outcome = Process({path}, std::getenv("TEST_TMPDIR")).Wait(std::chrono::minutes(4));
  EXPECT_EQ(outcome.status, 0) << outcome;
  return outcome.out;
}

// Of the lines that `format` fits, its number.
std::vector<double> Numbers(const std::string& text, const char* format) {
  std::vector<double> numbers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    int epoch = 0;
    double number = 0;
    if (std::sscanf(line.c_str(), format, &epoch, &number) == 2) numbers.push_back(number);
  }
  return numbers;
}

// The number behind a text.
double NumberBehind(const std::string& out, const std::string& text) {
  const size_t at = out.find(text);
  EXPECT_NE(at, std::string::npos) << text << " is not in: " << out;
  return at == std::string::npos ? NAN : std::atof(out.c_str() + at + text.size());
}

// The number that the line of a text begins with.
double NumberOfLine(const std::string& out, const std::string& text) {
  const size_t at = out.find(text);
  EXPECT_NE(at, std::string::npos) << text << " is not in: " << out;
  return at == std::string::npos ? NAN : std::atof(out.c_str() + out.rfind('\n', at) + 1);
}

// Up to a minute of arithmetic, ten times as long under a sanitizer.
class LongExamples : public testing::Test {
 protected:
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  void SetUp() override { GTEST_SKIP() << "it takes too long under a sanitizer"; }
#endif
};

TEST(Examples, Anomalies) {
  const std::string out = RunExample("anomalies");
  EXPECT_GE(NumberOfLine(out, " of the 40 oddest rows are known to be odd"), 36) << out;
}

TEST(Examples, Buckets) {
  const std::string out = RunExample("buckets");
  const std::vector<double> perplexities = Numbers(out, "epoch %d: perplexity %lf");
  ASSERT_EQ(perplexities.size(), 8u) << out;
  EXPECT_GT(perplexities.front(), 2);
  for (size_t i = 3; i < perplexities.size(); ++i) EXPECT_LT(perplexities[i], 1.7);
  EXPECT_NE(out.find("24 networks, one set of parameters"), std::string::npos) << out;
}

TEST_F(LongExamples, CharGpt) {
  const std::string out = RunExample("char_gpt");
  const std::vector<double> losses = Numbers(out, "epoch %d: loss %lf");
  ASSERT_EQ(losses.size(), 8u) << out;
  EXPECT_LT(losses.back(), 0.35);
  const double right = NumberOfLine(out, " sums are true"),
               all = NumberBehind(out, "\n" + std::to_string(static_cast<int>(right)) + " of ");
  EXPECT_GT(all, 10);
  EXPECT_GE(3 * right, all);
}

TEST(Examples, CustomOperator) {
  const std::string out = RunExample("custom_operator");
  double kernels = 1, gradients = 1;
  ASSERT_EQ(std::sscanf(out.c_str(), "kernels differ by %lf gradients differ by %lf", &kernels, &gradients), 2) << out;
  EXPECT_LT(kernels, 1e-6);
  EXPECT_LT(gradients, 1e-6);
  const std::vector<double> accuracies = Numbers(out, "epoch %d: test accuracy %lf");
  ASSERT_EQ(accuracies.size(), 20u) << out;
  EXPECT_GT(accuracies.back(), 0.95);
}

TEST(Examples, GroupByHand) {
  const std::string out = RunExample("group_by_hand");
  const std::vector<double> losses = Numbers(out, "epoch %d: loss %lf");
  ASSERT_EQ(losses.size(), 5u) << out;
  EXPECT_LT(losses.back(), 0.5);
  for (size_t i = 1; i < losses.size(); ++i) EXPECT_LT(losses[i], losses[i - 1]);
  EXPECT_NE(out.find("outputs of the last batch: (100, 10)"), std::string::npos) << out;
}

TEST_F(LongExamples, FromScratch) {
  const std::string out = RunExample("from_scratch");
  std::vector<double> of_one;
  for (const char* devices : {"1", "2", "3"}) {
    const std::string line = devices + std::string(" devices, epoch %d: %*f s, loss ");
    const std::vector<double> losses = Numbers(out, (line + "%lf").c_str());
    ASSERT_EQ(losses.size(), 4u) << out;
    if (of_one.empty()) of_one = losses;
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], of_one[i], 0.02) << devices;
    EXPECT_GT(Numbers(out, (line + "%*f, test accuracy %lf").c_str()).back(), 0.95) << out;
  }
}

TEST_F(LongExamples, Concise) {
  const std::string out = RunExample("concise");
  for (const char* devices : {"1", "2", "3"}) {
    const std::string line = devices + std::string(" devices, epoch %d: %*f s, test accuracy %lf");
    const std::vector<double> accuracies = Numbers(out, line.c_str());
    ASSERT_EQ(accuracies.size(), 4u) << out;
    EXPECT_GT(accuracies.back(), 0.95) << out;
  }
}

TEST_F(LongExamples, ImageClassifier) {
  const std::string out = RunExample("image_classifier");
  EXPECT_NE(out.find("1200 images to train on, 300 to test on, 10 classes"), std::string::npos) << out;
  const std::vector<double> accuracies = Numbers(out, "epoch %d: accuracy %*f in training, %lf in the test");
  ASSERT_EQ(accuracies.size(), 4u) << out;
  EXPECT_GT(accuracies.back(), 0.9) << out;
  EXPECT_GE(NumberOfLine(out, " of 10 new files right"), 9) << out;
}

TEST_F(LongExamples, Lstm) {
  const std::string out = RunExample("lstm");
  const std::vector<double> errors = Numbers(out, "epoch %d: error %lf");
  ASSERT_EQ(errors.size(), 15u) << out;
  EXPECT_LT(2 * errors.back(), NumberBehind(out, "the last hour again: error ")) << out;
  EXPECT_LT(2 * errors.back(), NumberBehind(out, "the day before: error ")) << out;
}

TEST_F(LongExamples, LeNet) {
  const std::string out = RunExample("lenet");
  const std::vector<double> accuracies = Numbers(out, "epoch %d: train accuracy %*f, test accuracy %lf");
  ASSERT_EQ(accuracies.size(), 5u) << out;
  EXPECT_NEAR(accuracies.back(), 0.99, 0.01);
  EXPECT_TRUE(std::filesystem::exists(std::string(std::getenv("TEST_TMPDIR")) + "/lenet.pb"));
}

TEST_F(LongExamples, Modules) {
  const std::string out = RunExample("modules");
  const std::vector<double> losses = Numbers(out, "epoch %d: loss %lf");
  ASSERT_EQ(losses.size(), 6u) << out;
  for (size_t i = 1; i < losses.size(); ++i) EXPECT_LT(losses[i], losses[i - 1]);
  EXPECT_NE(out.find("epoch 2: loss"), std::string::npos);
  EXPECT_NE(out.find(", 2 replicas"), std::string::npos) << out;
  EXPECT_GT(NumberBehind(out, "\naccuracy "), 0.93);
  EXPECT_EQ(NumberBehind(out, "loaded: accuracy "), NumberBehind(out, "\naccuracy "));
  EXPECT_LT(NumberBehind(out, "differs by "), 1e-4);
}

TEST(Examples, OwnStore) {
  const std::string out = RunExample("own_store");
  double accuracy = 0, of_others = 0;
  ASSERT_EQ(std::sscanf(out.c_str(), "test accuracy %lf, of sums in float32 %lf", &accuracy, &of_others), 2) << out;
  EXPECT_GT(accuracy, 0.9);
  EXPECT_NEAR(accuracy, of_others, 0.02);
  int norms = 0;
  for (size_t at = 0; (at = out.find("largest gradient of", at)) != std::string::npos; ++at) ++norms;
  EXPECT_EQ(norms, 6) << out;
  const double difference = NumberBehind(out, "parameters differ by ");
  EXPECT_GT(difference, 0);
  // Of the same training, with sums rounded otherwise: 3e-7 with baseline kernels, 9.4e-3 with those of AVX2.
  EXPECT_LT(difference, 0.05);
}

TEST_F(LongExamples, TwoDevices) {
  const std::string out = RunExample("two_devices");
  const std::vector<double> accuracies = Numbers(out, "epoch %d: accuracy %lf");
  ASSERT_EQ(accuracies.size(), 24u) << out;
  EXPECT_GT(accuracies[11], 0.95);
  EXPECT_NE(out.find("lstm0_l0_weight        cpu:0"), std::string::npos) << out;
  EXPECT_NE(out.find("lstm1_l0_weight        cpu:1"), std::string::npos) << out;
  EXPECT_LT(NumberBehind(out, "losses differ by "), 1e-3);
}

TEST(Examples, Predict) {
  const std::string out = RunExample("predict");
  int right = 0;
  ASSERT_EQ(std::sscanf(out.c_str(), "%d of 1000 digits right", &right), 1) << out;
  EXPECT_GT(right, 900);
}

}  // namespace
}  // namespace bindery
