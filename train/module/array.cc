#include "train/module/array.h"

#include "executor/group/device_feed.h"

namespace bindery {

Array::Array(Tensor whole) {
  if (!whole.defined()) return;
  shape_ = whole.shape();
  dtype_ = whole.dtype();
  pieces_.push_back(std::move(whole));
}

Array::Array(HostTensor values)
    : host_(std::make_shared<const HostTensor>(std::move(values))), shape_(host_->shape()), dtype_(host_->dtype()) {}

Array::Array(std::vector<Tensor> pieces, int axis) : pieces_(std::move(pieces)), axis_(axis) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Tensor& piece = pieces_[i];
    if (!piece.defined()) Throw<ShapeError>("piece {} of an array is empty", i);
    if (i == 0) {
      if (pieces_.size() > 1 && (axis < 0 || axis >= piece.shape().rank())) {
        Throw<ShapeError>("pieces of shape {} cannot follow each other along axis {}", piece.shape(), axis);
      }
      shape_ = piece.shape();
      dtype_ = piece.dtype();
      continue;
    }
    if (piece.dtype() != dtype_ || piece.shape().rank() != shape_.rank() ||
        piece.shape() != shape_.With(axis, piece.shape()[axis])) {
      Throw<ShapeError>("pieces of an array do not fit together along axis {}: {} {} and {} {}", axis,
                        pieces_[0].dtype(), pieces_[0].shape(), piece.dtype(), piece.shape());
    }
    shape_.Set(axis, shape_[axis] + piece.shape()[axis]);
  }
}

bool Array::empty() const { return (pieces_.empty() && !host_) || shape_.Elements() == 0; }

Device Array::device() const { return pieces_.empty() ? Cpu() : pieces_[0].device(); }

std::vector<Tensor> Array::PiecesFor(const std::shared_ptr<Engine>& engine) const {
  if (!host_) return pieces_;
  // Nobody writes it: only readers get such a tensor.
  void* const memory = const_cast<void*>(host_->raw());
  return {Tensor(engine, Cpu(), dtype_, shape_, memory, host_, engine->NewVar())};
}

Tensor Array::Whole(std::optional<Device> wanted, const std::shared_ptr<Engine>& given) const {
  if (pieces_.empty() && !host_) Throw("an empty array is no tensor");
  const Device device = wanted.value_or(this->device());
  const std::shared_ptr<Engine> engine = host_ ? (given ? given : DefaultEngine()) : pieces_[0].engine();
  if (pieces_.size() == 1 && pieces_[0].device() == device) return pieces_[0];
  const Tensor whole(engine, device, dtype_, shape_);
  if (host_) {
    whole.CopyFrom(*host_);
  } else if (pieces_.size() == 1) {
    whole.CopyFrom(pieces_[0]);
  } else if (whole.elements() > 0) {
    DeviceFeed feed(engine, device, 0, 1);
    feed.Add(pieces_, {.dtype = dtype_, .shape = {}, .batch_axis = axis_}, {0, shape_[axis_]}, whole);
    feed.Push("merge", whole.var());
  }
  return whole;
}

HostTensor Array::ToHost() const {
  if (host_) return *host_;
  if (pieces_.empty()) return HostTensor();
  if (pieces_.size() == 1) return pieces_[0].ToHost();
  std::vector<HostTensor> parts;
  for (const Tensor& piece : pieces_) parts.push_back(piece.ToHost());
  return Concatenate(parts, axis_);
}

void Array::Wait() const {
  for (const Tensor& piece : pieces_) piece.Wait();
}

}  // namespace bindery
