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

Outcome RunExample(const std::string& example) {
  const std::string path =
      std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") + "/examples/" + example;
  return Process({path}, std::getenv("TEST_TMPDIR")).Wait(std::chrono::minutes(4));
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

TEST(Examples, Anomalies) {
  const Outcome outcome = RunExample("anomalies");
  EXPECT_EQ(outcome.status, 0) << outcome;
  int found = 0;
  const size_t at = outcome.out.find(" of the 40 oddest rows are known to be odd");
  ASSERT_NE(at, std::string::npos) << outcome;
  ASSERT_EQ(std::sscanf(outcome.out.c_str() + outcome.out.rfind('\n', at) + 1, "%d", &found), 1) << outcome;
  EXPECT_GE(found, 36) << outcome;
}

TEST(Examples, Buckets) {
  const Outcome outcome = RunExample("buckets");
  EXPECT_EQ(outcome.status, 0) << outcome;
  const std::vector<double> perplexities = Numbers(outcome.out, "epoch %d: perplexity %lf");
  ASSERT_EQ(perplexities.size(), 8u) << outcome;
  EXPECT_GT(perplexities.front(), 2);
  for (size_t i = 3; i < perplexities.size(); ++i) EXPECT_LT(perplexities[i], 1.7);
  EXPECT_NE(outcome.out.find("24 networks, one set of parameters"), std::string::npos) << outcome;
}

TEST(Examples, CharGpt) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "half a minute of arithmetic, ten times as long under a sanitizer";
#endif
  const Outcome outcome = RunExample("char_gpt");
  EXPECT_EQ(outcome.status, 0) << outcome;
  const std::vector<double> losses = Numbers(outcome.out, "epoch %d: loss %lf");
  ASSERT_EQ(losses.size(), 8u) << outcome;
  EXPECT_LT(losses.back(), 0.35);
  int right = 0, all = 0;
  const size_t at = outcome.out.find(" sums are true");
  ASSERT_NE(at, std::string::npos) << outcome;
  ASSERT_EQ(std::sscanf(outcome.out.c_str() + outcome.out.rfind('\n', at) + 1, "%d of %d", &right, &all), 2) << outcome;
  EXPECT_GT(all, 10);
  EXPECT_GE(3 * right, all);
}

TEST(Examples, CustomOperator) {
  const Outcome outcome = RunExample("custom_operator");
  EXPECT_EQ(outcome.status, 0) << outcome;
  double kernels = 1, gradients = 1;
  ASSERT_EQ(std::sscanf(outcome.out.c_str(), "kernels differ by %lf gradients differ by %lf", &kernels, &gradients), 2)
      << outcome;
  EXPECT_LT(kernels, 1e-6);
  EXPECT_LT(gradients, 1e-6);
  const std::vector<double> accuracies = Numbers(outcome.out, "epoch %d: test accuracy %lf");
  ASSERT_EQ(accuracies.size(), 20u) << outcome;
  EXPECT_GT(accuracies.back(), 0.95);
}

TEST(Examples, GroupByHand) {
  const Outcome outcome = RunExample("group_by_hand");
  EXPECT_EQ(outcome.status, 0) << outcome;
  const std::vector<double> losses = Numbers(outcome.out, "epoch %d: loss %lf");
  ASSERT_EQ(losses.size(), 5u) << outcome;
  EXPECT_LT(losses.back(), 0.5);
  for (size_t i = 1; i < losses.size(); ++i) EXPECT_LT(losses[i], losses[i - 1]);
  EXPECT_NE(outcome.out.find("outputs of the last batch: (100, 10)"), std::string::npos) << outcome;
}

TEST(Examples, FromScratch) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "half a minute of arithmetic, ten times as long under a sanitizer";
#endif
  const Outcome outcome = RunExample("from_scratch");
  EXPECT_EQ(outcome.status, 0) << outcome;
  std::vector<double> of_one;
  for (const char* devices : {"1", "2", "3"}) {
    const std::string line = devices + std::string(" devices, epoch %d: %*f s, loss ");
    const std::vector<double> losses = Numbers(outcome.out, (line + "%lf").c_str());
    ASSERT_EQ(losses.size(), 4u) << outcome;
    if (of_one.empty()) of_one = losses;
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], of_one[i], 0.02) << devices;
    EXPECT_GT(Numbers(outcome.out, (line + "%*f, test accuracy %lf").c_str()).back(), 0.95) << outcome;
  }
}

TEST(Examples, Concise) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "half a minute of arithmetic, ten times as long under a sanitizer";
#endif
  const Outcome outcome = RunExample("concise");
  EXPECT_EQ(outcome.status, 0) << outcome;
  for (const char* devices : {"1", "2", "3"}) {
    const std::string line = devices + std::string(" devices, epoch %d: %*f s, test accuracy %lf");
    const std::vector<double> accuracies = Numbers(outcome.out, line.c_str());
    ASSERT_EQ(accuracies.size(), 4u) << outcome;
    EXPECT_GT(accuracies.back(), 0.95) << outcome;
  }
}

