#include "train/data/samples/sample_iter.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "tests/message_of.h"
#include "train/data/prefetch_iter.h"

namespace bindery {
namespace {

constexpr LastBatch kAll[] = {LastBatch::kShort, LastBatch::kPad, LastBatch::kDiscard, LastBatch::kRollOver,
                              LastBatch::kRepeat};

// A sample says what it was made of: its number and its sweep; its label is its number.
class SpokenSamples : public SampleSource {
 public:
  explicit SpokenSamples(int64_t samples, std::set<int64_t> damaged = {})
      : samples_(samples), damaged_(std::move(damaged)) {}
  int64_t samples() const override { return samples_; }
  const std::vector<SampleArray>& data() const override { return data_; }
  const std::vector<SampleArray>& labels() const override { return labels_; }
  void Make(int64_t number, int64_t sweep, std::span<void* const> to) const override {
    if (damaged_.contains(number)) Throw<DataError>("\"file\", record {}: damaged", number);
    static_cast<int64_t*>(to[0])[0] = number;
    static_cast<int64_t*>(to[0])[1] = sweep;
    static_cast<float*>(to[1])[0] = static_cast<float>(number);
  }
  uint64_t Fingerprint() const override { return static_cast<uint64_t>(samples_); }

 private:
  const int64_t samples_;
  const std::set<int64_t> damaged_;
  const std::vector<SampleArray> data_{{"data", {2}, DType::kInt64}}, labels_{{"softmax_label", {}, DType::kFloat32}};
};

SampleSourcePtr Spoken(int64_t samples, std::set<int64_t> damaged = {}) {
  return std::make_shared<SpokenSamples>(samples, std::move(damaged));
}

// The real rows' (number, sweep), a batch each; of `batches` batches, with a Reset where a sweep ends.
using Rows = std::vector<std::pair<int64_t, int64_t>>;
Rows RowsOf(const Batch& batch) {
  Rows rows;
  for (int64_t i = 0; i < batch.samples; ++i) {
    const auto number = static_cast<int64_t>(batch.data[0].At(2 * i));
    EXPECT_EQ(batch.label[0].At(i), static_cast<double>(number));
    EXPECT_EQ(batch.index[static_cast<size_t>(i)], number);
    rows.emplace_back(number, static_cast<int64_t>(batch.data[0].At(2 * i + 1)));
  }
  return rows;
}
std::vector<Rows> Take(DataIter& iter, int batches) {
  std::vector<Rows> taken;
  while (static_cast<int>(taken.size()) < batches) {
    const BatchPtr batch = iter.Next();
    if (batch == nullptr) {
      iter.Reset();
    } else {
      EXPECT_EQ(batch->data[0].shape()[0], batch->samples + batch->pad);
      taken.push_back(RowsOf(*batch));
    }
  }
  return taken;
}

// Of those that nobody holds, and where no sample of this one can be read, with none of theirs.
TEST(SampleIter, BatchesLieWhereEarlierOnesLay) {
  SampleIter iter(Spoken(100, {17}), {.batch_size = 4, .last_batch = LastBatch::kRepeat, .skip_damaged = true});
  std::set<const void*> places;
  for (int64_t i = 0; i < 60; ++i) {
    const BatchPtr batch = iter.Next();
    Rows expected;
    for (int64_t number = 4 * i % 100; number < 4 * i % 100 + 4; ++number) {
      if (number != 17) expected.emplace_back(number, 4 * i / 100);
    }
    EXPECT_EQ(RowsOf(*batch), expected);
    places.insert(batch->data[0].raw());
  }
  EXPECT_LE(places.size(), 3u + 3u) << "but for what was made anew without a damaged sample";
}

TEST(SampleIter, EverySampleOncePerSweepAndMadeAsThatSweeps) {
  for (const LastBatch last : kAll) {
    SampleIter iter(Spoken(10), {.batch_size = 4, .shuffle = true, .seed = 3, .last_batch = last});
    std::map<int64_t, std::set<int64_t>> of_sweep;
    size_t rows = 0;
    for (const Rows& batch : Take(iter, 20)) {
      for (const auto& [number, sweep] : batch) {
        EXPECT_TRUE(of_sweep[sweep].insert(number).second) << number << " twice in sweep " << sweep;
        ++rows;
      }
    }
    const size_t full = last == LastBatch::kDiscard ? 8 : 10;
    for (size_t sweep = 0; sweep + 1 < of_sweep.size(); ++sweep) {
      EXPECT_EQ(of_sweep[static_cast<int64_t>(sweep)].size(), full) << static_cast<int>(last);
    }
    EXPECT_GE(rows, 64u);
  }
}

TEST(SampleIter, WorkersChangeNothing) {
  for (const LastBatch last : kAll) {
    const auto take = [&](int workers) {
      SampleIter iter(Spoken(101), {.batch_size = 16, .shuffle = true, .last_batch = last, .workers = workers});
      return Take(iter, 30);
    };
    const std::vector<Rows> one = take(1);
    for (const int workers : {2, 5}) EXPECT_EQ(take(workers), one);
  }
}

// Cut off after any number of batches, alone and prefetched.
TEST(SampleIter, ResumesAnywhere) {
  for (const LastBatch last : kAll) {
    const SampleIterOptions options{.batch_size = 4, .shuffle = true, .seed = 5, .last_batch = last, .workers = 2};
    SampleIter whole(Spoken(10), options);
    const std::vector<Rows> expected = Take(whole, 14);
    for (int cut = 0; cut < 8; ++cut) {
      PrefetchIter before(std::make_unique<SampleIter>(Spoken(10), options));
      Take(before, cut);
      SampleIter after(Spoken(10), options);
      after.LoadState(before.SaveState());
      EXPECT_EQ(Take(after, 6), std::vector<Rows>(expected.begin() + cut, expected.begin() + cut + 6)) << cut;
    }
  }
}

TEST(SampleIter, PartsTogetherTrainWhatOneProcessWould) {
  for (const LastBatch last : kAll) {
    const auto options = [&](int64_t part, int64_t parts) {
      return SampleIterOptions{
          .batch_size = 6, .shuffle = true, .seed = 2, .last_batch = last, .part = part, .parts = parts};
    };
    SampleIter one(Spoken(10), options(0, 1));
    const std::vector<Rows> expected = Take(one, 9);
    for (const int64_t parts : {2, 3}) {
      std::vector<Rows> together(9);
      for (int64_t part = 0; part < parts; ++part) {
        SampleIter iter(Spoken(10), options(part, parts));
        EXPECT_EQ(iter.batch_size(), 6 / parts);
        const std::vector<Rows> mine = Take(iter, 9);
        for (size_t i = 0; i < 9; ++i) together[i].insert(together[i].end(), mine[i].begin(), mine[i].end());
        EXPECT_EQ(iter.SaveState(), one.SaveState());  // so a checkpoint of one is one of all
      }
      EXPECT_EQ(together, expected);
    }
  }
}

TEST(SampleIter, PartsAreOfEqualNumbersOfRowsAndABatchOfFewerSamplesThanPartsIsLeftOut) {
  for (int64_t part = 0; part < 4; ++part) {
    SampleIter iter(Spoken(10), {.batch_size = 8, .part = part, .parts = 4});
    const BatchPtr whole = iter.Next();
    EXPECT_EQ(RowsOf(*whole), (Rows{{2 * part, 0}, {2 * part + 1, 0}}));
    EXPECT_EQ(whole->first, 2 * part);
    EXPECT_EQ(iter.Next(), nullptr);  // of two samples
    iter.Reset();
    EXPECT_EQ(RowsOf(*iter.Next()), (Rows{{2 * part, 1}, {2 * part + 1, 1}}));
    SampleIter uneven(Spoken(7), {.batch_size = 8, .part = part, .parts = 4});
    const BatchPtr batch = uneven.Next();
    EXPECT_EQ(batch->samples, part == 0 ? 1 : 2);  // 0 | 1 2 | 3 4 | 5 6
    EXPECT_EQ(batch->samples + batch->pad, 2);
  }
}

TEST(SampleIter, DamagedSamplesAreErrorsThatComeAgain) {
  SampleIter iter(Spoken(6, {4}), {.batch_size = 3, .workers = 3});
  EXPECT_EQ(Take(iter, 1)[0].size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(MessageOf<DataError>([&] { iter.Next(); }), "DataError: \"file\", record 4: damaged");
  }
}

TEST(SampleIter, DamagedSamplesAreSkippedAndCountedIfAsked) {
  const SampleIterOptions options{.batch_size = 3, .skip_damaged = true};
  SampleIter iter(Spoken(7, {1, 6}), options);
  const BatchPtr first = iter.Next();
  EXPECT_EQ(RowsOf(*first), (Rows{{0, 0}, {2, 0}}));
  EXPECT_EQ(first->pad, 1);
  EXPECT_EQ(iter.skipped(), 1);
  SampleIter resumed(Spoken(7, {1, 6}), options);
  resumed.LoadState(iter.SaveState());
  EXPECT_EQ(resumed.skipped(), 1);
  resumed.Next();
  EXPECT_EQ(resumed.Next(), nullptr);  // of the last batch nothing is left
  EXPECT_EQ(resumed.skipped(), 2);
  EXPECT_TRUE(resumed.is_new_epoch());
}

TEST(SampleIter, BatchesOfDamagedSamplesArePassedOver) {
  const auto open = [](std::set<int64_t> damaged, LastBatch last_batch) {
    return SampleIter(Spoken(9, std::move(damaged)), {.batch_size = 3, .last_batch = last_batch, .skip_damaged = true});
  };
  const Rows first = {{0, 0}, {1, 0}, {2, 0}}, last = {{6, 0}, {7, 0}, {8, 0}}, again = {{0, 1}, {1, 1}, {2, 1}};
  SampleIter middle = open({3, 4, 5}, LastBatch::kShort), resumed = open({3, 4, 5}, LastBatch::kShort);
  middle.Next();
  resumed.LoadState(middle.SaveState());
  for (SampleIter* const iter : {&middle, &resumed}) {
    EXPECT_EQ(RowsOf(*iter->Next()), last);
    EXPECT_EQ(iter->skipped(), 3);
    EXPECT_EQ(iter->previous_epoch_detail(), 1.0 / 3);
    EXPECT_EQ(iter->epoch_detail(), 1);
    EXPECT_TRUE(iter->is_new_epoch());
    EXPECT_EQ(iter->Next(), nullptr);
  }
  EXPECT_EQ(middle.SaveState(), resumed.SaveState());
  // Where a sweep begins, and ends, and no batch stands between.
  EXPECT_EQ(Take(*std::make_unique<PrefetchIter>(std::make_unique<SampleIter>(
                     Spoken(9, {0, 1, 2, 6, 7, 8}), SampleIterOptions{.batch_size = 3, .skip_damaged = true})),
                 2),
            (std::vector<Rows>{{{3, 0}, {4, 0}, {5, 0}}, {{3, 1}, {4, 1}, {5, 1}}}));
  SampleIter repeated = open({3, 4, 5, 6, 7, 8}, LastBatch::kRepeat);
  EXPECT_EQ(RowsOf(*repeated.Next()), first);
  EXPECT_FALSE(repeated.is_new_epoch());
  EXPECT_EQ(RowsOf(*repeated.Next()), again);
  EXPECT_TRUE(repeated.is_new_epoch());
  EXPECT_EQ(repeated.epoch(), 1);
  EXPECT_EQ(repeated.previous_epoch_detail(), 1.0 / 3);
}

TEST(SampleIter, NothingLeftIsAnError) {
  SampleIter none(Spoken(4, {0, 1, 2, 3}), {.batch_size = 2, .last_batch = LastBatch::kRepeat, .skip_damaged = true});
  SampleIter part(Spoken(4, {1}), {.batch_size = 2, .part = 1, .parts = 2, .skip_damaged = true});
  const std::string end = " samples of a batch can be read; the last one: \"file\", record ";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(MessageOf<DataError>([&] { none.Next(); }), "DataError: none of the 2" + end + "3: damaged");
    EXPECT_EQ(MessageOf<DataError>([&] { part.Next(); }), "DataError: none of the 1" + end + "1: damaged");
  }
  EXPECT_EQ(none.skipped() + part.skipped(), 0);
}

// Nor do sweeps end without a word whose samples do not fill their last batch.
TEST(SampleIter, NothingLeftOfASweepIsAnError) {
  for (const LastBatch last_batch : {LastBatch::kDiscard, LastBatch::kRollOver}) {
    SampleIter none(Spoken(5, {0, 1, 2, 3, 4}), {.batch_size = 2, .last_batch = last_batch, .skip_damaged = true});
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(MessageOf<DataError>([&] { none.Next(); }),
                "DataError: none of the 4 samples of a sweep can be read; the last one: \"file\", record 3: damaged");
    }
    SampleIter some(Spoken(5, {2, 3}), {.batch_size = 2, .last_batch = last_batch, .skip_damaged = true});
    EXPECT_NE(some.Next(), nullptr);
    EXPECT_EQ(some.Next(), nullptr) << "the end of a sweep that had a batch";
  }
}

