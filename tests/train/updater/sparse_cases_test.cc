// Tables whose gradients are kept by rows, in all sorts of nets and batches, on all sorts of devices: against whole
// gradients, bit by bit where no row waits.
#include <gtest/gtest.h>

#include "engine/backend.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "tests/train/updater/sparse_training.h"

namespace bindery {
namespace {

constexpr int kSteps = 3;

// Devices with shares of many sizes.
std::vector<Way> Ways() {
  return {{.devices = {TestDevice(0)}},
          {.devices = {TestDevice(0), TestDevice(1)}},
          {.devices = {TestDevice(0), TestDevice(1), TestDevice(2)}, .workload = {1, 7, 0}},
          {.devices = {TestDevice(0), TestDevice(1), TestDevice(2)}, .workload = {0, 1, 4}}};
}

bool HostReaches(const Way& way) { return std::ranges::all_of(way.devices, HostAddressable); }

// Both ways of keeping the gradients of `tables` leave the same bits; returns the parameters.
HostTensorMap ExpectSame(const Net& net, const Way& way, const std::vector<BatchPtr>& batches,
                         const std::vector<std::string>& tables = {"table_weight"}) {
  Training whole(net, false, way), rows(net, true, way);
  for (const std::string& table : tables) {
    EXPECT_FALSE(whole.by_rows(table)) << table;
    EXPECT_EQ(rows.by_rows(table), HostReaches(way)) << table;
  }
  for (const BatchPtr& batch : batches) {
    whole.Step(batch);
    rows.Step(batch);
    for (const std::string& table : tables) EXPECT_EQ(rows.Gradients(table), whole.Gradients(table)) << table;
  }
  EXPECT_EQ(rows.Params(), whole.Params()) << way.optimizer;
  return rows.Params();
}

std::vector<BatchPtr> BatchesOf(const Shape& shape, const std::function<int64_t(int64_t)>& word) {
  std::vector<BatchPtr> batches;
  for (int s = 0; s < kSteps; ++s) batches.push_back(MakeBatch(WordsOf(shape, word), Label(s, shape[0])));
  return batches;
}

const HostTensor kZeros(DType::kFloat32, {kRows, kWidth});
const Net kSummed = [](bool sparse) { return Head(Summed(sparse, {.padding_idx = 3})); };

TEST(SparseCases, EveryRuleWhereNoRowWaits) {
  const Net all_rows = [](bool sparse) {
    const Symbol x = Embedding(Variable("data"), Variable("table_weight"),
                               {.input_dim = 7, .output_dim = kWidth, .sparse_grad = sparse}, "embed");
    return Head(Sum(x, {.axes = {1}}));
  };
  for (const char* optimizer :
       {"sgd(lr=0.1, wd=0.1)", "sgd(lr=0.1, momentum=0.9, wd=0.1)", "sgd(lr=0.1, clip_gradient=0.01)", "nag(lr=0.1)",
        "adam(lr=0.1, wd=0.1)", "adamw(lr=0.1, wd=0.1)", "adagrad(lr=0.1)", "rmsprop(lr=0.1)", "ftrl(lr=0.1)",
        "lion(lr=0.1)"}) {
    Way way = Ways()[2];
    way.optimizer = optimizer;
    ExpectSame(all_rows, way, BatchesOf({kBatch, kWords}, [](int64_t i) { return i % 7; }));
  }
}

TEST(SparseCases, NoWords) {
  for (Way way : Ways()) {
    for (const char* optimizer : {"sgd(lr=0.5)", "adam(lr=0.1)"}) {
      way.optimizer = optimizer;
      way.words = 0;
      const HostTensorMap before = Training(kSummed, true, way).Params();
      const HostTensorMap after = ExpectSame(kSummed, way, BatchesOf({kBatch, 0}, [](int64_t) { return 0; }));
      EXPECT_EQ(after.at("table_weight"), before.at("table_weight"));
      EXPECT_NE(after.at("fc_bias"), before.at("fc_bias"));
    }
  }
}

TEST(SparseCases, PaddingAlone) {
  for (Way way : Ways()) {
    way.optimizer = "adam(lr=0.1)";
    const HostTensorMap before = Training(kSummed, true, way).Params();
    const HostTensorMap after = ExpectSame(kSummed, way, BatchesOf({kBatch, kWords}, [](int64_t) { return 3; }));
    EXPECT_EQ(after.at("table_weight"), before.at("table_weight"));
  }
}

TEST(SparseCases, OneWordEverywhere) {
  for (const Way& way : Ways()) ExpectSame(kSummed, way, BatchesOf({kBatch, kWords}, [](int64_t) { return 49; }));
}

TEST(SparseCases, IndicesBelowZeroAndBeyond) {
  const auto outside = [](int64_t i) { return i * i * 11 % 140 - 70; };
  const auto from_the_end = [](int64_t i) { return i * i % 100 - 50; };
  for (Way way : Ways()) {
    way.optimizer = "sgd(lr=0.01)";  // many words are one row
    for (const IndexMode mode : {IndexMode::kClip, IndexMode::kWrap, IndexMode::kZero}) {
      const Net net = [&](bool sparse) { return Head(Summed(sparse, {.padding_idx = 3, .mode = mode})); };
      ExpectSame(net, way, BatchesOf({kBatch, kWords}, outside));
    }
    ExpectSame(kSummed, way, BatchesOf({kBatch, kWords}, from_the_end));
    const Net last = [](bool sparse) { return Head(Summed(sparse, {.padding_idx = -1})); };
    ExpectSame(last, way, BatchesOf({kBatch, kWords}, from_the_end));
  }
}

TEST(SparseCases, AnIndexOutsideEndsTheStepAndMovesNothing) {
  for (const int64_t index : {kRows, -kRows - 1}) {
    for (Way way : Ways()) {
      way.optimizer = "adam(lr=0.1)";
      Training training(kSummed, true, way), other(kSummed, true, way);
      training.Steps(0, 1);
      const HostTensorMap params = training.Params(), state = training.updater_->State();
      const HostTensor words = WordsOf({kBatch, kWords}, [&](int64_t i) { return i == 20 ? index : i; });
      EXPECT_NE(MessageOf<DataError>([&] { training.Step(MakeBatch(words, Label(1))); }).find("is not in -50..49"),
                std::string::npos);
      EXPECT_EQ(training.Params(), params);
      EXPECT_EQ(training.updater_->State(), state);
      training.updater_->GoBack(2);
      training.Steps(1, 3);
      other.Steps(0, 3);
      EXPECT_EQ(training.Params(), other.Params());
    }
  }
}

TEST(SparseCases, TwoTables) {
  const Net net = [](bool sparse) {
    const Symbol other = Variable("other_weight", {.shape = Shape{20, 3}}), words = Variable("data");
    const Symbol x = Take(other, words, {.mode = IndexMode::kWrap, .sparse_grad = sparse}, "take");
    return Head(Concat({Summed(sparse, {}, words), Sum(x, {.axes = {1}})}, {}, "both"));
  };
  for (Way way : Ways()) {
    for (const char* optimizer : {"sgd(lr=0.5)", "sgd(lr=0.5, clip_gradient=0.01)"}) {
      way.optimizer = optimizer;
      std::vector<BatchPtr> batches;
      for (int s = 0; s < kSteps; ++s) batches.push_back(MakeBatch(Words(s), Label(s)));
      ExpectSame(net, way, batches, {"table_weight", "other_weight"});
    }
  }
}

TEST(SparseCases, TwoLookUpsOfATableHaveAWholeGradient) {
  const Net net = [](bool sparse) {
    const Symbol table = Variable("table_weight"), words = Variable("data");
    const EmbeddingAttrs attrs{.input_dim = kRows, .output_dim = kWidth, .sparse_grad = sparse};
    return Head(Embedding(words, table, attrs, "one") * Embedding(words, table, attrs, "other"));
  };
  for (Way way : Ways()) {
    way.optimizer = "adam(lr=0.1)";
    Training whole(net, false, way), asked(net, true, way);
    EXPECT_FALSE(asked.by_rows());
    whole.Steps(0, kSteps);
    asked.Steps(0, kSteps);
    EXPECT_EQ(asked.Params(), whole.Params());
  }
}

TEST(SparseCases, FixedParameters) {
  for (Way way : Ways()) {
    std::vector<BatchPtr> batches;
    for (int s = 0; s < kSteps; ++s) batches.push_back(MakeBatch(Words(s), Label(s)));
    way.fixed = {"fc_weight", "fc_bias"};  // the table alone moves
    const HostTensorMap before = Training(kSummed, true, way).Params(), after = ExpectSame(kSummed, way, batches);
    EXPECT_EQ(after.at("fc_weight"), before.at("fc_weight"));
    EXPECT_NE(after.at("table_weight"), before.at("table_weight"));
    way.fixed = {"table_weight"};
    Training training(kSummed, true, way);
    EXPECT_FALSE(training.by_rows());
    training.Steps(0, 1);
    EXPECT_EQ(training.Params().at("table_weight"), before.at("table_weight"));
    EXPECT_THROW(training.group_.RowGradients("table_weight"), Error);
  }
}

// Batches of other sizes, first larger and then smaller: arrays move, numbers of rows follow.
TEST(SparseCases, BatchesOfOtherSizes) {
  for (const Way& way : Ways()) {
    std::vector<BatchPtr> batches;
    for (const int64_t samples : {9, 30, 2, 1, 9}) {
      batches.push_back(MakeBatch(Words(static_cast<int>(samples), {samples, kWords}), Label(0, samples)));
    }
    ExpectSame(kSummed, way, batches);
  }
}

TEST(SparseCases, AGradientOutlivesWhatComesAfterIt) {
  for (const Way& way : Ways()) {
    Training training(kSummed, true, way);
    training.ForwardBackward(0);
    const std::vector<HostTensor> gradients = training.Gradients();
    training.group_.Reshape({{"data", {300, kWords}, DType::kInt32}}, {{"label", {300, 5}}});
    EXPECT_EQ(training.Gradients(), gradients);
    {
      Way of_shared = way;
      of_shared.words = 100;
      of_shared.shared = &training.group_;
      Training longer(kSummed, true, of_shared);  // a bucket of longer sentences
      EXPECT_EQ(training.Gradients(), gradients);
      longer.Step(MakeBatch(Words(1, {kBatch, 100}), Label(1)));
      EXPECT_NE(training.Gradients(), gradients);
      EXPECT_EQ(training.Gradients(), longer.Gradients());
    }
    EXPECT_NE(training.Gradients(), gradients);  // the store's: of a group that is no more
    training.ForwardBackward(0);
    training.group_.ZeroGradients();
    for (const HostTensor& gradient : training.Gradients()) EXPECT_EQ(gradient, kZeros);
    if (!HostReaches(way)) continue;
    for (const RowTensors& rows : training.group_.RowGradients("table_weight")) {
      EXPECT_EQ(rows.numbers.ToHost(), HostTensor::Full(DType::kInt64, rows.numbers.shape(), -1));
    }
  }
}

// Sentences of several lengths, by groups that share what is trained, in turn.
TEST(SparseCases, Buckets) {
  for (Way way : Ways()) {
    Training whole(kSummed, false, way), rows(kSummed, true, way);
    Way longer = way;
    longer.words = 11;
    longer.shared = &whole.group_;
    Training longer_whole(kSummed, false, longer);
    longer.shared = &rows.group_;
    Training longer_rows(kSummed, true, longer);
    EXPECT_EQ(longer_rows.by_rows(), HostReaches(way));
    for (int step = 0; step < kSteps; ++step) {
      whole.Steps(step, step + 1);
      rows.Steps(step, step + 1);
      for (Training* training : {&longer_whole, &longer_rows}) {
        training->Step(MakeBatch(Words(step, {kBatch, 11}), Label(step)));
      }
    }
    EXPECT_EQ(rows.Params(), whole.Params());
  }
}

TEST(SparseCases, WhatIsWholeInAGroupStaysWholeInASharingOne) {
  for (Way way : Ways()) {
    Training whole(kSummed, false, way);
    way.shared = &whole.group_;
    Training asked(kSummed, true, way);
    EXPECT_FALSE(asked.by_rows());
    asked.Steps(0, 1);
    whole.Steps(1, 2);
    way.shared = nullptr;
    Training other(kSummed, false, way);
    other.Steps(0, 2);
    EXPECT_EQ(asked.Params(), other.Params());
  }
}

TEST(SparseCases, NoGradientFlowsBackInASharingGroup) {
  const Net blocked = [](bool sparse) { return Head(BlockGrad(Summed(sparse))); };
  for (Way way : Ways()) {
    way.optimizer = "sgd(lr=0.1, momentum=0.9)";
    Training training(kSummed, true, way);
    training.ForwardBackward(0);
    EXPECT_TRUE(std::ranges::any_of(training.Gradients(), [](const HostTensor& g) { return g != kZeros; }));
    Way sharing = way;
    sharing.shared = &training.group_;
    Training other(blocked, true, sharing);
    const HostTensorMap before = other.Params();
    other.Steps(0, 2);
    EXPECT_EQ(other.Params().at("table_weight"), before.at("table_weight"));
    EXPECT_NE(other.Params().at("fc_weight"), before.at("fc_weight"));
    for (const HostTensor& gradient : training.Gradients()) EXPECT_EQ(gradient, kZeros);
    if (!HostReaches(way)) continue;
    for (const RowTensors& rows : other.group_.RowGradients("table_weight")) {
      EXPECT_EQ(rows.numbers.shape(), (Shape{0}));
      EXPECT_EQ(rows.rows.shape(), (Shape{0, kWidth}));
    }
  }
}

// A layer that would have it in blocks, and through which nothing flows back, sees the table first.
TEST(SparseCases, ATableIsStoredPlainWhateverElseReadsIt) {
  const Net net = [](bool sparse) {
    const Symbol table = Variable("table_weight", {.shape = Shape{256, 64}});
    const Symbol words = Variable("data"), queries = Embedding(words, {.input_dim = 256, .output_dim = 64}, "queries");
    const Symbol scores = BlockGrad(
        FullyConnected(Sum(queries, {.axes = {1}}), table, {}, {.num_hidden = 256, .no_bias = true}, "scores"));
    const Symbol x = Embedding(words, table, {.input_dim = 256, .output_dim = 64, .sparse_grad = sparse}, "embed");
    return Head(Concat({scores, Sum(x, {.axes = {1}})}, {}, "both"));
  };
  for (Way way : Ways()) {
    way.optimizer = "sgd(lr=0.01)";
    Training whole(net, false, way), rows(net, true, way);
    EXPECT_TRUE(rows.Stored().format.is_plain() || !HostReaches(way));
    const BatchPtr batch = MakeBatch(WordsOf({kBatch, kWords}, [](int64_t i) { return i * 7; }), Label(0));
    for (Training* training : {&whole, &rows}) training->Step(batch);
    EXPECT_LT(MaxAbsDiff(rows.Params().at("table_weight"), whole.Params().at("table_weight")), 1e-5);
  }
}

// The store says which parameters it keeps by rows from the first device's program on; the others' are the same.
TEST(SparseCases, EqualSharesHaveOneProgram) {
  Way way{.devices = {Cpu(0), Cpu(1), Cpu(2)}};
  Training training(kSummed, true, way);
  EXPECT_EQ(training.group_.programs().misses(), 1);
}

}  // namespace
}  // namespace bindery
