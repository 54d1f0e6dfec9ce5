#include "train/data/array_iter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

// Data (n, 2) holds the sample's number and its negative; the label is the number divided by `per_label`.
ArrayIter Numbers(int64_t n, const ArrayIterOptions& options, int64_t per_label = 1) {
  HostTensor data(DType::kFloat32, {n, 2}), label(DType::kFloat32, {n});
  for (int64_t i = 0; i < n; ++i) {
    data.Set(2 * i, static_cast<double>(i));
    data.Set(2 * i + 1, static_cast<double>(-i));
    label.Set(i, static_cast<double>(i / per_label));
  }
  return ArrayIter(std::move(data), std::move(label), options);
}

std::vector<int64_t> Rows(const Batch& batch) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < batch.data[0].shape()[0]; ++i) {
    rows.push_back(static_cast<int64_t>(batch.data[0].At(2 * i)));
    EXPECT_EQ(batch.data[0].At(2 * i + 1), -batch.data[0].At(2 * i));
  }
  EXPECT_EQ(rows, batch.index);
  EXPECT_EQ(static_cast<int64_t>(rows.size()), batch.samples + batch.pad);
  return rows;
}

using Epoch = std::vector<std::vector<int64_t>>;
Epoch RestOfEpoch(DataIter* iter) {
  Epoch batches;
  while (const auto batch = iter->Next()) batches.push_back(Rows(*batch));
  return batches;
}

std::map<double, int> LabelCounts(const std::vector<std::shared_ptr<const Batch>>& batches) {
  std::map<double, int> counts;
  for (const auto& batch : batches) {
    for (int64_t i = 0; i < batch->label[0].elements(); ++i) ++counts[batch->label[0].At(i)];
  }
  return counts;
}

std::vector<std::shared_ptr<const Batch>> Batches(DataIter* iter) {
  std::vector<std::shared_ptr<const Batch>> batches;
  while (auto batch = iter->Next()) batches.push_back(std::move(batch));
  return batches;
}

constexpr LastBatch kAll[] = {LastBatch::kShort, LastBatch::kPad, LastBatch::kDiscard, LastBatch::kRollOver,
                              LastBatch::kRepeat};

TEST(ArrayIter, DescribesItself) {
  ArrayIter iter = Numbers(10, {.batch_size = 4});
  EXPECT_EQ(iter.ProvideData(), (std::vector<DataDesc>{{.name = "data", .shape = {4, 2}}}));
  EXPECT_EQ(iter.ProvideLabel(), (std::vector<DataDesc>{{.name = "softmax_label", .shape = {4}}}));
  EXPECT_EQ(iter.batch_size(), 4);
  EXPECT_EQ(iter.samples(), 10);
  EXPECT_EQ(DataDesc{}.BatchAxis(), -1);  // a scalar
  EXPECT_EQ((DataDesc{.shape = {4, 2}}.BatchAxis()), 0);
  EXPECT_EQ((DataDesc{.layout = "TNC"}.BatchAxis()), 1);
  EXPECT_EQ((DataDesc{.layout = "TC"}.BatchAxis()), -1);
}

// What is bound for it needs no more memory than the data.
TEST(ArrayIter, DescribesNoBatchLargerThanTheData) {
  const HostTensor data(DType::kFloat32, {3, 2}), labels(DType::kFloat32, {3});
  EXPECT_EQ(ArrayIter(data, labels, {.batch_size = 100}).ProvideData()[0].shape, (Shape{3, 2}));
  EXPECT_EQ(ArrayIter(data, labels, {.batch_size = 100}).ProvideLabel()[0].shape, Shape{3});
  EXPECT_EQ(ArrayIter(data, labels, {.batch_size = 5, .last_batch = LastBatch::kPad}).ProvideData()[0].shape,
            (Shape{5, 2}));
}

TEST(ArrayIter, TheLastBatchIsShortByDefault) {
  ArrayIter iter = Numbers(5, {.batch_size = 2});
  const Epoch expected = {{0, 1}, {2, 3}, {4}};
  EXPECT_EQ(RestOfEpoch(&iter), expected);
  EXPECT_EQ(iter.Next(), nullptr);
  iter.Reset();
  EXPECT_EQ(RestOfEpoch(&iter), expected);
}

