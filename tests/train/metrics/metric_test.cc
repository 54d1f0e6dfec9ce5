#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/host_tensor.h"
#include "base/philox.h"
#include "tests/message_of.h"
#include "tests/train/metrics/metric_partial.h"
#include "train/metrics/metrics.h"

namespace bindery {
namespace {

void Update(Metric* metric, const HostTensor& output, const HostTensor& label, int64_t samples) {
  metric->Merge(PartialOf(*metric, {{"softmax_output", output}}, {{"softmax_label", label}}, samples));
}

double Value(const std::string& text, const HostTensor& output, const HostTensor& label, int64_t samples = -1) {
  const auto metric = MakeMetric(text);
  Update(metric.get(), output, label, samples < 0 ? output.shape()[0] : samples);
  return metric->Get().at(0).second;
}

template <class E, class F>
void ExpectError(const std::string& message, F f) {
  try {
    f();
    FAIL() << "no error, expected: " << message;
  } catch (const E& error) {
    EXPECT_EQ(error.what(), message);
  }
}

const HostTensor kScores = HostTensor::From({3, 2}, {0.3f, 0.7f, 0, 1, 0.4f, 0.6f});
const HostTensor kLabels = HostTensor::From({3}, {0, 1, 1});
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Accuracy, OfThreeSamples) {
  EXPECT_EQ(Value("accuracy", kScores, kLabels), 2.0 / 3);
  EXPECT_EQ(Value("accuracy", kScores, HostTensor::From({3, 1}, {0, 1, 1})), 2.0 / 3);
}

TEST(Accuracy, LabelsOfAnyType) {
  for (int i = 0; i < kNumDTypes; ++i) {
    EXPECT_EQ(Value("accuracy", kScores, kLabels.Cast(static_cast<DType>(i))), 2.0 / 3) << i;
    EXPECT_NEAR(Value("cross-entropy", kScores, kLabels.Cast(static_cast<DType>(i))),
                -(std::log(0.3) + std::log(0.6)) / 3, 1e-7)
        << i;
  }
  for (const DType dtype : {DType::kFloat64, DType::kBFloat16, DType::kFloat16})
    EXPECT_EQ(Value("accuracy", kScores.Cast(dtype), kLabels), 2.0 / 3);
}

TEST(Accuracy, NoSamples) {
  EXPECT_TRUE(std::isnan(Value("accuracy", HostTensor(DType::kFloat32, {0, 2}), HostTensor(DType::kFloat32, {0}))));
}

// Rows of scores by labels (N, T) or (T, N): as long as both have their samples in the same place.
TEST(Metrics, TimeFoldedIntoTheRows) {
  const HostTensor rows = HostTensor::From({4, 2}, {1, 0, 1, 0, 0, 1, 1, 0}),
                   labels = HostTensor::From({2, 2}, {0, 1, 1, 0});
  for (const char* text : {"accuracy", "top-k(1)", "cross-entropy", "mse(output=rows)"}) {
    const auto metric = MakeMetric(text);
    const auto value = [&](int64_t outer_of_rows, int64_t outer_of_labels) {
      const HostTensor targets = HostTensor(DType::kFloat32, {2, 2, 2});
      return metric
          ->Values(PartialOf(*metric, {{"rows", rows}}, {{"label", metric->name() == "mse" ? targets : labels}}, 2,
                             {{"rows", outer_of_rows}, {"label", outer_of_labels}}))[0]
          .second;
    };
    const double expected = metric->name() == "mse"             ? 0.5
                            : metric->name() == "cross-entropy" ? -std::log(1e-12) / 4
                                                                : 0.75;
    EXPECT_NEAR(value(1, 1), expected, 1e-9) << text;
    EXPECT_EQ(value(2, 2), value(1, 1)) << text;
    EXPECT_EQ(
        MessageOf<ShapeError>([&] { value(2, 1); }),
        fmt::format(
            "ShapeError: metric \"{}\": the samples of label \"label\" of shape {} are not in the order of output "
            "\"rows\" of shape (4, 2)",
            metric->name(), metric->name() == "mse" ? "(2, 2, 2)" : "(2, 2)"));
  }
}

TEST(Accuracy, SeveralPositionsASample) {
  // (N, K, T) = (1, 3, 2)
  const HostTensor scores = HostTensor::From({1, 3, 2}, {1, 9, 5, 2, 3, 4});
  EXPECT_EQ(Value("accuracy", scores, HostTensor::From({1, 2}, {1, 0})), 1);
  EXPECT_EQ(Value("accuracy", scores, HostTensor::From({1, 2}, {1, 2})), 0.5);
  EXPECT_EQ(Value("accuracy(axis=2)", scores, HostTensor::From({1, 3}, {1, 0, 1})), 1);
  EXPECT_EQ(Value("accuracy(ignore=-1)", scores, HostTensor::From({1, 2}, {1, -1})), 1);
}

// (N, T, K), as language models have it: where axis 1 does not fit the label, the classes are along the last.
TEST(Metrics, ClassesAlongTheLastAxis) {
  const HostTensor rows = HostTensor::From({4, 3}, {0.5f, 0.25f, 0.25f, 0.125f, 0.25f, 0.625f,  //
                                                    0.25f, 0.5f, 0.25f, 0.75f, 0.125f, 0.125f});
  const HostTensor labels = HostTensor::From({2, 2}, {0, 1, 1, 0});
  for (const char* text : {"accuracy", "top-k(2)", "cross-entropy", "accuracy(ignore=1)", "cross-entropy(ignore=0)"}) {
    const double expected = Value(text, rows, labels.Reshape({4}));
    EXPECT_EQ(Value(text, rows.Reshape({2, 2, 3}), labels), expected) << text;
    EXPECT_EQ(Value(text, rows.Reshape({2, 2, 3}), labels.Reshape({4})), expected) << text;
    EXPECT_EQ(Value(text, rows.Reshape({1, 2, 2, 3}), labels.Reshape({1, 2, 2})), expected) << text;
    const auto metric = MakeMetric(text);  // (T, N, K): axis 1 is the samples', however many classes there are
    EXPECT_EQ(metric
                  ->Values(PartialOf(*metric, {{"p", rows.Reshape({4, 1, 3})}}, {{"y", labels.Reshape({4, 1})}}, 1,
                                     {{"p", 4}, {"y", 4}}))[0]
                  .second,
              expected)
        << text;
  }
  const HostTensor square = HostTensor::From({1, 2, 2}, {0.25f, 0.75f, 0.75f, 0.25f});
  const HostTensor classes = HostTensor::From({1, 2}, {1, 0});
  ExpectError<ShapeError>(
      "ShapeError: metric \"accuracy\": the classes of output \"softmax_output\" of shape (1, 2, 2) may be along "
      "axis 1 or 2: say which by axis=",
      [&] { Value("accuracy", square, classes); });
  ExpectError<ShapeError>(
      "ShapeError: metric \"accuracy\": label \"softmax_label\" of shape (5) does not fit output \"softmax_output\" of "
      "shape (2, 2, 3); expected (2, 3), (2, 2) or (2, 2, 3)",
      [&] {
        Value("accuracy", rows.Reshape({2, 2, 3}), HostTensor(DType::kFloat32, {5}));
      });
  EXPECT_EQ(Value("accuracy(axis=1)", square, classes), 1);
  EXPECT_EQ(Value("accuracy(axis=2)", square, classes), 1);
  const auto metric = MakeMetric("accuracy");
  const auto by_time = [&](int64_t outer) {
    return metric
        ->Values(PartialOf(*metric, {{"p", square.Reshape({2, 1, 2})}}, {{"y", classes.Reshape({2, 1})}}, 1,
                           {{"p", outer}, {"y", outer}}))[0]
        .second;
  };
  EXPECT_EQ(by_time(2), 1);
  EXPECT_TRUE(std::isnan(Value("accuracy", HostTensor(DType::kFloat32, {0, 2, 2}), HostTensor(DType::kFloat32, {0}))));
}

TEST(Accuracy, DistributionsAndPlainClasses) {
  EXPECT_EQ(Value("accuracy", kScores, HostTensor::From({3, 2}, {0, 1, 0, 1, 1, 0})), 2.0 / 3);
  EXPECT_EQ(Value("accuracy", HostTensor::From({4}, {0.2f, 0.9f, 2, 3}), HostTensor::From({4}, {0, 1, 2, 2})), 0.75);
  EXPECT_EQ(Value("accuracy", HostTensor::From({2, 1}, {0.2f, 0.9f}), HostTensor::From({2, 1}, {0, 0})), 0.5);
}

TEST(Accuracy, OfEachElement) {
  const HostTensor truths = HostTensor::From({2, 3}, {0.2f, 0.9f, 0.6f, 0.4f, 0.1f, 0.7f});
  const HostTensor labels = HostTensor::From({2, 3}, {0, 1, 0, 1, 0, 1});
  EXPECT_EQ(Value("accuracy(axis=none)", truths, labels), 4.0 / 6);
  EXPECT_EQ(Value("accuracy(axis=none, ignore=0)", truths, labels), 2.0 / 3);
  EXPECT_EQ(Value("f1(axis=none)", truths, labels), 4.0 / 6);
  EXPECT_EQ(Value("accuracy(axis=none)", truths.Reshape({6}), labels), 4.0 / 6) << "of any shape";
  EXPECT_EQ(Value("accuracy(axis=none)", truths.Reshape({6, 1}), labels.Reshape({6})), 4.0 / 6);
  for (const char* text : {"top-k(1, axis=none)", "cross-entropy(axis=none)"}) {
    EXPECT_NE(MessageOf([&] { MakeMetric(text); }).find("it is of scores, and so there is an axis of classes"),
              std::string::npos);
  }
  EXPECT_THROW(Value("accuracy(axis=none)", truths, HostTensor::From({2}, {0, 1})), ShapeError);
  EXPECT_EQ(MessageOf([] { MakeMetric("accuracy(axis=non)"); }),
            "Error: metric \"accuracy(axis=non)\": \"axis\" must be a whole number, got \"non\"");
}

// The last axis of an output that has samples alone is theirs.
TEST(Accuracy, SamplesAreNoClasses) {
  const HostTensor output = HostTensor::From({4}, {0.2f, 0.9f, 0.1f, 0.8f}),
                   label = HostTensor::From({4}, {0, 1, 1, 1});
  EXPECT_EQ(Value("accuracy", output, label), 0.75);
  EXPECT_EQ(Value("accuracy(axis=-1)", output, label), 0.75);
  EXPECT_THROW(Value("accuracy(axis=-1)", output, label.Reshape({4, 1})), ShapeError);
  EXPECT_EQ(Value("accuracy(axis=-1)", kScores, kLabels), 2.0 / 3);
}

TEST(Accuracy, ANaNIsWrongAndTiesGoToTheFirst) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Value("accuracy", HostTensor::From({2, 2}, {nan, 0, 1, nan}), HostTensor::From({2}, {0, 0})), 0);
  EXPECT_EQ(Value("top-k(2)", HostTensor::From({2, 2}, {nan, 0, 1, nan}), HostTensor::From({2}, {1, 0})), 0);
  EXPECT_EQ(Value("accuracy", HostTensor::From({1, 3}, {1, 2, 2}), HostTensor::From({1}, {1})), 1);
}

