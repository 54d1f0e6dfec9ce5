#include "kvstore/compressed_push.h"

#include <utility>

#include "base/error.h"
#include "engine/backend.h"
#include "engine/host_call.h"

namespace bindery {

Device CompressedPush::HostOf(Device device) { return HostAddressable(device) ? device : Cpu(); }

CompressedPush::CompressedPush(const Tensor& stored, const Compression& compression, std::string name)
    : engine_(stored.engine()), dtype_(stored.dtype()), shape_(stored.shape()), compression_(compression),
      name_(std::move(name)), sum_(engine_, HostOf(stored.device()), dtype_, shape_) {}

Tensor CompressedPush::Append(std::span<const Tensor> values, StepParts* parts) {
  Operation unpack{.name = "unpack key " + name_, .device = sum_.device(), .writes = {sum_.var()}};
  std::vector<Tensor> sent;
  for (size_t place = 0; place < values.size(); ++place) {
    const Device device = HostOf(values[place].device());
    if (place == senders_.size()) senders_.push_back({.residual = Tensor(engine_, device, dtype_, shape_)});
    Sender& sender = senders_[place];
    if (sender.residual.device() != device) {
      const Tensor moved(engine_, device, dtype_, shape_);
      moved.CopyFrom(sender.residual);
      sender = {.residual = moved};
    }
    if (!sender.packed.defined()) {
      sender.packed = Tensor(engine_, device, DType::kUInt8, {PackedBytes(compression_, shape_.Elements())});
    }
    AppendPack(values[place], sender, parts);
    unpack.reads.push_back(sender.packed.var());
    sent.push_back(sender.packed);
  }
  unpack.run = [sum = sum_, sent = std::move(sent), compression = compression_](const OpContext&) {
    for (size_t i = 0; i < sent.size(); ++i) {
      Unpack(compression, sum.dtype(), sent[i].data(), sum.elements(), /*add=*/i > 0, sum.data());
    }
  };
  parts->push_back(std::move(unpack));
  return sum_;
}

void CompressedPush::AppendPack(const Tensor& value, const Sender& sender, StepParts* parts) const {
  const std::string name = "pack key " + name_;
  const auto pack = [compression = compression_, dtype = dtype_, elements = shape_.Elements()](
                        const void* from, void* residual, void* to) {
    Pack(compression, dtype, from, elements, residual, to);
  };
  const auto& [residual, packed] = sender;
  if (HostAddressable(value.device())) {
    parts->push_back({.name = name,
                      .device = value.device(),
                      .reads = {value.var()},
                      .writes = {packed.var()},
                      .updates = {residual.var()},
                      .run = [pack, value, residual, packed](const OpContext&) {
                        pack(value.data(), residual.data(), packed.data());
                      }});
    return;
  }
  const auto range = [](const Tensor& tensor, bool read, HostCallRange::After after) {
    return HostCallRange{.device = tensor.device(),
                         .address = tensor.address(),
                         .bytes = tensor.elements() * SizeOf(tensor.dtype()),
                         .var = tensor.var(),
                         .read = read,
                         .after = after};
  };
  AppendHostCall(
      engine_.get(), name,
      {range(value, true, HostCallRange::After::kNothing), range(residual, true, HostCallRange::After::kUpdate),
       range(packed, false, HostCallRange::After::kWrite)},
      [pack](std::span<void* const> at) { pack(at[0], at[1], at[2]); }, {},
      std::make_shared<const std::vector<Tensor>>(std::vector{value, residual, packed}), parts);
}

std::vector<HostTensor> CompressedPush::Residuals() const {
  std::vector<HostTensor> residuals;
  for (const Sender& sender : senders_) residuals.push_back(sender.residual.ToHost());
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
    senders_.push_back({.residual = Tensor(engine_, Cpu(), dtype_, shape_)});
    senders_.back().residual.CopyFrom(residual);
  }
}

}  // namespace bindery
