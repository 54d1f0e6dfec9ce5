// BatchPool: batches whose arrays are used again when everybody has let go of them. A batch of a MiB or more has pages of
// its own (HostTensor): new ones would be touched for the first time, and fault, in every step.
//
// Thread safety: of the iterator that has it; batches come back from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "engine/memory/payload_pool.h"
#include "executor/batch.h"

namespace bindery {

class BatchPool {
 public:
  // One that nobody else holds, with the arrays that it had, for MakeRoom; all else is empty.
  std::shared_ptr<Batch> Take() {
    std::shared_ptr<Batch> batch = batches_.Take();
    *batch = Batch{.data = std::move(batch->data), .label = std::move(batch->label)};
    return batch;
  }

 private:
  static constexpr size_t kMost = 8;  // who keeps more at a time, a whole data set say, gives their memory back himself
  PayloadPool<Batch> batches_{{}, kMost};
};

// Makes `tensor` one of this type and shape, in the memory that it has if that fits. The elements are any.
inline void MakeRoom(DType dtype, const Shape& shape, HostTensor* tensor) {
  if (tensor->dtype() != dtype || tensor->shape() != shape) *tensor = HostTensor(dtype, shape);
}

}  // namespace bindery
