// Feed: an iterator's batches as a group takes them. Arrays are known by their names; an iterator may provide them in
// another order than the group was bound with, but others are an error.
//
// And rows of batches: which samples go to which device.
//
// Thread safety: immutable; any thread may use one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "executor/batch.h"
#include "executor/group/options.h"
#include "train/data/data_iter.h"

namespace bindery {

class Feed {
 public:
  // Throws DataError unless the iterator has just these arrays, along the same batch axes; labels may be absent.
  Feed(const GroupOptions& group, const DataIter& data);
  // Null stays null. Throws DataError if the batch lacks an array, whether in host memory or on devices.
  BatchPtr Arrange(BatchPtr batch) const;

 private:
  std::vector<size_t> data_, labels_;  // the places of the group's arrays among the iterator's
};

// Rows `rows` of an array along `axis`, in that order.
HostTensor TakeRows(const HostTensor& from, int axis, std::span<const int64_t> rows);
// The same, into another tensor's memory if that has the dtype and the shape.
void TakeRows(const HostTensor& from, int axis, std::span<const int64_t> rows, HostTensor* to);

// Which samples a device gets. Contiguous: 0 1 2 | 3 4 | 5 6. Strided: 0 3 6 | 1 4 | 2 5, as Chainer shares out; for
// equal workloads only. What is computed is the same but for rounding.
enum class SampleOrder { kContiguous, kStrided };

// Makes of one device's share of a batch, in host memory, what that device is fed with: of as many samples, in host
// memory or on any devices. For casts, augmentation and the like.
using Converter = std::function<Batch(const Batch& share, Device device)>;

// A batch in host memory, of the group's arrays in its order, shared out and converted; padding is left out. Each
// device's part goes straight there. Throws DataError if a converter gives another number of samples or arrays, Error
// for kStrided with unequal workloads.
BatchPtr ShareOut(const BatchPtr& batch, const GroupOptions& group, const std::shared_ptr<Engine>& engine,
                  SampleOrder order, const Converter& converter);

}  // namespace bindery