// MXNet's expectations: 1000 samples with labels 0, 0, ... 9, batches of 128.
TEST(ArrayIter, PadsWithTheFirstSamples) {
  ArrayIter iter = Numbers(1000, {.batch_size = 128, .last_batch = LastBatch::kPad}, 100);
  for (int epoch = 0; epoch < 2; ++epoch) {
    const auto batches = Batches(&iter);
    ASSERT_EQ(batches.size(), 8u);
    EXPECT_EQ(LabelCounts(batches).at(0), 124);
    EXPECT_EQ(LabelCounts(batches).at(8), 100);
    EXPECT_EQ(batches.back()->samples, 104);
    EXPECT_EQ(batches.back()->pad, 24);
    iter.Reset();
  }
}

TEST(ArrayIter, DiscardsTheRest) {
  ArrayIter iter = Numbers(1000, {.batch_size = 128, .last_batch = LastBatch::kDiscard}, 100);
  for (int epoch = 0; epoch < 2; ++epoch) {
    const auto batches = Batches(&iter);
    ASSERT_EQ(batches.size(), 7u);
    EXPECT_EQ(LabelCounts(batches).at(0), 100);
    EXPECT_EQ(LabelCounts(batches).at(8), 96);
    EXPECT_EQ(iter.epoch(), epoch + 1);
    EXPECT_TRUE(iter.is_new_epoch());
    EXPECT_EQ(iter.epoch_detail(), epoch + 1);
    iter.Reset();
  }
}

TEST(ArrayIter, RollsTheRestOver) {
  ArrayIter padded = Numbers(1000, {.batch_size = 128, .last_batch = LastBatch::kPad}, 100);
  ArrayIter iter = Numbers(1000, {.batch_size = 128, .last_batch = LastBatch::kRollOver}, 100);
  EXPECT_EQ(Batches(&iter).size(), 7u);
  EXPECT_DOUBLE_EQ(iter.epoch_detail(), 0.896);
  EXPECT_FALSE(iter.is_new_epoch());
  iter.Reset();
  EXPECT_DOUBLE_EQ(iter.epoch_detail(), 0.896);
  // Its first batch is what padding would have made the last.
  const auto first = iter.Next();
  EXPECT_EQ(first->data, Batches(&padded).back()->data);
  EXPECT_EQ(first->samples, 128);
  EXPECT_EQ(first->pad, 0);
  EXPECT_TRUE(iter.is_new_epoch());
  EXPECT_DOUBLE_EQ(iter.epoch_detail(), 1.024);
  EXPECT_DOUBLE_EQ(iter.previous_epoch_detail(), 0.896);
  EXPECT_EQ(Batches(&iter).size(), 7u);  // 24 + 7 * 128 = 920; 80 are kept
  iter.Reset();
  EXPECT_EQ(iter.Next()->index.front(), 920);
}

TEST(ArrayIter, ForgetsTheRestOnHardReset) {
  ArrayIter iter = Numbers(5, {.batch_size = 2, .last_batch = LastBatch::kRollOver});
  EXPECT_EQ(RestOfEpoch(&iter), (Epoch{{0, 1}, {2, 3}}));
  iter.HardReset();
  EXPECT_EQ(RestOfEpoch(&iter), (Epoch{{0, 1}, {2, 3}}));
  iter.Reset();
  EXPECT_EQ(RestOfEpoch(&iter), (Epoch{{4, 0}, {1, 2}, {3, 4}}));
  iter.Reset();
  EXPECT_EQ(RestOfEpoch(&iter), (Epoch{{0, 1}, {2, 3}}));
}

TEST(ArrayIter, TilesABatchLargerThanTheData) {
  ArrayIter iter = Numbers(10, {.batch_size = 205, .last_batch = LastBatch::kPad});
  const auto batch = iter.Next();
  EXPECT_EQ(batch->samples, 10);
  EXPECT_EQ(batch->pad, 195);
  for (size_t i = 0; i < 205; ++i) EXPECT_EQ(Rows(*batch)[i], static_cast<int64_t>(i % 10));
  EXPECT_EQ(iter.Next(), nullptr);
}

TEST(ArrayIter, CountsBatchesOf5000Images) {
  const std::map<LastBatch, size_t> expected = {
      {LastBatch::kPad, 40}, {LastBatch::kDiscard, 39}, {LastBatch::kRollOver, 39}, {LastBatch::kShort, 40}};
  for (const auto& [last_batch, count] : expected) {
    ArrayIter iter = Numbers(5000, {.batch_size = 128, .last_batch = last_batch});
    EXPECT_EQ(Batches(&iter).size(), count);
  }
}

