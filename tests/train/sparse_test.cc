// Tables whose gradients are kept by rows: what they become, against whole gradients and against plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "symbol/ops.h"
#include "tests/message_of.h"
#include "train/optimizers/key_updater.h"
#include "train/updater/updater.h"

namespace bindery {
namespace {

constexpr int64_t kRows = 50, kWidth = 6, kBatch = 9, kWords = 4;
constexpr int kSteps = 6;

// Words of each sample: many are the same, in one sample and in several, on one device and on both.
HostTensor Words(int step) {
  HostTensor words(DType::kInt32, {kBatch, kWords});
  for (int64_t i = 0; i < words.elements(); ++i) words.Set(i, static_cast<double>((i * i + 3 * step * i + step) % 17));
  return words;
}

HostTensor Waves(const Shape& shape, double pace) {
  HostTensor values(DType::kFloat32, shape);
  for (int64_t i = 0; i < values.elements(); ++i) values.Set(i, std::sin(pace * static_cast<double>(i + 1)));
  return values;
}

enum class Net { kEmbedding, kTake, kTied };

Symbol Make(Net kind, bool sparse) {
  const Symbol words = Variable("data"), table = Variable("table_weight", {.shape = Shape{kRows, kWidth}});
  Symbol x;
  if (kind == Net::kTake) {
    x = Take(table, words, {.mode = IndexMode::kWrap, .padding = 3, .sparse_grad = sparse}, "take");
  } else {
    x = Embedding(words, table, {.input_dim = kRows, .output_dim = kWidth, .padding_idx = 3, .sparse_grad = sparse},
                  "embed");
  }
  x = FullyConnected(x, {.num_hidden = 5}, "fc");
  if (kind == Net::kTied) x = x + Sum(table * table);  // all of it is used, too
  return LinearRegressionOutput(x, Variable("label"), {}, "out");
}

struct Way {
  std::vector<Device> devices = {Cpu(0)};
  std::vector<double> workload = {};
  std::string optimizer = "sgd(lr=0.5)";
  int threads = 1;
};

class Training {
 public:
  Training(Net kind, bool sparse, const Way& run)
      : group_(Make(kind, sparse), {.devices = run.devices,
                                    .workload = run.workload,
                                    .data = {{.name = "data", .shape = {kBatch, kWords}, .dtype = DType::kInt32}},
                                    .labels = {{.name = "label", .shape = {kBatch, 5}}},
                                    .sparse_gradients = sparse,
                                    .threads_per_device = run.threads}) {
    group_.SetParams({{"table_weight", Waves({kRows, kWidth}, 0.7)},
                      {"fc_weight", Waves({5, kWords * kWidth}, 1.3)},
                      {"fc_bias", Waves({5}, 0.2)}},
                     {});
    updater_ = std::make_unique<Updater>(
        &group_, UpdaterOptions{.optimizer = std::shared_ptr<const Optimizer>(MakeOptimizer(run.optimizer))});
  }
  void Step(int step, const HostTensor& label) {
    auto batch = std::make_shared<Batch>();
    batch->data = {Words(step)};
    batch->label = {label};
    batch->samples = kBatch;
    updater_->Update(BatchPtr(batch));
    updater_->WaitFor(updater_->step());
  }
  void Steps(int first, int end) {
    for (int step = first; step < end; ++step) Step(step, Waves({kBatch, 5}, 0.1 * (step + 1)));
  }
  HostTensorMap Params() const {
    HostTensorMap params;
    group_.GetParams(&params, nullptr);
    return params;
  }
  bool by_rows() const {
    return !group_.store().blocks()[group_.store().Find("table_weight")->block].row_gradients.empty();
  }