TEST(Examples, ImageClassifier) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a minute of arithmetic, ten times as long under a sanitizer";
#endif
  const Outcome outcome = RunExample("image_classifier");
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_NE(outcome.out.find("1200 images to train on, 300 to test on, 10 classes"), std::string::npos) << outcome;
  const std::vector<double> accuracies = Numbers(outcome.out, "epoch %d: accuracy %*f in training, %lf in the test");
  ASSERT_EQ(accuracies.size(), 4u) << outcome;
  EXPECT_GT(accuracies.back(), 0.9) << outcome;
  int right = 0;
  const size_t at = outcome.out.find(" of 10 new files right");
  ASSERT_NE(at, std::string::npos) << outcome;
  ASSERT_EQ(std::sscanf(outcome.out.c_str() + outcome.out.rfind('\n', at) + 1, "%d", &right), 1) << outcome;
  EXPECT_GE(right, 9) << outcome;
}

TEST(Examples, Lstm) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "twenty seconds of arithmetic, ten times as long under a sanitizer";
#endif
  const Outcome outcome = RunExample("lstm");
  EXPECT_EQ(outcome.status, 0) << outcome;
  const std::vector<double> errors = Numbers(outcome.out, "epoch %d: error %lf");
  ASSERT_EQ(errors.size(), 15u) << outcome;
  EXPECT_LT(2 * errors.back(), NumberBehind(outcome.out, "the last hour again: error ")) << outcome;
  EXPECT_LT(2 * errors.back(), NumberBehind(outcome.out, "the day before: error ")) << outcome;
}

TEST(Examples, LeNet) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "half a minute of arithmetic, ten times as long under a sanitizer";
#endif
  const Outcome outcome = RunExample("lenet");
  EXPECT_EQ(outcome.status, 0) << outcome;
  const std::vector<double> accuracies = Numbers(outcome.out, "epoch %d: train accuracy %*f, test accuracy %lf");
  ASSERT_EQ(accuracies.size(), 5u) << outcome;
  EXPECT_NEAR(accuracies.back(), 0.99, 0.01);
  EXPECT_TRUE(std::filesystem::exists(std::string(std::getenv("TEST_TMPDIR")) + "/lenet.pb"));
}

TEST(Examples, Modules) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "seconds of arithmetic, ten times as long under a sanitizer";
#endif
  const Outcome outcome = RunExample("modules");
  EXPECT_EQ(outcome.status, 0) << outcome;
  const std::vector<double> losses = Numbers(outcome.out, "epoch %d: loss %lf");
  ASSERT_EQ(losses.size(), 6u) << outcome;
  for (size_t i = 1; i < losses.size(); ++i) EXPECT_LT(losses[i], losses[i - 1]);
  EXPECT_NE(outcome.out.find("epoch 2: loss"), std::string::npos);
  EXPECT_NE(outcome.out.find(", 2 replicas"), std::string::npos) << outcome;
  const auto number_behind = [&](const std::string& text) {
    const size_t at = outcome.out.find(text);
    EXPECT_NE(at, std::string::npos) << text << outcome;
    return at == std::string::npos ? -1 : std::atof(outcome.out.c_str() + at + text.size());
  };
  EXPECT_GT(number_behind("\naccuracy "), 0.93);
  EXPECT_EQ(number_behind("loaded: accuracy "), number_behind("\naccuracy "));
  EXPECT_LT(number_behind("differs by "), 1e-4);
}

TEST(Examples, OwnStore) {
  const Outcome outcome = RunExample("own_store");
  EXPECT_EQ(outcome.status, 0) << outcome;
  double accuracy = 0, of_others = 0;
  ASSERT_EQ(std::sscanf(outcome.out.c_str(), "test accuracy %lf, of sums in float32 %lf", &accuracy, &of_others), 2)
      << outcome;
  EXPECT_GT(accuracy, 0.9);
  EXPECT_NEAR(accuracy, of_others, 0.02);
  int norms = 0;
  for (size_t at = 0; (at = outcome.out.find("largest gradient of", at)) != std::string::npos; ++at) ++norms;
  EXPECT_EQ(norms, 6) << outcome;
  const size_t last = outcome.out.find("parameters differ by ");
  ASSERT_NE(last, std::string::npos) << outcome;
  const double difference = std::atof(outcome.out.c_str() + last + 21);
  EXPECT_GT(difference, 0);
  // Of the same training, with sums rounded otherwise: 3e-7 with baseline kernels, 9.4e-3 with those of AVX2.
  EXPECT_LT(difference, 0.05);
}

TEST(Examples, TwoDevices) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ten seconds of arithmetic, ten times as long under a sanitizer";
#endif
  const Outcome outcome = RunExample("two_devices");
  EXPECT_EQ(outcome.status, 0) << outcome;
  const std::vector<double> accuracies = Numbers(outcome.out, "epoch %d: accuracy %lf");
  ASSERT_EQ(accuracies.size(), 24u) << outcome;
  EXPECT_GT(accuracies[11], 0.95);
  EXPECT_NE(outcome.out.find("lstm0_l0_weight        cpu:0"), std::string::npos) << outcome;
  EXPECT_NE(outcome.out.find("lstm1_l0_weight        cpu:1"), std::string::npos) << outcome;
  const size_t last = outcome.out.find("losses differ by ");
  ASSERT_NE(last, std::string::npos) << outcome;
  EXPECT_LT(std::atof(outcome.out.c_str() + last + 17), 1e-3);
}

TEST(Examples, Predict) {
  const Outcome outcome = RunExample("predict");
  EXPECT_EQ(outcome.status, 0) << outcome;
  int right = 0;
  ASSERT_EQ(std::sscanf(outcome.out.c_str(), "%d of 1000 digits right", &right), 1) << outcome;
  EXPECT_GT(right, 900);
}

}  // namespace
}  // namespace bindery
