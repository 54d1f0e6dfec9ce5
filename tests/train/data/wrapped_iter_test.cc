#include "train/data/wrapped_iter.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/message_of.h"
#include "train/data/array_iter.h"
#include "train/data/part_iter.h"

namespace bindery {
namespace {

// What it hands on differs from what DataIter says by itself, and from call to call.
class NamedIter final : public PartIter {
 public:
  NamedIter()
      : PartIter(std::make_unique<ArrayIter>(
                     Rows(), Rows(), ArrayIterOptions{.batch_size = 4, .shuffle = true, .last_batch = LastBatch::kPad}),
                 1, 2) {}
  bool repeats() const override { return true; }
  std::map<std::string, std::string> Metadata() const override { return {{"of", "rows"}}; }

 private:
  static HostTensor Rows() {
    HostTensor rows(DType::kFloat32, {10, 2});
    for (int64_t i = 0; i < rows.elements(); ++i) rows.Set(i, static_cast<double>(i));
    return rows;
  }
};

void ExpectSame(const DataIter& a, const DataIter& b) {
  EXPECT_EQ(a.ProvideData(), b.ProvideData());
  EXPECT_EQ(a.ProvideLabel(), b.ProvideLabel());
  EXPECT_EQ(a.batch_size(), b.batch_size());
  EXPECT_EQ(a.samples(), b.samples());
  EXPECT_EQ(a.epoch(), b.epoch());
  EXPECT_EQ(a.epoch_detail(), b.epoch_detail());
  EXPECT_EQ(a.previous_epoch_detail(), b.previous_epoch_detail());
  EXPECT_EQ(a.is_new_epoch(), b.is_new_epoch());
  EXPECT_EQ(a.repeats(), b.repeats());
  EXPECT_EQ(a.parts(), b.parts());
  EXPECT_EQ(a.SaveState(), b.SaveState());
  EXPECT_EQ(a.Metadata(), b.Metadata());
}

TEST(WrappedIter, DoesWhatTheOtherDoes) {
  NamedIter other;
  WrappedIter wrapped(std::make_unique<NamedIter>());
  const auto both = [&](const auto& call) {
    call(other);
    call(static_cast<DataIter&>(wrapped));
    ExpectSame(wrapped, other);
    ExpectSame(wrapped, wrapped.wrapped());
  };
  ExpectSame(wrapped, other);
  IterState half_way;
  for (int i = 0; i < 3; ++i) {
    const BatchPtr batch = other.Next(), same = wrapped.Next();
    EXPECT_EQ(same->data, batch->data);
    EXPECT_EQ(same->label, batch->label);
    ExpectSame(wrapped, other);
    if (i == 0) half_way = other.SaveState();
  }
  both([](DataIter& iter) { iter.Reset(); });
  both([&](DataIter& iter) { iter.LoadState(half_way); });
  EXPECT_EQ(wrapped.Next()->data, other.Next()->data);
  EXPECT_EQ(MessageOf<Error>([] { WrappedIter(nullptr); }), "Error: a wrapped iterator needs one that it wraps");
}

}  // namespace
}  // namespace bindery