  DataParallelExecutorGroup group_;
  std::unique_ptr<Updater> updater_;
};

const Way kRuns[] = {
    {}, {.threads = 2}, {.devices = {Cpu(0), Cpu(1)}}, {.devices = {Cpu(0), Cpu(1), Cpu(2)}, .workload = {4, 0, 1}}};

TEST(Sparse, PlainDescentMovesTheSameBits) {
  for (const Net kind : {Net::kEmbedding, Net::kTake}) {
    for (const Way& run : kRuns) {
      Training whole(kind, false, run), rows(kind, true, run);
      EXPECT_FALSE(whole.by_rows());
      EXPECT_TRUE(rows.by_rows());
      whole.Steps(0, kSteps);
      rows.Steps(0, kSteps);
      EXPECT_EQ(rows.Params(), whole.Params());
      EXPECT_EQ(rows.group_.GetGradient("table_weight", 0), whole.group_.GetGradient("table_weight", 0));
    }
  }
}

// A program of its own: what a group leaves is pushed to a store.
TEST(Sparse, RowsOfAGroupArePushedToAStore) {
  const Way run{.devices = {Cpu(0), Cpu(1)}};
  Training through(Net::kEmbedding, true, run), by_hand(Net::kEmbedding, true, run);
  const auto kv = KVStore::Create(KVStoreType::kDevice);
  kv->SetRowUpdater(KeyedOptimizer(MakeOptimizer("sgd(lr=0.5)"), {.rescale = 1.0 / kBatch}).row_updater());
  kv->Init("table_weight", by_hand.Params().at("table_weight"));
  by_hand.group_.Forward(Batch{.data = {Words(0)}, .label = {Waves({kBatch, 5}, 0.1)}, .samples = kBatch});
  by_hand.group_.Backward();
  kv->PushRows("table_weight", by_hand.group_.RowGradients("table_weight"));
  through.Steps(0, 1);
  const Tensor table(DefaultEngine(), Cpu(0), DType::kFloat32, {kRows, kWidth});
  kv->Pull("table_weight", std::vector{table});
  EXPECT_EQ(table.ToHost(), through.Params().at("table_weight"));
  EXPECT_NE(MessageOf<Error>([&] {
              by_hand.group_.RowGradients("fc_weight");
            }).find("\"fc_weight\" has no gradient that is kept by rows"),
            std::string::npos);
  EXPECT_TRUE(by_hand.group_.params()[0].grads.empty() != by_hand.group_.params()[1].grads.empty());
}

// The optimizer's formula where a row is in the batch, nothing where it is not.
TEST(Sparse, RowsThatABatchDoesNotTouchStayAsTheyAre) {
  constexpr double kRate = 0.05, kDecay = 0.1, kMomentum = 0.9, kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;
  for (const bool adam : {false, true}) {
    for (Way run : kRuns) {
      run.optimizer = adam ? "adam(lr=0.05, wd=0.1)" : "sgd(lr=0.05, momentum=0.9, wd=0.1)";
      Training training(Net::kEmbedding, true, run);
      HostTensor table = training.Params().at("table_weight");
      std::vector<double> first(static_cast<size_t>(table.elements())), second(first.size());
      for (int step = 0; step < kSteps; ++step) {
        training.Steps(step, step + 1);
        std::vector<double> gradient(first.size());
        for (size_t d = 0; d < run.devices.size(); ++d) {
          const HostTensor own = training.group_.GetGradient("table_weight", static_cast<int>(d));
          for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += own.At(static_cast<int64_t>(i));
        }
        std::vector<bool> touched(kRows);
        const HostTensor words = Words(step);
        for (int64_t i = 0; i < words.elements(); ++i) touched[static_cast<size_t>(words.At(i))] = words.At(i) != 3;
        for (int64_t i = 0; i < table.elements(); ++i) {
          if (!touched[static_cast<size_t>(i / kWidth)]) continue;
          double &m = first[static_cast<size_t>(i)], &v = second[static_cast<size_t>(i)], w = table.At(i);
          const double g = gradient[static_cast<size_t>(i)] / kBatch + kDecay * w;
          if (adam) {
            m = kBeta1 * m + (1 - kBeta1) * g;
            v = kBeta2 * v + (1 - kBeta2) * g * g;
            w -= kRate * (m / (1 - std::pow(kBeta1, step + 1))) /
                 (std::sqrt(v / (1 - std::pow(kBeta2, step + 1))) + kEpsilon);
          } else {
            m = kMomentum * m - kRate * g;
            w += m;
          }
          table.Set(i, w);
        }
      }
      EXPECT_LT(MaxAbsDiff(training.Params().at("table_weight"), table), 2e-5) << run.optimizer;
      const HostTensor before = Waves({kRows, kWidth}, 0.7), after = training.Params().at("table_weight");
      EXPECT_EQ(after.Slice(0, 17, kRows), before.Slice(0, 17, kRows));
      EXPECT_EQ(after.Slice(0, 3, 4), before.Slice(0, 3, 4));  // padding
      for (const auto& [name, state] : training.updater_->State()) {
        if (!name.starts_with("table_weight")) continue;
        EXPECT_EQ(state.Slice(0, 17, kRows), HostTensor(DType::kFloat32, {kRows - 17, kWidth})) << name;
      }
    }
  }
}

TEST(Sparse, ATableThatIsUsedOtherwiseTooHasAWholeGradient) {
  for (Way run : kRuns) {
    run.optimizer = "adam(lr=0.05)";
    Training whole(Net::kTied, false, run), asked(Net::kTied, true, run);
    EXPECT_FALSE(asked.by_rows());
    whole.Steps(0, kSteps);
    asked.Steps(0, kSteps);
    EXPECT_EQ(asked.Params(), whole.Params());
  }
}

TEST(Sparse, DevicesBeyondTheHostsReachHaveWholeGradients) {
  Way run{.devices = {Sim(0), Sim(1)}};
  Training whole(Net::kEmbedding, false, run), asked(Net::kEmbedding, true, run);
  EXPECT_FALSE(asked.by_rows());
  whole.Steps(0, 2);
  asked.Steps(0, 2);
  EXPECT_EQ(asked.Params(), whole.Params());
}

TEST(Sparse, ClippedByTheNormOfAllGradients) {
  Way run{.devices = {Cpu(0), Cpu(1)}, .optimizer = "sgd(lr=0.5, clip_norm=0.1)"};
  Training whole(Net::kEmbedding, false, run), rows(Net::kEmbedding, true, run);
  whole.Steps(0, kSteps);
  rows.Steps(0, kSteps);
  for (const auto& [name, value] : whole.Params()) EXPECT_LT(MaxAbsDiff(rows.Params().at(name), value), 1e-6) << name;
}

TEST(Sparse, AGradientThatIsNotFiniteMovesNothing) {
  Way run{.devices = {Cpu(0), Cpu(1)}, .optimizer = "adam(lr=0.05)"};
  Training training(Net::kEmbedding, true, run);
  training.Steps(0, 2);
  const HostTensorMap params = training.Params(), state = training.updater_->State();
  HostTensor label = Waves({kBatch, 5}, 0.1);
  label.Set(2, std::numeric_limits<double>::infinity());
  const std::string message = MessageOf<NumericError>([&] { training.Step(2, label); });
  EXPECT_NE(message.find("is not finite"), std::string::npos) << message;
  EXPECT_EQ(training.Params(), params);
  EXPECT_EQ(training.updater_->State(), state);
  training.updater_->GoBack(3);
  training.Steps(2, 4);
  Training other(Net::kEmbedding, true, run);
  other.Steps(0, 4);
  EXPECT_EQ(training.Params(), other.Params());
}

TEST(Sparse, GoesOnFromASavedState) {
  Way run{.optimizer = "adam(lr=0.05)"};
  Training through(Net::kEmbedding, true, run), begun(Net::kEmbedding, true, run), resumed(Net::kEmbedding, true, run);
  through.Steps(0, 4);
  begun.Steps(0, 2);
  resumed.group_.SetParams(begun.Params(), {});
  resumed.updater_->SetState(begun.updater_->State());
  resumed.updater_->SetStep(2);
  resumed.Steps(2, 4);
  EXPECT_EQ(resumed.Params(), through.Params());
}

// Batches of other sizes, first larger and then smaller: arrays move, numbers of rows follow.
TEST(Sparse, BatchesOfOtherSizes) {
  Way run{.devices = {Cpu(0), Cpu(1)}};
  Training whole(Net::kEmbedding, false, run), rows(Net::kEmbedding, true, run);
  for (const int64_t samples : {9, 30, 2, 1, 9}) {
    auto batch = std::make_shared<Batch>();
    HostTensor words(DType::kInt32, {samples, kWords});
    for (int64_t i = 0; i < words.elements(); ++i) words.Set(i, static_cast<double>(i * i % 23));
    batch->data = {words};
    batch->label = {Waves({samples, 5}, 0.3)};
    batch->samples = samples;
    for (Training* training : {&whole, &rows}) {
      training->updater_->Update(BatchPtr(batch));
      training->updater_->WaitFor(training->updater_->step());
    }
  }
  EXPECT_EQ(rows.Params(), whole.Params());
}

TEST(Sparse, WhatGoesByAllOfATableIsRefused) {
  EXPECT_NE(MessageOf<Error>([] {
              Training(Net::kEmbedding, true, {.optimizer = "lamb(lr=0.1)"});
            }).find("parameter \"table_weight\": its gradient is kept by rows, but lamb goes by the norm of all of it"),
            std::string::npos);
  // A net of the same table that is tied there.
  Training rows(Net::kEmbedding, true, {});
  GroupOptions shared = rows.group_.options();
  shared.shared_group = &rows.group_;
  EXPECT_NE(MessageOf<Error>([&] {
              DataParallelExecutorGroup(Make(Net::kTied, true), shared);
            }).find("parameter \"table_weight\": its gradient is kept by rows, but this network needs all of it"),
            std::string::npos);
  EXPECT_NE(MessageOf<ModelError>([] {
              Take(Variable("x"), Variable("i"), {.axis = 1, .sparse_grad = true});
            }).find("sparse_grad is of rows: expected axis 0 and batch_dims 0, got 1 and 0"),
            std::string::npos);
}

}  // namespace
}  // namespace bindery
