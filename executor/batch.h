// Batch: some samples, as iterators make them and devices are fed with them; and its description.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/host_tensor.h"
#include "base/shape.h"
#include "engine/tensor.h"

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

// Arrays that lie on devices, one by one in pieces: rows that follow each other along the batch axis, in any number, of
// any dtype, on any devices of the group's engine. A piece that lies where it is wanted never leaves its device. An
// array without batch axis is one piece, or one per device with samples. They are read when the devices get there:
// whoever changes them later does so by operations of the engine.
class DeviceArrays {
 public:
  DeviceArrays() = default;
  DeviceArrays(const std::vector<Tensor>& whole) {  // as DataParallelExecutorGroup::Outputs() gives them
    for (const Tensor& array : whole) Set(arrays_.size(), {array});
  }
  DeviceArrays(std::vector<std::vector<Tensor>> pieces) : arrays_(std::move(pieces)) {}  // OutputsPerDevice()
  // `on_host`: what the pieces show, if that is the host's memory and nobody writes it: its values are looked at.
  void Set(size_t i, std::vector<Tensor> pieces, std::shared_ptr<const HostTensor> on_host = nullptr) {
    if (arrays_.size() <= i) arrays_.resize(i + 1);
    arrays_[i] = std::move(pieces);
    if (on_host_.size() <= i) on_host_.resize(i + 1);
    on_host_[i] = std::move(on_host);
  }
  size_t size() const { return arrays_.size(); }
  bool any() const {
    return std::ranges::any_of(arrays_, [](const auto& pieces) { return !pieces.empty(); });
  }
  const std::vector<Tensor>* Find(size_t i) const {  // nullptr: not given
    return i < arrays_.size() && !arrays_[i].empty() ? &arrays_[i] : nullptr;
  }
  const HostTensor* OnHost(size_t i) const { return i < on_host_.size() ? on_host_[i].get() : nullptr; }

 private:
  std::vector<std::vector<Tensor>> arrays_;
  std::vector<std::shared_ptr<const HostTensor>> on_host_;  // maybe shorter
};

// The arrays' extents at their batch axes are samples + pad.
struct Batch {
  std::vector<HostTensor> data = {}, label = {};  // in the order of the descriptions
  int64_t samples = 0;                            // real ones; 0: all rows but the padding
  int64_t pad = 0;                                // filler rows after them: never trained on, never counted
  std::vector<int64_t> index = {};  // the row's number in the data set, if the source knows it; else empty
  // Where the step's batch has its first sample, which random numbers go by: of a piece of it. None: this is all of it,
  // or a micro-batch that is told from others by its number (StepNumber).
  std::optional<int64_t> first = std::nullopt;
  DeviceArrays device_data = {}, device_label = {};  // where given, they take the place of `data` and `label`

  size_t num_data() const { return std::max(data.size(), device_data.size()); }
  size_t num_labels() const { return std::max(label.size(), device_label.size()); }
};
using BatchPtr = std::shared_ptr<const Batch>;  // immutable once handed out

}  // namespace bindery