TEST(TopK, CountsTheLabelAmongTheLargest) {
  const HostTensor scores = HostTensor::From({2, 4}, {0.1f, 0.4f, 0.3f, 0.2f, 1, 1, 1, 0});
  EXPECT_EQ(Value("top-k(1)", scores, HostTensor::From({2}, {1, 0})), 1);
  EXPECT_EQ(Value("top-k(2)", scores, HostTensor::From({2}, {2, 1})), 1);
  EXPECT_EQ(Value("top-k(2)", scores, HostTensor::From({2}, {3, 2})), 0);
  EXPECT_EQ(Value("top-k(k=3)", scores, HostTensor::From({2}, {3, 9})), 0.5);
  EXPECT_EQ(MakeMetric("top-k(3)")->name(), "top-3");
  EXPECT_EQ(MessageOf<ShapeError>([&] {
              Value("top-k(5)", scores, HostTensor::From({2}, {3, 9}));
            }),
            "ShapeError: metric \"top-5\": output \"softmax_output\" of shape (2, 4) has 4 classes only: k must be at "
            "most that");
}

TEST(CrossEntropy, OfClassesAndDistributions) {
  EXPECT_NEAR(Value("cross-entropy", kScores, kLabels), -(std::log(0.3) + std::log(0.6)) / 3, 1e-7);
  EXPECT_NEAR(Value("cross-entropy", kScores, HostTensor::From({3}, {0, 0, 1})),
              -(std::log(0.3) + std::log(1e-12) + std::log(0.6)) / 3, 1e-6);
  EXPECT_NEAR(Value("cross-entropy", HostTensor::From({1, 2}, {0.25f, 0.75f}), HostTensor::From({1, 2}, {0.5f, 0.5f})),
              -(std::log(0.25) + std::log(0.75)) / 2, 1e-11);
  EXPECT_EQ(Value("cross-entropy(eps=0)", kScores, HostTensor::From({3}, {0, 0, 1})), kInfinity);
}