// Chainer's SerialIterator with repeat: its numbers for N = 5 and batches of 2.
TEST(ArrayIter, RepeatsOverTheEndOfASweep) {
  ArrayIter iter = Numbers(5, {.batch_size = 2, .last_batch = LastBatch::kRepeat});
  EXPECT_EQ(iter.previous_epoch_detail(), -1);
  EXPECT_FALSE(iter.is_new_epoch());
  struct Expected {
    std::vector<int64_t> rows;
    int64_t epoch;
    bool is_new_epoch;
    double detail, previous;
  };
  for (const Expected& expected : std::vector<Expected>{{{0, 1}, 0, false, 0.4, 0},
                                                        {{2, 3}, 0, false, 0.8, 0.4},
                                                        {{4, 0}, 1, true, 1.2, 0.8},
                                                        {{1, 2}, 1, false, 1.6, 1.2},
                                                        {{3, 4}, 2, true, 2.0, 1.6},
                                                        {{0, 1}, 2, false, 2.4, 2.0}}) {
    EXPECT_EQ(Rows(*iter.Next()), expected.rows);
    EXPECT_EQ(iter.epoch(), expected.epoch);
    EXPECT_EQ(iter.is_new_epoch(), expected.is_new_epoch);
    EXPECT_DOUBLE_EQ(iter.epoch_detail(), expected.detail);
    EXPECT_DOUBLE_EQ(iter.previous_epoch_detail(), expected.previous);
  }
}

TEST(ArrayIter, RepeatsSeveralSweepsInOneBatch) {
  ArrayIter iter = Numbers(2, {.batch_size = 5, .last_batch = LastBatch::kRepeat});
  EXPECT_EQ(Rows(*iter.Next()), (std::vector<int64_t>{0, 1, 0, 1, 0}));
  EXPECT_EQ(iter.epoch(), 2);
  EXPECT_DOUBLE_EQ(iter.epoch_detail(), 2.5);
  EXPECT_EQ(Rows(*iter.Next()), (std::vector<int64_t>{1, 0, 1, 0, 1}));
  EXPECT_EQ(iter.epoch(), 5);
}

TEST(ArrayIter, CountsEpochsWithoutRepeat) {
  ArrayIter iter = Numbers(6, {.batch_size = 2});
  iter.Next();
  EXPECT_DOUBLE_EQ(iter.epoch_detail(), 2 / 6.0);
  iter.Next();
  EXPECT_FALSE(iter.is_new_epoch());
  iter.Next();
  EXPECT_TRUE(iter.is_new_epoch());
  EXPECT_EQ(iter.epoch_detail(), 1);
  EXPECT_DOUBLE_EQ(iter.previous_epoch_detail(), 4 / 6.0);
  EXPECT_EQ(iter.Next(), nullptr);
  EXPECT_EQ(iter.epoch(), 1);
  iter.Reset();
  EXPECT_EQ(iter.epoch(), 1);
  EXPECT_EQ(iter.epoch_detail(), 1);
}

TEST(ArrayIter, EndsAtOnceWithoutData) {
  for (const LastBatch last_batch : kAll) {
    ArrayIter iter = Numbers(0, {.batch_size = 4, .shuffle = true, .last_batch = last_batch});
    EXPECT_EQ(iter.Next(), nullptr);
    iter.Reset();
    EXPECT_EQ(iter.Next(), nullptr);
    EXPECT_EQ(iter.epoch_detail(), 0);
    iter.LoadState(iter.SaveState());
  }
}

