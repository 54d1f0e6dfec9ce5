#include "kvstore/compressed_push.h"

#include <utility>

#include "base/error.h"
#include "engine/backend.h"
#include "engine/fetch.h"
#include "engine/kernels/flat.h"

namespace bindery {
namespace {

const double* ScaleOf(const OpContext& context) { return static_cast<const double*>(context.payload); }

}  // namespace

Device CompressedPush::HostOf(Device device) { return HostAddressable(device) ? device : Cpu(); }

CompressedPush::CompressedPush(const Tensor& stored, const Compression& compression, std::string name)
    : engine_(stored.engine()), dtype_(stored.dtype()), shape_(stored.shape()), compression_(compression),
      name_(std::move(name)), sum_(engine_, HostOf(stored.device()), dtype_, shape_) {}

Tensor CompressedPush::NewResiduals(Device device) const {
  return Tensor(engine_, device, dtype_, Shape{2, shape_.Elements()});
}

Tensor CompressedPush::HeldBy(const Sender& sender) const {
  return sender.residuals.Slice(*sender.held, *sender.held + 1).Reshape(shape_);
}

Tensor CompressedPush::Append(std::span<const Tensor> values, StepParts* parts, Operation* keep) {
  Operation unpack{.name = "unpack key " + name_, .device = sum_.device(), .writes = {sum_.var()}};
  *keep = {.name = "keep residuals of key " + name_, .device = sum_.device(), .reads = {sum_.var()}};
  std::vector<Tensor> sent;
  std::vector<std::shared_ptr<int>> held;
  for (size_t place = 0; place < values.size(); ++place) {
    const Device device = HostOf(values[place].device());
    if (place == senders_.size()) senders_.push_back({.residuals = NewResiduals(device)});
    Sender& sender = senders_[place];
    if (sender.residuals.device() != device) {
      const Tensor moved = NewResiduals(device);
      moved.CopyFrom(sender.residuals);
      sender = {.residuals = moved, .held = sender.held};
    }
    if (!sender.packed.defined()) {
      sender.packed = Tensor(engine_, device, DType::kUInt8, {PackedBytes(compression_, shape_.Elements())});
    }
    AppendPack(values[place], sender, parts);
    unpack.reads.push_back(sender.packed.var());
    keep->updates.push_back(sender.residuals.var());
    sent.push_back(sender.packed);
    held.push_back(sender.held);
  }
  unpack.run = [sum = sum_, sent = std::move(sent), compression = compression_](const OpContext& context) {
    for (size_t i = 0; i < sent.size(); ++i) {
      Unpack(compression, sum.dtype(), sent[i].data(), sum.elements(), /*add=*/i > 0, sum.data());
    }
    const double* const scale = ScaleOf(context);
    if (scale && *scale != 1) flat::Scale(sum.dtype(), sum.data(), sum.elements(), *scale);
  };
  keep->run = [held = std::move(held)](const OpContext&) {
    for (const std::shared_ptr<int>& which : held) *which = 1 - *which;
  };
  parts->push_back(std::move(unpack));
  return sum_;
}

void CompressedPush::AppendPack(const Tensor& value, const Sender& sender, StepParts* parts) const {
  const std::string name = "pack key " + name_;
  const Device device = HostOf(value.device());
  const Tensor near = AppendFetch(engine_, name + ", to the host", {value}, device, parts).front();
  const auto& [residuals, held, packed] = sender;
  parts->push_back({.name = name,
                    .device = device,
                    .reads = {near.var()},
                    .writes = {packed.var()},
                    .updates = {residuals.var()},
                    .run = [compression = compression_, near, residuals, held, packed](const OpContext& context) {
                      const auto residual = [&](int which) {
                        return static_cast<char*>(residuals.data()) + which * near.bytes();
                      };
                      const double* const scale = ScaleOf(context);
                      if (!scale) CheckPackable(near.dtype(), near.data(), near.elements(), residual(*held));
                      Pack(compression, near.dtype(), scale ? *scale : 1, near.data(), near.elements(), residual(*held),
                           residual(1 - *held), packed.data());
                    }});
}

std::vector<HostTensor> CompressedPush::Residuals() const {
  std::vector<HostTensor> residuals;
  for (const Sender& sender : senders_) {
    sender.residuals.Wait();  // then it is known which holds
    residuals.push_back(HeldBy(sender).ToHost());
  }
  return residuals;
}

void CompressedPush::SetResiduals(const std::vector<HostTensor>& residuals) {
  for (const HostTensor& residual : residuals) {
    if (residual.dtype() == dtype_ && residual.shape() == shape_) continue;
    Throw<ShapeError>("key {}: expected residuals {} of {}, got {} of {}", name_, shape_, dtype_, residual.shape(),
                      residual.dtype());
  }
  senders_.clear();
  for (const HostTensor& residual : residuals) {
    senders_.push_back({.residuals = NewResiduals(Cpu())});
    HeldBy(senders_.back()).CopyFrom(residual);
  }
}

}  // namespace bindery