TEST(Regression, ExactMeans) {
  const HostTensor output = HostTensor::From({2, 2}, {1, 2, 3, 4}), label = HostTensor::From({2, 2}, {1, 0, 0, 0});
  EXPECT_EQ(Value("mse", output, label), (4 + 9 + 16) / 4.0);
  EXPECT_EQ(Value("mae", output, label), 9 / 4.0);
  EXPECT_EQ(Value("rmse", output, label), std::sqrt(29 / 4.0));
  EXPECT_EQ(Value("mse", output, HostTensor::From({2, 1, 2}, {1, 0, 0, 0})), (4 + 9 + 16) / 4.0);
}

TEST(Loss, MeanOfAnOutput) {
  EXPECT_EQ(Value("loss", HostTensor::From({3}, {1, 2, 6}), HostTensor()), 3);
  Loss loss;  // a scalar of 3 samples and one of 1
  Update(&loss, HostTensor::From({}, {2}), HostTensor(), 3);
  Update(&loss, HostTensor::From({1}, {6}), HostTensor(), 1);
  EXPECT_EQ(loss.Get().at(0), (std::pair<std::string, double>("loss", 3)));
}

TEST(Metrics, AreNaNBeforeTheFirstUpdate) {
  const auto metric = MakeMetric(
      "accuracy,top-k(2),cross-entropy,mse,rmse,mae,loss,nll,perplexity,f1,mcc(average=macro),pcc(3),pearson");
  const auto check = [&] {
    ASSERT_EQ(metric->Get().size(), 13u);
    for (const auto& [name, value] : metric->Get()) EXPECT_TRUE(std::isnan(value)) << name;
  };
  check();
  metric->Merge(std::vector<double>(static_cast<size_t>(metric->partial_size()), 1));
  EXPECT_EQ(metric->Get()[0].second, 1);
  metric->Reset();
  check();
}

