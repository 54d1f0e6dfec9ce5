#include "executor/parameter_store.h"

#include "base/checked.h"
#include "executor/reformat.h"

namespace bindery {
namespace {

constexpr int64_t kOffsetElements = 64;   // 64 bytes for the smallest element

}  // namespace

ParameterStore::ParameterStore(std::shared_ptr<Engine> engine, std::vector<Device> devices)
    : engine_(std::move(engine)), devices_(std::move(devices)) {}

void ParameterStore::Adopt(const Plan& plan) {
  std::map<std::string, bool> has_gradient;
  for (const PlanGradient& g : plan.gradients) has_gradient[g.name] = true;

  // New ones, by kind of block, in the plan's order.
  std::map<std::tuple<bool, DType, bool>, std::vector<int>> fresh;   // (auxiliary, dtype, with gradients)
  const auto add = [&](const std::string& name, const ValueType& type, const Format& format, bool auxiliary) {
    const bool with_gradient = has_gradient.contains(name);
    if (const auto found = index_.find(name); found != index_.end()) {
      const StoredParameter& p = parameters_[found->second];
      if (p.dtype != type.dtype || p.shape != type.shape) {
        Throw<ShapeError>("parameter \"{}\" is shared as {} {}, but this network needs {} {}", name, p.dtype, p.shape, type.dtype, type.shape);
      }
      Check(p.format == format, "a program follows the group's storage format");
      if (with_gradient && blocks_[p.block].gradients.empty()) {
        for (size_t d = 0; d < devices_.size(); ++d) {
          blocks_[p.block].gradients.emplace_back(engine_, devices_[d], p.dtype, Shape{blocks_[p.block].elements});
        }
      }
      return;
    }
    index_[name] = static_cast<int>(parameters_.size());
    fresh[{auxiliary, type.dtype, with_gradient}].push_back(static_cast<int>(parameters_.size()));
    parameters_.push_back({.name = name, .dtype = type.dtype, .shape = type.shape, .format = format,
                           .elements = StorageElements(format, type.shape), .auxiliary = auxiliary});
  };
  for (const PlanArgument& a : plan.arguments) if (a.is_parameter) add(a.name, a.type, a.format, false);
  for (size_t i = 0; i < plan.auxiliary.size(); ++i) add(plan.auxiliary[i], plan.auxiliary_types[i], Format::Plain(), true);
  for (const auto& [kind, members] : fresh) {
    const auto& [auxiliary, dtype, with_gradients] = kind;
    AddBlock(dtype, with_gradients, auxiliary, members);
  }
}

void ParameterStore::AddBlock(DType dtype, bool with_gradients, bool auxiliary, const std::vector<int>& members) {
  Block block{.dtype = dtype, .auxiliary = auxiliary, .values = {}, .gradients = {}};
  for (const int p : members) {
    parameters_[p].block = static_cast<int>(blocks_.size());
    parameters_[p].offset = block.elements;
    block.parameters.push_back(p);
    block.elements = CheckedAdd(block.elements, RoundUp(parameters_[p].elements, kOffsetElements), "parameter elements");
  }
  for (const Device& device : devices_) {
    block.values.emplace_back(engine_, device, dtype, Shape{block.elements});
    if (with_gradients) block.gradients.emplace_back(engine_, device, dtype, Shape{block.elements});
  }
  blocks_.push_back(std::move(block));
}

const StoredParameter* ParameterStore::Find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &parameters_[found->second];
}

std::map<std::string, Format> ParameterStore::StorageFormats() const {
  std::map<std::string, Format> formats;
  for (const StoredParameter& p : parameters_) if (!p.auxiliary) formats[p.name] = p.format;
  return formats;
}

Tensor ParameterStore::Value(const StoredParameter& p, int device) const {
  return blocks_[p.block].values[device].Slice(p.offset, p.offset + p.elements);
}

Tensor ParameterStore::Gradient(const StoredParameter& p, int device) const {
  const Block& block = blocks_[p.block];
  return block.gradients.empty() ? Tensor() : block.gradients[device].Slice(p.offset, p.offset + p.elements);
}

void ParameterStore::Set(const StoredParameter& p, const HostTensor& value) const {
  if (value.shape() != p.shape) Throw<ShapeError>("parameter \"{}\": expected {}, got {}", p.name, p.shape, value.shape());
  HostTensor stored(p.dtype, {p.elements});
  ToStorage(value.dtype() == p.dtype ? value : value.Cast(p.dtype), p.format, stored.raw());
  for (size_t d = 0; d < devices_.size(); ++d) Value(p, static_cast<int>(d)).CopyFrom(stored);
}

HostTensor ParameterStore::Get(const StoredParameter& p, int device) const {
  return FromStorage(p.dtype, p.shape, p.format, Value(p, device).ToHost().raw());
}

HostTensor ParameterStore::GetGradient(const StoredParameter& p, int device) const {
  const Tensor gradient = Gradient(p, device);
  if (!gradient.defined()) Throw("parameter \"{}\" has no gradient: its gradient request is null", p.name);
  return FromStorage(p.dtype, p.shape, p.format, gradient.ToHost().raw());
}

void ParameterStore::ZeroGradients() const {
  for (const Block& block : blocks_) for (const Tensor& gradient : block.gradients) gradient.Fill(0);
}

}  // namespace bindery
