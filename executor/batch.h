// Batch: some samples as host tensors, as iterators make them and devices are fed with them; and its description.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/host_tensor.h"
#include "base/shape.h"

namespace bindery {

// Name, shape and type of one data or label array of a batch.
struct DataDesc {
  std::string name = {};
  Shape shape = {};  // with the full batch size at the batch axis
  DType dtype = DType::kFloat32;
  // One letter an axis, 'N' is the batch: "NCHW", "TNC". Empty: axis 0, if there is one. Without an 'N' the array is
  // not batched: every device gets all of it.
  std::string layout = {};

  int BatchAxis() const {  // -1: not batched
    if (layout.empty()) return shape.rank() > 0 ? 0 : -1;
    const size_t position = layout.find('N');
    return position == std::string::npos ? -1 : static_cast<int>(position);
  }
  bool operator==(const DataDesc&) const = default;
};

// The arrays' extents at their batch axes are samples + pad.
struct Batch {
  std::vector<HostTensor> data = {}, label = {};  // in the order of the descriptions
  int64_t samples = 0;                            // real ones
  int64_t pad = 0;                                // filler rows after them: never trained on, never counted
  std::vector<int64_t> index = {};  // the row's number in the data set, if the source knows it; else empty
};
using BatchPtr = std::shared_ptr<const Batch>;  // immutable once handed out

}  // namespace bindery