TEST(Metrics, ListsHaveAllValues) {
  const auto metric = MakeMetric("accuracy, cross-entropy(eps=1e-12)");
  EXPECT_EQ(metric->name(), "accuracy,cross-entropy");
  Update(metric.get(), kScores, kLabels, 3);
  const auto values = metric->Get();
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values[0], (std::pair<std::string, double>("accuracy", 2.0 / 3)));
  EXPECT_EQ(values[1].second, Value("cross-entropy", kScores, kLabels));
}

// Else logs, which go by names, would have one of them.
TEST(Metrics, OfOneNameAreToldApart) {
  const auto metric = MakeMetric("accuracy, top-k(1), accuracy(axis=1), accuracy");
  std::vector<std::string> names;
  for (const auto& [name, value] : metric->Get()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"accuracy", "top-1", "accuracy_2", "accuracy_3"}));
}

TEST(Metrics, GoOnFromASavedTotal) {
  Accuracy one, two;
  Update(&one, kScores, kLabels, 3);
  two.SetTotal({one.total().begin(), one.total().end()});
  for (Accuracy* metric : {&one, &two}) Update(metric, kScores.Slice(0, 0, 1), kLabels.Slice(0, 0, 1), 1);
  EXPECT_EQ(one.Get(), two.Get());
  ExpectError<Error>("Error: metric \"accuracy\": a total has 2 numbers, got 3", [&] { two.SetTotal({1, 2, 3}); });
  ExpectError<Error>("Error: metric \"accuracy\": a partial has 2 numbers, got 1",
                     [&] { two.Merge(std::vector<double>{1}); });
}