TEST(ArrayIter, ShufflesEverySweepAnew) {
  const ArrayIterOptions options{.batch_size = 10, .shuffle = true, .seed = 7};
  ArrayIter iter = Numbers(100, options);
  std::vector<std::vector<int64_t>> sweeps;
  for (int sweep = 0; sweep < 3; ++sweep) {
    std::vector<int64_t> rows;
    for (const auto& batch : RestOfEpoch(&iter)) rows.insert(rows.end(), batch.begin(), batch.end());
    std::vector<int64_t> sorted = rows, all(100);
    std::sort(sorted.begin(), sorted.end());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(sorted, all);
    EXPECT_NE(rows, all);
    sweeps.push_back(rows);
    iter.Reset();
  }
  EXPECT_NE(sweeps[0], sweeps[1]);
  EXPECT_NE(sweeps[1], sweeps[2]);
  ArrayIter again = Numbers(100, options);
  EXPECT_EQ(again.Next()->index, std::vector<int64_t>(sweeps[0].begin(), sweeps[0].begin() + 10));
  ArrayIter other = Numbers(100, {.batch_size = 10, .shuffle = true, .seed = 8});
  EXPECT_NE(other.Next()->index, std::vector<int64_t>(sweeps[0].begin(), sweeps[0].begin() + 10));
}

TEST(ArrayIter, ResetBeginsAnotherSweepOnlyOnceThisOneHasBegun) {
  ArrayIter iter = Numbers(80, {.batch_size = 20, .shuffle = true});
  ArrayIter reset = Numbers(80, {.batch_size = 20, .shuffle = true});
  reset.Reset();
  const auto first = iter.Next();
  EXPECT_EQ(reset.Next()->index, first->index);
  iter.Reset();  // abandons the sweep
  EXPECT_EQ(iter.epoch(), 0);
  const Epoch second = RestOfEpoch(&iter);
  EXPECT_EQ(second.size(), 4u);
  EXPECT_NE(second[0], first->index);
}

TEST(ArrayIter, KeptSamplesAreThoseOfTheirOwnPermutation) {
  const ArrayIterOptions options{.batch_size = 4, .shuffle = true, .last_batch = LastBatch::kRollOver};
  ArrayIter iter = Numbers(10, options);
  ArrayIter repeated = Numbers(10, {.batch_size = 4, .shuffle = true, .last_batch = LastBatch::kRepeat});
  for (int i = 0; i < 50; ++i) {
    auto batch = iter.Next();
    if (batch == nullptr) {
      iter.Reset();
      batch = iter.Next();
    }
    EXPECT_EQ(batch->index, repeated.Next()->index) << i;
    EXPECT_EQ(iter.epoch_detail(), repeated.epoch_detail()) << i;
    EXPECT_EQ(iter.is_new_epoch(), repeated.is_new_epoch()) << i;
  }
}

// An iterator restored after any number of batches goes on as if nothing had happened, bit for bit.
TEST(ArrayIter, ResumesAnywhere) {
  struct Step {
    bool end;
    std::vector<int64_t> rows;
    int64_t pad;
    double detail, previous;
    bool is_new_epoch;
    bool operator==(const Step&) const = default;
  };
  for (const LastBatch last_batch : kAll) {
    const ArrayIterOptions options{.batch_size = 3, .shuffle = true, .seed = 3, .last_batch = last_batch};
    const auto advance = [](ArrayIter* iter) {
      const auto batch = iter->Next();
      Step step{batch == nullptr, {}, 0, iter->epoch_detail(), iter->previous_epoch_detail(), iter->is_new_epoch()};
      if (batch != nullptr) {
        step.rows = Rows(*batch);
        step.pad = batch->pad;
      } else {
        iter->Reset();
      }
      return step;
    };
    ArrayIter original = Numbers(10, options);
    std::vector<IterState> states;
    std::vector<Step> steps;
    for (int i = 0; i < 25; ++i) {
      states.push_back(original.SaveState());
      steps.push_back(advance(&original));
    }
    for (size_t start = 0; start < states.size(); ++start) {
      ArrayIter resumed = Numbers(10, options);
      for (size_t i = 0; i < start % 4; ++i) advance(&resumed);  // it may have been used before
      resumed.LoadState(states[start]);
      EXPECT_EQ(resumed.SaveState(), states[start]);
      for (size_t i = start; i < steps.size(); ++i) EXPECT_EQ(advance(&resumed), steps[i]) << start << " " << i;
    }
  }
}

