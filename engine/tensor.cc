#include "engine/tensor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "engine/backend.h"
#include "engine/kernels/flat.h"

namespace bindery {

Tensor::Tensor(std::shared_ptr<Engine> engine, Device device, DType dtype, const Shape& shape)
    : engine_(std::move(engine)), device_(device), dtype_(dtype), shape_(shape), whole_(true) {
  if (!engine_) Throw("a tensor needs an engine");
  auto chunk = DefaultStorage()->Allocate(device, CheckedMul(shape.Elements(), SizeOf(dtype), "bytes of a tensor"));
  data_ = chunk->data();
  keep_alive_ = std::move(chunk);
  var_ = engine_->NewVar();
  if (HostAddressable(device)) {
    std::memset(data_, 0, bytes());  // nobody else knows this memory yet
  } else {
    Fill(0);
  }
}

Tensor::Tensor(std::shared_ptr<Engine> engine, Device device, DType dtype, const Shape& shape, void* data,
               std::shared_ptr<const void> keep_alive, VarPtr var)
    : engine_(std::move(engine)), device_(device), dtype_(dtype), shape_(shape), data_(data),
      keep_alive_(std::move(keep_alive)), var_(std::move(var)) {
  if (!engine_) Throw("a tensor needs an engine");
  if (!var_) Throw("a tensor on memory that exists needs a variable");
  if (!data_ && elements() > 0) Throw("a tensor of shape {} needs memory", shape_);
}

void* Tensor::data() const {
  if (defined() && !HostAddressable(device_)) {
    Throw<DeviceError>("the host cannot address a tensor on {}; copy it with ToHost", device_);
  }
  return data_;
}

Tensor Tensor::Reshape(const Shape& shape) const {
  CheckDefined("Reshape");
  if (shape.Elements() != elements()) {
    Throw<ShapeError>("cannot reshape a tensor of shape {} ({} elements) to {} ({})", shape_, elements(), shape,
                      shape.Elements());
  }
  Tensor view = *this;
  view.shape_ = shape;
  return view;
}

Tensor Tensor::Slice(int64_t begin, int64_t end) const {
  CheckDefined("Slice");
  if (shape_.rank() == 0) Throw<ShapeError>("cannot slice a scalar");
  if (begin < 0 || begin > end || end > shape_[0]) {
    Throw<ShapeError>("cannot slice rows {}..{} of a tensor of shape {}", begin, end, shape_);
  }
  Tensor view = *this;
  view.shape_ = shape_.With(0, end - begin);
  view.data_ = static_cast<char*>(data_) + begin * shape_.CountFrom(1) * SizeOf(dtype_);
  view.whole_ = whole_ && end - begin == shape_[0];
  return view;
}

Tensor Tensor::On(Device device) const {
  CheckDefined("On");
  if (!ShareMemory(device, device_)) Throw<DeviceError>("{} does not share the memory of {}", device, device_);
  Tensor view = *this;
  view.device_ = device;
  return view;
}

Tensor Tensor::For(std::shared_ptr<Engine> engine) const {
  CheckDefined("For");
  if (!engine) Throw("a tensor needs an engine");
  Tensor view = *this;
  view.engine_ = std::move(engine);
  view.var_ = view.engine_->NewVar();
  return view;
}

// The elements wait in a pooled staging piece, already cast, so that the device's worker only copies.
void Tensor::CopyFrom(const HostTensor& source) const {
  CheckDefined("CopyFrom");
  CheckShape(source.shape());
  std::shared_ptr<Chunk> staged = DefaultStorage()->AllocateStaging(device_, bytes());
  flat::Cast(source.dtype(), source.raw(), dtype_, staged->data(), elements());
  Write("copy from host", {},
        [staged = std::move(staged), keep = keep_alive_, to = device_, out = data_, bytes = bytes()](
            const OpContext& context) { CopyBetween(context.stream, Cpu(), staged->data(), to, out, bytes); });
}

void Tensor::CopyFrom(const Tensor& source, int priority) const {
  CheckDefined("CopyFrom");
  source.CheckDefined("CopyFrom");
  CheckShape(source.shape());
  const bool together = ShareMemory(source.device_, device_), casts = source.dtype_ != dtype_;
  const char *const in = static_cast<const char*>(source.data_), *const out = static_cast<const char*>(data_);
  // Accelerators promise nothing of copies between ranges that meet.
  const bool meet = together && !HostAddressable(device_) && in < out + bytes() && out < in + source.bytes();
  if (together ? meet && (in != out || casts) : casts) {  // to a tensor beside the source, then from that
    const Tensor between(engine_, source.device_, dtype_, shape_);
    between.CopyFrom(source, priority);
    return CopyFrom(between, priority);
  }
  Write(
      "copy", {source.var()},
      [keep_in = source.keep_alive_, keep_out = keep_alive_, in = source.data_, out = data_, from = source.dtype_,
       to = dtype_, there = source.device_, here = device_, together, n = elements()](const OpContext& context) {
        if (together) {
          Backend::Of(here.kind).flat().Cast(context.stream, from, in, to, out, n);
        } else {
          CopyBetween(context.stream, there, in, here, out, n * SizeOf(to));
        }
      },
      priority);
}

void Tensor::Fill(double value) const {
  CheckDefined("Fill");
  Write("fill", {},
        [keep = keep_alive_, here = device_, dtype = dtype_, out = data_, n = elements(), value](
            const OpContext& context) { Backend::Of(here.kind).flat().Fill(context.stream, dtype, out, n, value); });
}

HostTensor Tensor::ToHost() const {
  CheckDefined("ToHost");
  // Shared with the operation: if waiting is refused (inside an operation), it still has a place to write to.
  const auto result = std::make_shared<HostTensor>(dtype_, shape_);
  std::shared_ptr<Chunk> staged;  // where the device cannot write to any host memory
  if (!HostAddressable(device_)) staged = DefaultStorage()->AllocateStaging(device_, bytes());
  const VarPtr arrived = engine_->NewVar();  // carries the copy's own error, too
  engine_->Push({.name = "copy to host",
                 .device = device_,
                 .reads = {var_},
                 .writes = {arrived},
                 .run = [result, staged, keep = keep_alive_, from = device_, in = data_,
                         bytes = bytes()](const OpContext& context) {
                   CopyBetween(context.stream, from, in, Cpu(), staged ? staged->data() : result->raw(), bytes);
                 }});
  engine_->Wait(arrived);
  if (staged && bytes() > 0) std::memcpy(result->raw(), staged->data(), static_cast<size_t>(bytes()));
  return std::move(*result);
}

void Tensor::Wait() const {
  CheckDefined("Wait");
  engine_->Wait(var_);
}

void Tensor::CheckDefined(const char* method) const {
  if (!defined()) Throw("{} of an empty tensor", method);
}

void Tensor::CheckShape(const Shape& source) const {
  if (source != shape_) Throw<ShapeError>("cannot copy to a tensor of shape {} from one of shape {}", shape_, source);
}

void Tensor::Write(const char* name, std::vector<VarPtr> reads, std::function<void(const OpContext&)> run,
                   int priority) const {
  Operation operation{.name = name,
                      .device = device_,
                      .reads = std::move(reads),
                      .writes = {var_},
                      .run = std::move(run),
                      .priority = priority};
  if (!whole_) operation.updates = {var_};
  engine_->Push(std::move(operation));
}

std::vector<Tensor> EachOnce(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> once;
  for (const Tensor& tensor : tensors) {
    const auto same = [&](const Tensor& other) {
      return other.var() == tensor.var() && other.address() == tensor.address();
    };
    if (std::ranges::none_of(once, same)) once.push_back(tensor);
  }
  return once;
}

}  // namespace bindery
