// Tables whose gradients are kept by rows: what they become, against whole gradients and against plain loops.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/message_of.h"
#include "tests/test_device.h"
#include "tests/train/updater/sparse_training.h"
#include "train/finite.h"
#include "train/optimizers/key_updater.h"

namespace bindery {
namespace {

constexpr int kSteps = 6;

const Net kEmbedding = [](bool sparse) {
  return Head(Embedding(Variable("data"), Variable("table_weight"),
                        {.input_dim = kRows, .output_dim = kWidth, .padding_idx = 3, .sparse_grad = sparse}, "embed"));
};
const Net kTake = [](bool sparse) {
  const Symbol table = Variable("table_weight", {.shape = Shape{kRows, kWidth}});
  return Head(Take(table, Variable("data"), {.mode = IndexMode::kWrap, .padding = 3, .sparse_grad = sparse}, "take"));
};
// All of the table is used, too.
const Net kTied = [](bool sparse) {
  const Symbol table = Variable("table_weight", {.shape = Shape{kRows, kWidth}});
  return Head(Take(table, Variable("data"), {.sparse_grad = sparse}, "take") + Sum(table * table));
};

const Way kRuns[] = {
    {}, {.threads = 2}, {.devices = {Cpu(0), Cpu(1)}}, {.devices = {Cpu(0), Cpu(1), Cpu(2)}, .workload = {4, 0, 1}}};

TEST(Sparse, PlainDescentMovesTheSameBits) {
  for (const Net& net : {kEmbedding, kTake}) {
    for (const Way& run : kRuns) {
      Training whole(net, false, run), rows(net, true, run);
      EXPECT_FALSE(whole.by_rows());
      EXPECT_TRUE(rows.by_rows());
      whole.Steps(0, kSteps);
      rows.Steps(0, kSteps);
      EXPECT_EQ(rows.Params(), whole.Params());
      EXPECT_EQ(rows.Gradients(), whole.Gradients());
    }
  }
}

// A program of its own: what a group leaves is pushed to a store.
TEST(Sparse, RowsOfAGroupArePushedToAStore) {
  const Way run{.devices = {Cpu(0), Cpu(1)}};
  Training through(kEmbedding, true, run), by_hand(kEmbedding, true, run);
  const auto kv = KVStore::Create(KVStoreType::kDevice);
  kv->SetRowUpdater(KeyedOptimizer(MakeOptimizer("sgd(lr=0.5)"), {.rescale = 1.0 / kBatch}).row_updater());
  kv->Init("table_weight", by_hand.Params().at("table_weight"));
  by_hand.ForwardBackward(0);
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
      Training training(kEmbedding, true, run);
      const HostTensor before = training.Params().at("table_weight");
      HostTensor table = before;
      std::vector<double> first(static_cast<size_t>(table.elements())), second(first.size());
      for (int step = 0; step < kSteps; ++step) {
        training.Steps(step, step + 1);
        std::vector<double> gradient(first.size());
        for (const HostTensor& own : training.Gradients()) {
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
      const HostTensor after = training.Params().at("table_weight");
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
    Training whole(kTied, false, run), asked(kTied, true, run);
    EXPECT_FALSE(asked.by_rows());
    whole.Steps(0, kSteps);
    asked.Steps(0, kSteps);
    EXPECT_EQ(asked.Params(), whole.Params());
  }
}

TEST(Sparse, DevicesBeyondTheHostsReachHaveWholeGradients) {
  Way run{.devices = {Accelerator(0), Accelerator(1)}};
  Training whole(kEmbedding, false, run), asked(kEmbedding, true, run);
  EXPECT_FALSE(asked.by_rows());
  whole.Steps(0, 2);
  asked.Steps(0, 2);
  EXPECT_EQ(asked.Params(), whole.Params());
}

TEST(Sparse, ClippedByTheNormOfAllGradients) {
  Way run{.devices = {Cpu(0), Cpu(1)}, .optimizer = "sgd(lr=0.5, clip_norm=0.1)"};
  Training whole(kEmbedding, false, run), rows(kEmbedding, true, run);
  whole.Steps(0, kSteps);
  rows.Steps(0, kSteps);
  for (const auto& [name, value] : whole.Params()) EXPECT_LT(MaxAbsDiff(rows.Params().at(name), value), 1e-6) << name;
}

// Whichever gradient it is: the table's alone, of which each device has a finite part, or another one alone.
TEST(Sparse, AGradientThatIsNotFiniteMovesNothing) {
  const Net net = [](bool sparse) { return Head(Summed(sparse)); };
  const Way run{.devices = {Cpu(0), Cpu(1)}, .optimizer = "adam(lr=0.05)"};
  const auto set = [](Training* training, const std::string& name, double value) {
    training->group_.SetParams({{name, HostTensor::Full(DType::kFloat32, training->Params().at(name).shape(), value)}},
                               {}, {.allow_missing = true});
  };
  for (const bool of_table : {true, false}) {
    Training training(net, true, run), other(net, true, run);
    training.Steps(0, 2);
    other.Steps(0, 2);
    const HostTensorMap good = training.Params();
    set(&training, "table_weight", of_table ? 0 : 1e20);
    set(&training, "fc_weight", of_table ? 1e20 : 0);
    const HostTensorMap params = training.Params(), state = training.updater_->State();
    // Row 7 gets 2.4e18 / 5 * 1e20 for each of four words of the first sample and of the last; 5 outputs share it.
    HostTensor label(DType::kFloat32, {kBatch, 5});
    for (const int64_t i : {int64_t{0}, (kBatch - 1) * 5}) label.Set(i, of_table ? 2.4e18 : 1e20);
    const HostTensor words = WordsOf({kBatch, kWords}, [](int64_t) { return 7; });
    const std::string message = MessageOf<NumericError>([&] { training.Step(MakeBatch(words, label)); });
    const std::string expected = of_table ? "the gradient of \"table_weight\" is not finite: element 42"
                                          : "the gradient of \"fc_weight\" is not finite";
    EXPECT_NE(message.find(expected), std::string::npos) << message;
    EXPECT_TRUE(FirstNotFinite({{"0", training.Gradients()[0]}, {"1", training.Gradients()[1]}}).empty());
    EXPECT_EQ(training.Params(), params);
    EXPECT_EQ(training.updater_->State(), state);
    training.updater_->GoBack(3);
    training.group_.SetParams(good, {});
    training.Steps(2, 4);
    other.Steps(2, 4);
    EXPECT_EQ(training.Params(), other.Params());
  }
}

TEST(Sparse, GoesOnFromASavedState) {
  Way run{.optimizer = "adam(lr=0.05)"};
  Training through(kEmbedding, true, run), begun(kEmbedding, true, run), resumed(kEmbedding, true, run);
  through.Steps(0, 4);
  begun.Steps(0, 2);
  resumed.group_.SetParams(begun.Params(), {});
  resumed.updater_->SetState(begun.updater_->State());
  resumed.updater_->SetStep(2);
  resumed.Steps(2, 4);
  EXPECT_EQ(resumed.Params(), through.Params());
}

TEST(Sparse, WhatGoesByAllOfATableIsRefused) {
  EXPECT_NE(MessageOf<Error>([] {
              Training(kEmbedding, true, {.optimizer = "lamb(lr=0.1)"});
            }).find("parameter \"table_weight\": its gradient is kept by rows, but lamb goes by the norm of all of it"),
            std::string::npos);
  // A net of the same table that is tied there.
  Training rows(kEmbedding, true, {});
  GroupOptions shared = rows.group_.options();
  shared.shared_group = &rows.group_;
  EXPECT_NE(MessageOf<Error>([&] {
              DataParallelExecutorGroup(kTied(true), shared);
            }).find("parameter \"table_weight\": its gradient is kept by rows, but this network needs all of it"),
            std::string::npos);
  EXPECT_NE(MessageOf<ModelError>([] {
              Take(Variable("x"), Variable("i"), {.axis = 1, .sparse_grad = true});
            }).find("sparse_grad is of rows: expected axis 0 and batch_dims 0, got 1 and 0"),
            std::string::npos);
}

}  // namespace
}  // namespace bindery