TEST(SampleIter, StatesOfOthersAreRefused) {
  SampleIter iter(Spoken(7), {.batch_size = 3});
  EXPECT_EQ(MessageOf<CheckpointError>([&] { SampleIter(Spoken(8), {.batch_size = 3}).LoadState(iter.SaveState()); }),
            "CheckpointError: the iterator's state was saved with other data: other files, other records in them or "
            "other settings of how samples are made");
  EXPECT_EQ(MessageOf<CheckpointError>([&] { SampleIter(Spoken(7), {.batch_size = 2}).LoadState(iter.SaveState()); }),
            "CheckpointError: the iterator's state was saved with another \"batch_size\": 3, but here it is 2");
  EXPECT_EQ(MessageOf<CheckpointError>([&] { iter.LoadState({}); }),
            "CheckpointError: this is not the state of a sample iterator: it has no \"samples_fingerprint\"");
  EXPECT_EQ(MessageOf<DataError>([] { SampleIter(Spoken(7), {.batch_size = 3, .parts = 2}); }),
            "DataError: batch size 3: it is that of all parts together, but cannot be shared out among 2");
}

TEST(Samples, OfArraysChosenAndSplit) {
  const auto array = [](HostTensor values) { return std::make_shared<const HostTensor>(std::move(values)); };
  const SampleSourcePtr all = SamplesOf({{"data", array(HostTensor::From({4, 2}, {0, 1, 10, 11, 20, 21, 30, 31})), ""}},
                                        {{"softmax_label", array(HostTensor::From({4}, {0, 1, 2, 3})), ""}});
  SampleIter iter(ChooseSamples(all, {2, 0}), {.batch_size = 2});
  const BatchPtr batch = iter.Next();
  EXPECT_EQ(batch->data[0], HostTensor::From({2, 2}, {20, 21, 0, 1}));
  EXPECT_EQ(batch->label[0], HostTensor::From({2}, {2, 0}));
  const SplitSamples split = SplitSource(Spoken(100), 0.25);
  EXPECT_EQ(split.rest->samples(), 75);
  std::set<int64_t> seen;
  for (const SampleSourcePtr& source : {split.rest, split.part}) {
    SampleIter numbers(source, {.batch_size = 100});
    const BatchPtr labelled = numbers.Next();
    for (const double label : labelled->label[0].data<float>()) {
      EXPECT_TRUE(seen.insert(static_cast<int64_t>(label)).second);
    }
  }
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_EQ(MessageOf<DataError>([&] { ChooseSamples(all, {4}); }), "DataError: sample 4 was chosen, but there are 4");
  EXPECT_EQ(MessageOf<DataError>([&] {
              SamplesOf({{"data", array(HostTensor(DType::kFloat32, {3, 2})), ""}},
                        {{"label", array(HostTensor(DType::kFloat32, {2})), ""}});
            }),
            "DataError: array \"label\" has 2 samples, but \"data\" has 3");
}

}  // namespace
}  // namespace bindery