// The same bits for any split of the samples, and any order of the shares.
TEST(Metrics, DoNotDependOnTheSplit) {
  PhiloxStream random(11, "metrics");
  const int64_t n = 500, classes = 7;
  HostTensor scores(DType::kFloat32, {n, classes}), labels(DType::kInt32, {n});
  for (int64_t i = 0; i < n; ++i) {
    labels.Set(i, static_cast<double>(random.Below(classes)));
    for (int64_t k = 0; k < classes; ++k) scores.Set(i * classes + k, random.Uniform(1e-6f, 1));
  }
  const HostTensor targets = HostTensor::Full(DType::kFloat32, {n, classes}, 0.1);
  for (const char* text : {"accuracy", "top-k(3)", "cross-entropy", "mse", "rmse", "mae", "loss"}) {
    const bool regression = std::string(text).find("m") != std::string::npos;
    const HostTensor& label = regression ? targets : labels;
    const double whole = Value(text, scores, label);
    for (int round = 0; round < 10; ++round) {
      const auto metric = MakeMetric(text);
      std::vector<std::vector<double>> partials;
      for (int64_t begin = 0; begin < n;) {
        const int64_t end = std::min(n, begin + 1 + static_cast<int64_t>(random.Below(90)));
        partials.push_back(
            PartialOf(*metric, {{"o", scores.Slice(0, begin, end)}}, {{"l", label.Slice(0, begin, end)}}, end - begin));
        begin = end;
      }
      if (round % 2) std::reverse(partials.begin(), partials.end());
      for (const auto& partial : partials) metric->Merge(partial);
      ASSERT_EQ(metric->Get()[0].second, whole) << text;
    }
  }
}

TEST(ExactSum, AnyOrderAndScale) {
  PhiloxStream random(2, "sum");
  std::vector<double> values;
  for (int i = 0; i < 3000; ++i) values.push_back(std::ldexp(random.Normal(), static_cast<int>(random.Below(30)) - 25));
  double forward[ExactSum::kSize] = {}, backward[ExactSum::kSize] = {};
  long double expected = 0;
  for (const double value : values) {
    ExactSum::Add(value, forward);
    expected += value;
  }
  for (auto value = values.rbegin(); value != values.rend(); ++value) ExactSum::Add(*value, backward);
  EXPECT_EQ(ExactSum::Total(forward), ExactSum::Total(backward));
  EXPECT_NEAR(ExactSum::Total(forward), static_cast<double>(expected), 1e-15 * std::abs(static_cast<double>(expected)));
  double tiny[ExactSum::kSize] = {}, special[ExactSum::kSize] = {};
  ExactSum::Add(1e-12, tiny);
  EXPECT_NEAR(ExactSum::Total(tiny), 1e-12, 1e-24);
  ExactSum::Add(1e300, special);
  EXPECT_EQ(ExactSum::Total(special), 1e300);
  ExactSum::Add(kInfinity, special);
  EXPECT_EQ(ExactSum::Total(special), kInfinity);
  ExactSum::Add(-kInfinity, special);
  EXPECT_TRUE(std::isnan(ExactSum::Total(special)));
}

TEST(Metrics, PairsByOrderOrName) {
  const HostTensor other = HostTensor::From({3, 2}, {1, 0, 1, 0, 1, 0});
  const NamedTensors outputs = {{"a_output", kScores}, {"b_output", other}}, labels = {{"x", kLabels}, {"y", kLabels}};
  const auto value = [&](const std::string& text, const NamedTensors& some_labels) {
    const auto metric = MakeMetric(text);
    metric->Merge(PartialOf(*metric, outputs, some_labels, 3));
    return metric->Get()[0].second;
  };
  EXPECT_EQ(value("accuracy", labels), 0.5);
  EXPECT_EQ(value("accuracy(output=b_output,label=y)", labels), 1.0 / 3);
  EXPECT_EQ(value("accuracy(output=a_output)", {labels[0]}), 2.0 / 3);
  ExpectError<Error>(
      "Error: metric \"accuracy\": 2 outputs cannot be paired with 1 labels; say which by output= and label=",
      [&] { value("accuracy", {labels[0]}); });
  ExpectError<Error>("Error: metric \"mse\": no output is named \"a_outpt\"; did you mean \"a_output\"?",
                     [&] { value("mse(output=a_outpt)", labels); });
  // In quotes, of which those within are doubled.
  EXPECT_EQ(value("accuracy(output=\"b_output\", label = \"y\")", labels), 1.0 / 3);
  ExpectError<Error>("Error: metric \"mse\": no output is named \"a, (\"b\", \"; known: a_output, b_output",
                     [&] { value("mse(output=\"a, (\"\"b\"\", \", label=x), accuracy", labels); });
}

