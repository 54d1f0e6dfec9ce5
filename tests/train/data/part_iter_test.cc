#include "train/data/part_iter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/host_tensors.h"
#include "tests/message_of.h"
#include "train/data/array_iter.h"
#include "train/data/prefetch_iter.h"

namespace bindery {
namespace {

constexpr int64_t kSamples = 46;

std::unique_ptr<DataIter> Data(const ArrayIterOptions& options = {.batch_size = 12}) {
  return std::make_unique<ArrayIter>(Filled({kSamples, 6}, std::identity()),
                                     Filled({kSamples}, [](int64_t i) { return 100 + i; }), options);
}

// Parts of what another iterator gives, ahead of time too: of one that makes whole batches only, and of another.
TEST(PartIter, GivesItsRowsOfEveryBatch) {
  for (const auto& [last, whole_batches] :
       {std::pair(LastBatch::kShort, false), std::pair(LastBatch::kPad, false), std::pair(LastBatch::kDiscard, false),
        std::pair(LastBatch::kShort, true), std::pair(LastBatch::kPad, true)}) {
    const ArrayIterOptions options{.batch_size = 12, .shuffle = true, .seed = 5, .last_batch = last};
    const std::unique_ptr<DataIter> whole = Data(options);
    std::vector<std::unique_ptr<DataIter>> parts;
    for (int part = 0; part < 3; ++part) {
      std::unique_ptr<DataIter> source = Data(options);
      if (whole_batches) source = std::make_unique<PrefetchIter>(std::move(source));
      parts.push_back(std::make_unique<PrefetchIter>(std::make_unique<PartIter>(std::move(source), part, 3)));
      EXPECT_EQ(parts[0]->parts(), 3);
      EXPECT_EQ(parts[0]->batch_size(), 4);
      EXPECT_EQ(parts[0]->samples(), kSamples);
      EXPECT_EQ(parts[0]->ProvideData()[0].shape, Shape({4, 6}));
    }
    while (const BatchPtr batch = whole->Next()) {
      std::vector<int64_t> rows;
      for (const auto& part : parts) {
        const BatchPtr own = part->Next();
        EXPECT_EQ(own->first, std::ssize(rows));
        EXPECT_EQ(std::ssize(own->index), own->samples + own->pad);
        EXPECT_EQ(own->samples + own->pad, (batch->samples + batch->pad + 2) / 3);
        for (int64_t i = 0; i < own->samples; ++i) {
          rows.push_back(own->index[static_cast<size_t>(i)]);
          EXPECT_EQ(own->data[0].At(6 * i), batch->data[0].At(6 * (std::ssize(rows) - 1)));
          EXPECT_EQ(own->label[0].At(i), batch->label[0].At(std::ssize(rows) - 1));
        }
        EXPECT_EQ(part->SaveState(), whole->SaveState());
      }
      rows.resize(batch->index.size(), batch->index.back());
      EXPECT_TRUE(std::equal(rows.begin(), rows.begin() + batch->samples, batch->index.begin()));
    }
    for (const auto& part : parts) EXPECT_EQ(part->Next(), nullptr);
  }
  EXPECT_EQ(MessageOf<DataError>([] { PartIter(Data(), 0, 5); }),
            "DataError: batch size 12: it is that of all parts together, but cannot be shared out among 5");
  EXPECT_EQ(MessageOf<DataError>([] { PartIter(Data(), 2, 2); }),
            "DataError: part 2 of 2: expected a part from 0 to the number of parts less one");
}

class NoWholeBatches final : public ArrayIter {
 public:
  using ArrayIter::ArrayIter;
  std::shared_ptr<const Batch> Next() override {
    ADD_FAILURE() << "a whole batch was made";
    return nullptr;
  }
};

TEST(PartIter, MakesNoRowsOfOthersWhereItsSourceCanDoWithout) {
  HostTensor data(DType::kFloat32, {kSamples, 6}), labels(DType::kFloat32, {kSamples});
  PartIter part(std::make_unique<NoWholeBatches>(data, labels, ArrayIterOptions{.batch_size = 12}), 1, 3);
  const BatchPtr batch = part.Next();
  EXPECT_EQ(batch->data[0].shape(), Shape({4, 6}));
  EXPECT_EQ(batch->index, (std::vector<int64_t>{4, 5, 6, 7}));
}

}  // namespace
}  // namespace bindery
