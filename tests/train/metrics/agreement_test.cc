// F1, correlations and perplexity. The numbers are those of MXNet 1.9's tests/python/unittest/test_metric.py.
#include "train/metrics/agreement.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/philox.h"
#include "symbol/ops.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "tests/train/metrics/metric_partial.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"

namespace bindery {
namespace {

struct Sample {
  std::vector<float> scores;
  float label;
};
using Samples = std::vector<Sample>;

std::vector<double> PartialOf(const Metric& metric, const Samples& samples) {
  const int64_t n = static_cast<int64_t>(samples.size()), classes = static_cast<int64_t>(samples[0].scores.size());
  HostTensor scores(DType::kFloat32, {n, classes}), labels(DType::kFloat32, {n});
  for (int64_t i = 0; i < n; ++i) {
    const Sample& sample = samples[static_cast<size_t>(i)];
    labels.Set(i, sample.label);
    for (int64_t k = 0; k < classes; ++k) scores.Set(i * classes + k, sample.scores[static_cast<size_t>(k)]);
  }
  return PartialOf(metric, {{"p", scores}}, {{"y", labels}}, n);
}

// A batch of these shares.
void Update(Metric* metric, const std::vector<Samples>& shares) {
  std::vector<std::vector<double>> partials;
  for (const Samples& share : shares) partials.push_back(PartialOf(*metric, share));
  metric->Merge(partials);
}

double ValueOf(const Metric& metric) { return metric.Get().at(0).second; }

// MXNet's two updates, the first of two arrays.
const Samples kFirst = {{{0.1f, 0.9f}, 1}, {{0.5f, 0.5f}, 0}}, kSecond = {{{0.85f, 0.15f}, 1}, {{1, 0}, 0}};
const Samples kThird = {{{0.6f, 0.4f}, 0}}, kFourth = {{{0.2f, 0.8f}, 1}};

TEST(F1, OfBatchesAndOfAll) {
  const auto micro = MakeMetric("f1"), macro = MakeMetric("f1(average=macro)");
  for (Metric* metric : {micro.get(), macro.get()}) {
    EXPECT_TRUE(std::isnan(ValueOf(*metric)));
    Update(metric, {{{{0.9f, 0.1f}, 0}, {{0.8f, 0.2f}, 0}}});  // no positive
    EXPECT_EQ(ValueOf(*metric), 0);
    metric->Reset();
    Update(metric, {kFirst, kSecond});
    EXPECT_EQ(ValueOf(*metric), 2.0 / 3);
    Update(metric, {kThird, kFourth});
  }
  EXPECT_EQ(ValueOf(*micro), 0.8);
  EXPECT_EQ(ValueOf(*macro), (2.0 / 3 + 1) / 2);
}

TEST(Mcc, OfBatchesAndOfAll) {
  const auto micro = MakeMetric("mcc"), macro = MakeMetric("mcc(average=macro)");
  for (Metric* metric : {micro.get(), macro.get()}) {
    Update(metric, {{{{0.9f, 0.1f}, 0}, {{0.8f, 0.2f}, 0}}});
    EXPECT_EQ(ValueOf(*metric), 0);
    metric->Reset();
    Update(metric, {kFirst, kSecond});
    EXPECT_NEAR(ValueOf(*metric), 0.577350, 1e-6);
    Update(metric, {kThird, kFourth});
  }
  EXPECT_NEAR(ValueOf(*micro), 0.707107, 1e-6);
  EXPECT_NEAR(ValueOf(*macro), 0.788675, 1e-6);
}

// As many samples as the table says, by label and prediction.
Samples Table(const std::vector<std::vector<int>>& counts) {
  Samples samples;
  for (size_t label = 0; label < counts.size(); ++label) {
    for (size_t predicted = 0; predicted < counts.size(); ++predicted) {
      std::vector<float> scores(counts.size());
      scores[predicted] = 1;
      for (int i = 0; i < counts[label][predicted]; ++i) samples.push_back({scores, static_cast<float>(label)});
    }
  }
  return samples;
}

TEST(Pcc, OfTables) {
  const auto three = MakeMetric("pcc(classes=3)");
  const Samples samples = Table({{23, 13, 3}, {7, 19, 11}, {2, 5, 17}});
  Update(three.get(), {samples});
  const double whole = ValueOf(*three);
  EXPECT_NEAR(whole, 0.385295, 1e-6);
  three->Reset();
  Samples turned(samples.rbegin(), samples.rend());  // any order, batch size and number of updates
  for (size_t begin = 0; begin < turned.size(); begin += 7) {
    const auto end = std::min(turned.size(), begin + 7);
    Update(three.get(),
           {Samples(turned.begin() + static_cast<int64_t>(begin), turned.begin() + static_cast<int64_t>(end))});
  }
  EXPECT_EQ(ValueOf(*three), whole);
  const Samples two = Table({{7, 3}, {2, 5}});
  Samples plain = two;  // the class itself
  for (Sample& sample : plain) sample.scores = {sample.scores[1]};
  for (const char* text : {"pcc", "mcc", "pearson"}) {
    const auto metric = MakeMetric(text);
    Update(metric.get(), {metric->name() == "pearson" ? plain : two});
    EXPECT_NEAR(ValueOf(*metric), 0.408491, 1e-6) << text;
    metric->Reset();
    Update(metric.get(), {plain});
    EXPECT_NEAR(ValueOf(*metric), 0.408491, 1e-6) << text;
  }
  const auto one = MakeMetric("pcc");
  Update(one.get(), {Table({{3, 0}, {0, 0}})});
  EXPECT_TRUE(std::isnan(ValueOf(*one)));
}

TEST(Pearson, OfValuesFarFromZero) {
  PhiloxStream random(3, "pearson");
  const int64_t n = 400;
  HostTensor x(DType::kFloat32, {n, 1}), y(DType::kFloat32, {n, 1});
  std::vector<double> a, b;
  for (int64_t i = 0; i < n; ++i) {
    x.Set(i, 1000 + random.Normal());
    y.Set(i, 0.5 * x.At(i) + random.Normal());
    a.push_back(x.At(i));
    b.push_back(y.At(i));
  }
  const auto correlation = [&](size_t begin, size_t end) {
    const double count = static_cast<double>(end - begin);
    double ma = 0, mb = 0, aa = 0, bb = 0, ab = 0;
    for (size_t i = begin; i < end; ++i) ma += a[i] / count, mb += b[i] / count;
    for (size_t i = begin; i < end; ++i) {
      aa += (a[i] - ma) * (a[i] - ma);
      bb += (b[i] - mb) * (b[i] - mb);
      ab += (a[i] - ma) * (b[i] - mb);
    }
    return ab / std::sqrt(aa * bb);
  };
  const auto partial = [&](const Metric& metric, int64_t begin, int64_t end) {
    return PartialOf(metric, {{"p", x.Slice(0, begin, end)}}, {{"y", y.Slice(0, begin, end)}}, end - begin);
  };
  const auto micro = MakeMetric("pearson"), macro = MakeMetric("pearson(average=macro)");
  for (Metric* metric : {micro.get(), macro.get()}) {
    metric->Merge(std::vector{partial(*metric, 0, 90), partial(*metric, 90, 100)});
    metric->Merge(partial(*metric, 100, n));
  }
  EXPECT_NEAR(ValueOf(*micro), correlation(0, 400), 1e-9);
  EXPECT_NEAR(ValueOf(*macro), (correlation(0, 100) + correlation(100, 400)) / 2, 1e-9);
}

TEST(Perplexity, IgnoresALabelAndClamps) {
  const Samples samples = {{{0.8f, 0.2f}, 0}, {{0.2f, 0.8f}, 1}, {{0, 1}, 1}};
  const auto value = [&](const char* text, const Samples& of) {
    const auto metric = MakeMetric(text);
    Update(metric.get(), {of});
    return ValueOf(*metric);
  };
  EXPECT_NEAR(value("perplexity", samples), 1.160397, 1e-6);
  Samples more = samples;
  more.push_back({{0.5f, 0.5f}, -1});
  EXPECT_EQ(value("perplexity(ignore=-1)", more), value("perplexity", samples));
  EXPECT_NEAR(value("perplexity", {{{0, 1}, 0}}), 1e10, 1);
  EXPECT_EQ(value("nll", samples), value("cross-entropy", samples));
}

TEST(Agreement, RefusesOtherClasses) {
  EXPECT_EQ(MessageOf<ShapeError>([] {
              PartialOf(F1(), Table({{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}));
            }),
            "ShapeError: metric \"f1\": output \"p\" of shape (3, 3) has 3 classes; expected 2");
  EXPECT_EQ(MessageOf<DataError>([] {
              PartialOf(Mcc(), {{{0, 1}, 2}});
            }),
            "DataError: metric \"mcc\": label \"y\", sample 0, element 0: expected a class 0..1, got 2");
  EXPECT_EQ(MessageOf<DataError>([] {
              PartialOf(F1(), {{{1.6f}, 1}});
            }),
            "DataError: metric \"f1\": output \"p\", sample 0, element 0: expected a class 0..1, got 2");
  EXPECT_EQ(MessageOf([] { MakeMetric("pcc(1)"); }), "Error: metric \"pcc\": classes must be in 2..1024, got 1");
  EXPECT_EQ(MessageOf([] { MakeMetric("f1(average=mean)"); }),
            "Error: metric \"f1(average=mean)\": \"average\" must be micro or macro, got \"mean\"");
}

// Of a trainer, with one device and with several, beside another metric; a batch is what all devices got.
TEST(Agreement, DoesNotDependOnTheDevices) {
  const Symbol net = SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 2}, "fc"), {}, "softmax");
  PhiloxStream random(5, "agreement");
  HostTensor data(DType::kFloat32, {23, 3}), labels(DType::kFloat32, {23});
  for (int64_t i = 0; i < data.elements(); ++i) data.Set(i, random.Normal());
  for (int64_t i = 0; i < 23; ++i) labels.Set(i, static_cast<double>(random.Below(2)));
  const auto values = [&](const std::vector<Device>& devices) {
    ArrayIter iter(data, labels, {.batch_size = 6});
    Trainer trainer(net, {.devices = devices,
                          .optimizer = "sgd(lr=0)",
                          .metrics = "accuracy,f1(average=macro),mcc(average=macro),pcc,perplexity",
                          .seed = 2});
    NamedValues all = trainer.Fit(iter, {}).train;
    for (const auto& value : trainer.Score(iter)) all.push_back(value);
    return all;
  };
  const NamedValues one = values({TestDevice(0)}), three = values({TestDevice(0), TestDevice(1), TestDevice(2)});
  ASSERT_EQ(one.size(), 10u);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(one[i].second, three[i].second, 1e-6) << one[i].first;  // perplexity: by rounding of the outputs
    EXPECT_NEAR(one[i].second, one[i % 5].second, 1e-6) << one[i].first;
  }
}

}  // namespace
}  // namespace bindery