TEST(ArrayIter, RefusesStatesThatDoNotFit) {
  ArrayIter iter = Numbers(10, {.batch_size = 4, .shuffle = true});
  iter.Next();
  const IterState good = iter.SaveState();
  const auto message = [&](const char* key, int64_t value) {
    IterState state = good;
    state[key] = value;
    return MessageOf<CheckpointError>([&] { iter.LoadState(state); });
  };
  EXPECT_EQ(message("samples", 11),
            "CheckpointError: the iterator's state was saved with another \"samples\": 11, but here it is 10");
  EXPECT_EQ(message("checksum", good.at("checksum") ^ 1),
            "CheckpointError: the iterator's state was saved with other data: as many samples, but of other values");
  EXPECT_EQ(message("seed", 1),
            "CheckpointError: the iterator's state was saved with another \"seed\": 1, but here it is 0");
  for (const auto& [key, value] : std::map<const char*, int64_t>{{"position", 10},
                                                                 {"position", -1},
                                                                 {"epoch", -1},
                                                                 {"sweep", -1},
                                                                 {"at_end", 2},
                                                                 {"previous_position", 10}}) {
    EXPECT_NE(message(key, value).find("impossible"), std::string::npos) << key;
  }
  EXPECT_EQ(MessageOf<CheckpointError>([&] {
              iter.LoadState({{"line", 3}});
            }),
            "CheckpointError: this is not the state of an array iterator: it has no \"at_end\"");
  EXPECT_EQ(iter.SaveState(), good);
}

TEST(ArrayIter, BatchesAlongAnyAxis) {
  HostTensor sequence(DType::kInt32, {2, 3, 2});  // T, N, C
  for (int64_t i = 0; i < 12; ++i) sequence.Set(i, static_cast<double>(i));
  const auto shared = [](HostTensor tensor) { return std::make_shared<const HostTensor>(std::move(tensor)); };
  ArrayIter iter(
      {{"sequence", shared(sequence), "TNC"}, {"table", shared(HostTensor::Full(DType::kFloat64, {5}, 2)), "X"}},
      {{"label", shared(HostTensor::From({3}, {7, 8, 9}))}}, {.batch_size = 2});
  EXPECT_EQ(iter.ProvideData()[0], (DataDesc{"sequence", {2, 2, 2}, DType::kInt32, "TNC"}));
  EXPECT_EQ(iter.ProvideData()[1], (DataDesc{"table", {5}, DType::kFloat64, "X"}));
  const auto first = iter.Next();
  EXPECT_EQ(first->data[0], sequence.Slice(1, 0, 2));
  EXPECT_EQ(first->data[1], HostTensor::Full(DType::kFloat64, {5}, 2));
  EXPECT_EQ(first->label[0], HostTensor::From({2}, {7, 8}));
  const auto second = iter.Next();
  EXPECT_EQ(second->data[0], sequence.Slice(1, 2, 3));
  EXPECT_EQ(second->label[0], HostTensor::From({1}, {9}));
}

TEST(ArrayIter, SaysWhatIsWrongWithTheArrays) {
  const auto array = [](const char* name, const Shape& shape, const char* layout = "") {
    return ArrayData{name, std::make_shared<const HostTensor>(DType::kFloat32, shape), layout};
  };
  const auto message = [](std::vector<ArrayData> data, std::vector<ArrayData> label, const ArrayIterOptions& options) {
    return MessageOf<DataError>([&] { ArrayIter(std::move(data), std::move(label), options); });
  };
  EXPECT_EQ(message({array("x", {10, 2})}, {array("y", {9})}, {}),
            "DataError: array \"y\" has 9 samples, but \"x\" has 10");
  EXPECT_EQ(message({array("x", {10}), array("x", {10})}, {}, {}), "DataError: two arrays are called \"x\"");
  EXPECT_EQ(message({array("x", {10}, "TN")}, {}, {}),
            "DataError: array \"x\": the samples should lie along axis 1, but the shape is (10)");
  EXPECT_EQ(message({{"x", nullptr}}, {}, {}), "DataError: array \"x\" is not there");
  EXPECT_EQ(message({array("x", {10})}, {}, {.batch_size = 0}), "DataError: batch size: expected at least 1, got 0");
  EXPECT_EQ(message({array("x", {10}, "C")}, {}, {}), "DataError: an iterator needs an array with a batch axis");
  for (const LastBatch last_batch : {LastBatch::kDiscard, LastBatch::kRollOver}) {
    EXPECT_EQ(message({array("x", {10})}, {}, {.batch_size = 11, .last_batch = last_batch}),
              "DataError: batch size 11: 10 samples make no batch; a short or a padded one is possible");
  }
}

}  // namespace
}  // namespace bindery
