#include "train/data/part_iter.h"

#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "train/data/feed.h"

namespace bindery {

void CheckPart(int64_t part, int64_t parts, int64_t batch_size) {
  if (parts < 1 || part < 0 || part >= parts) {
    Throw<DataError>("part {} of {}: expected a part from 0 to the number of parts less one", part, parts);
  }
  if (batch_size % parts != 0) {
    Throw<DataError>("batch size {}: it is that of all parts together, but cannot be shared out among {}", batch_size,
                     parts);
  }
}

std::optional<PartOfBatch> PartOf(const Batch& batch, int64_t rows, int64_t part, int64_t parts) {
  const int64_t samples = rows - batch.pad;
  if (samples < parts) return std::nullopt;
  const int64_t begin = part * samples / parts, end = (part + 1) * samples / parts;
  PartOfBatch own{.rows = {}, .samples = end - begin};
  for (int64_t row = begin; row < end; ++row) own.rows.push_back(row);
  own.rows.resize(static_cast<size_t>(CeilDiv(rows, parts)), begin);
  return own;
}

PartIter::PartIter(std::unique_ptr<DataIter> source, int64_t part, int64_t parts)
    : WrappedIter(std::move(source)), part_(part), parts_(parts) {
  CheckPart(part_, parts_, wrapped().batch_size());
}

std::vector<DataDesc> PartIter::Describe(std::vector<DataDesc> arrays) const {
  for (DataDesc& array : arrays) {
    const int axis = array.BatchAxis();
    if (axis >= 0) array.shape.Set(axis, CeilDiv(array.shape[axis], parts_));
  }
  return arrays;
}

std::shared_ptr<const Batch> DataIter::NextPart(int64_t part, int64_t parts) {
  const BatchPtr whole = Next();
  if (!whole || parts == 1) return whole;
  if (whole->device_data.any() || whole->device_label.any()) {
    Throw<DataError>("parts are of batches in host memory, not of arrays on devices");
  }
  const auto own = PartOf(*whole, whole->samples + whole->pad, part, parts);
  if (!own) return nullptr;
  auto batch = std::make_shared<Batch>();
  const auto take = [&](const std::vector<DataDesc>& descs, const std::vector<HostTensor>& from,
                        std::vector<HostTensor>* to) {
    for (size_t i = 0; i < from.size(); ++i) {
      const int axis = descs[i].BatchAxis();
      to->push_back(axis >= 0 ? TakeRows(from[i], axis, own->rows) : from[i]);
    }
  };
  take(ProvideData(), whole->data, &batch->data);
  take(ProvideLabel(), whole->label, &batch->label);
  TakePart(*own, *whole, batch.get());
  return batch;
}

void TakePart(const PartOfBatch& part, const Batch& whole, Batch* batch) {
  std::vector<int64_t> index;
  for (const int64_t row : part.rows) {
    if (!whole.index.empty()) index.push_back(whole.index[static_cast<size_t>(row)]);
  }
  batch->index = std::move(index);
  batch->first = whole.first.value_or(0) + part.rows[0];
  batch->samples = part.samples;
  batch->pad = std::ssize(part.rows) - part.samples;
}

}  // namespace bindery