// By which heads are told apart that are measured alike.
TEST(Metrics, MayHaveNamesOfTheirOwn) {
  const auto metric = MakeMetric("accuracy(name=accuracy_a),cross-entropy(1e-9, name=kl),mse");
  EXPECT_EQ(metric->name(), "accuracy_a,kl,mse");
  const HostTensor labels = HostTensor::From({3, 2}, {1, 0, 0, 1, 0, 1});
  EXPECT_EQ(MakeMetric("mse(name=off)")->Get()[0].first, "off");
  EXPECT_EQ(Value("mse(name=off)", kScores, labels), Value("mse", kScores, labels));
  EXPECT_EQ(Value("perplexity(name=p)", kScores, kLabels), Value("perplexity", kScores, kLabels));
  // What is best is told by names.
  ExpectError<Error>(
      "Error: metric \"accuracy(name=digits)\": larger is better, which its name is to say: let it begin "
      "with accuracy, name=accuracy_digits",
      [] { MakeMetric("accuracy(name=digits)"); });
  ExpectError<Error>(
      "Error: metric \"mse(name=topmost)\": smaller is better, but \"topmost\" sounds as if larger were: "
      "call it otherwise",
      [] { MakeMetric("mse(name=topmost)"); });
}

TEST(Metrics, Errors) {
  const HostTensor four = HostTensor::From({4}, {0, 0, 0, 0});
  ExpectError<ShapeError>(
      "ShapeError: metric \"accuracy\": label \"softmax_label\" of shape (4) does not fit output \"softmax_output\" of "
      "shape (3, 2); expected (3) or (3, 2)",
      [&] { Value("accuracy", kScores, four); });
  ExpectError<ShapeError>(
      "ShapeError: metric \"mse\": label \"softmax_label\" of shape (4) does not fit output \"softmax_output\" of "
      "shape (3, 2); expected (3, 2)",
      [&] { Value("mse", kScores, four); });
  ExpectError<ShapeError>(
      "ShapeError: metric \"accuracy\": the samples of label \"softmax_label\" of shape (3) are not in the order of "
      "output \"softmax_output\" of shape (3, 2)",
      [&] { Value("accuracy", kScores, kLabels, 4); });
  for (const auto& [label, text] : {std::pair{2.f, "2"}, {-1.f, "-1"}, {0.5f, "0.5"}}) {
    ExpectError<DataError>(fmt::format("DataError: metric \"cross-entropy\": label \"softmax_label\", sample 1, "
                                       "element 1: expected a class 0..1, got {}",
                                       text),
                           [&] {
                             Value("cross-entropy", kScores, HostTensor::From({3}, {0, label, 1}));
                           });
  }
  EXPECT_THROW(Value("accuracy(axis=2)", kScores, kLabels), ShapeError);
  ExpectError<Error>("Error: unknown metric \"acc\"; did you mean \"accuracy\"?", [] { MakeMetric("acc"); });
  ExpectError<Error>(
      "Error: unknown metric \"auc\"; known: accuracy, top-k, cross-entropy, nll, perplexity, f1, mcc, pcc, mse, rmse, "
      "mae, pearson, loss",
      [] { MakeMetric("auc"); });
  ExpectError<Error>("Error: unknown metric \"acuracy\"; did you mean \"accuracy\"?", [] { MakeMetric("acuracy"); });
  ExpectError<Error>("Error: metric \"accuracy\": axis must be >= 1, as 0 is the samples', or -1, the last one; got 0",
                     [] { MakeMetric("accuracy(axis=0)"); });
  ExpectError<Error>("Error: metric \"top-k\": k must be >= 1, got 0", [] { MakeMetric("top-k(0)"); });
  ExpectError<Error>("Error: metric \"\": expected a name, or name(setting, name=setting)",
                     [] { MakeMetric("accuracy,"); });
}

}  // namespace
}  // namespace bindery
