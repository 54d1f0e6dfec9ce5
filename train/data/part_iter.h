// PartIter: one process's part of the batches that another iterator gives, which is the same in all processes:
//
//   PartIter train(std::make_unique<ArrayIter>(data, labels, options), processes->rank(), processes->size());
//
// Together they train just the batches that one process would, with the same random numbers, and the state of one is
// that of all, also for another number of parts. An ArrayIter makes the part alone; others make the whole batch first:
// where that is much work, as with images, the source had better do so by itself (SampleIterOptions).
//
// Thread safety: none; one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "train/data/wrapped_iter.h"

namespace bindery {

// Which rows of a batch are a part of it: samples that follow each other, in each part as many but for one, and padding
// behind them, so that all parts have the same number of rows. No value if there are fewer samples than parts: such a
// batch, the last one of a sweep, is left out.
struct PartOfBatch {
  std::vector<int64_t> rows;  // of the batch
  int64_t samples = 0;        // of these rows, the first ones
};
std::optional<PartOfBatch> PartOf(const Batch& batch, int64_t rows, int64_t part, int64_t parts);
// Of what a batch says of its rows, what it says of these. `batch` may be `whole`.
void TakePart(const PartOfBatch& part, const Batch& whole, Batch* batch);

class PartIter : public WrappedIter {
 public:
  // Throws DataError for a part that there is not, and for a batch size that `parts` does not divide.
  PartIter(std::unique_ptr<DataIter> source, int64_t part, int64_t parts);

  std::vector<DataDesc> ProvideData() const override { return Describe(WrappedIter::ProvideData()); }
  std::vector<DataDesc> ProvideLabel() const override { return Describe(WrappedIter::ProvideLabel()); }
  int64_t batch_size() const override { return WrappedIter::batch_size() / parts_; }
  std::shared_ptr<const Batch> Next() override { return wrapped().NextPart(part_, parts_); }
  int64_t parts() const override { return parts_; }

 private:
  std::vector<DataDesc> Describe(std::vector<DataDesc> arrays) const;

  const int64_t part_, parts_;
};

// Throws DataError as the constructor does.
void CheckPart(int64_t part, int64_t parts, int64_t batch_size);

}  // namespace bindery
