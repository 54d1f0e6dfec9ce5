#include "executor/group/parameter_store.h"

#include <algorithm>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "base/checked.h"
#include "engine/backend.h"
#include "engine/kernels/flat.h"
#include "executor/reformat.h"

namespace bindery {
namespace {

constexpr int64_t kOffsetElements = 64;  // 64 bytes for the smallest element

}  // namespace

ParameterStore::ParameterStore(std::shared_ptr<Engine> engine, std::vector<Device> devices, int64_t bucket_bytes)
    : engine_(std::move(engine)), devices_(std::move(devices)), bucket_bytes_(bucket_bytes) {
  for (size_t d = 0; d < devices_.size(); ++d) {
    const auto first = std::ranges::find_if(devices_, [&](Device other) { return ShareMemory(other, devices_[d]); });
    holders_.push_back(static_cast<size_t>(first - devices_.begin()));
    if (holders_[d] < d) {
      derived_.push_back(derived_[holders_[d]]);
      continue;
    }
    derived_.push_back(std::make_shared<DerivedValues>());
    derived_.back()->var = engine_->NewVar();
  }
}

void ParameterStore::Adopt(const Plan& plan) {
  std::vector<bool> has_gradient(plan.arguments.size(), false), is_by_rows(plan.arguments.size(), false);
  std::map<std::string, int> finished;  // the call that writes a gradient
  const std::vector<int> calls = plan.GradientCalls();
  for (size_t g = 0; g < calls.size(); ++g) {
    const PlanGradient& gradient = plan.gradients[g];
    const std::string& name = plan.ArgumentOf(gradient).name;
    const StoredParameter* p = Find(name);
    const bool no_rows = gradient.is_zero && p && Rows(*p, 0);  // then all of it is zero
    (gradient.part != GradientPart::kWhole || no_rows ? is_by_rows : has_gradient)[gradient.argument] = true;
    finished[name] = calls[g];
  }

  // Whatever may throw comes first; the store changes at the end.
  std::vector<StoredParameter> fresh;                        // in the plan's order
  std::unordered_map<std::string_view, size_t> fresh_index;  // by the plan's names
  // Of them: (auxiliary, dtype, with gradient, by rows)
  std::map<std::tuple<bool, DType, bool, bool>, std::vector<size_t>> kinds;
  std::map<int, std::vector<Tensor>> gradients;  // of blocks that are there without
  const auto add = [&](const std::string& name, const ValueType& type, const Format& format, bool auxiliary,
                       bool with_gradient, bool by_rows) {
    const StoredParameter* p = Find(name);
    if (!p) {
      kinds[{auxiliary, type.dtype, with_gradient, by_rows}].push_back(fresh.size());
      fresh_index[name] = fresh.size();
      fresh.push_back({.name = name,
                       .dtype = type.dtype,
                       .shape = type.shape,
                       .format = format,
                       .elements = StorageElements(format, type.shape),
                       .auxiliary = auxiliary});
      return;
    }
    if (p->dtype != type.dtype || p->shape != type.shape) {
      Throw<ShapeError>(
          "parameter \"{}\" is shared as {} {}, but this network needs {} {}; if it is to be one parameter "
          "for batches of all shapes, declare its shape",
          name, p->dtype, p->shape, type.dtype, type.shape);
    }
    Check(p->format == format, "a program follows the group's storage format");
    if (with_gradient && Rows(*p, 0)) {
      Throw(
          "parameter \"{}\": its gradient is kept by rows, but this network needs all of it: bind both without "
          "sparse_gradients",
          name);
    }
    if (!with_gradient || !blocks_[p->block].gradients.empty() || gradients.contains(p->block)) return;
    for (const Device& device : devices_) {
      gradients[p->block].emplace_back(engine_, device, p->dtype, Shape{blocks_[p->block].elements});
    }
  };
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    const PlanArgument& a = plan.arguments[i];
    if (a.is_parameter()) add(a.name, a.type, a.format, false, has_gradient[i], is_by_rows[i]);
  }
  for (const PlanState& s : plan.auxiliary) add(s.name, s.type, Format::Plain(), true, false, false);
  std::vector<Block> made;
  for (auto& [kind, members] : kinds) {
    const auto& [auxiliary, dtype, with_gradients, by_rows] = kind;
    const bool in_buckets = with_gradients && bucket_bytes_ > 0;
    if (in_buckets) {
      std::ranges::stable_sort(members, {}, [&](size_t i) { return finished.at(fresh[i].name); });
    }
    const size_t first = made.size();
    for (const size_t i : members) {
      if (i == members[0] || by_rows || (in_buckets && made.back().elements * SizeOf(dtype) >= bucket_bytes_)) {
        made.push_back({.dtype = dtype, .auxiliary = auxiliary});
      }
      Block& block = made.back();
      fresh[i].block = static_cast<int>(blocks_.size() + made.size()) - 1;
      fresh[i].offset = block.elements;
      block.parameters.push_back(static_cast<int>(parameters_.size() + i));
      block.elements = CheckedAdd(block.elements, RoundUp(fresh[i].elements, kOffsetElements), "parameter elements");
    }
    for (Block& block : std::span(made).subspan(first)) {
      for (size_t d = 0; d < devices_.size(); ++d) {
        const Device device = devices_[d];
        const bool is_there = !auxiliary && holders_[d] < d;
        block.values.push_back(is_there ? block.values[holders_[d]].On(device)
                                        : Tensor(engine_, device, dtype, Shape{block.elements}));
        if (with_gradients) block.gradients.emplace_back(engine_, device, dtype, Shape{block.elements});
        if (by_rows) block.row_gradients.push_back(std::make_shared<RowGradient>(RowGradient{engine_->NewVar()}));
      }
    }
  }

  std::map<int, std::vector<Tensor>> candidates;  // of blocks that are there or made, without
  for (const int slot : plan.updates) {
    const StoredParameter* p = Find(plan.auxiliary[slot].name);
    if (!p) p = &fresh[fresh_index.at(plan.auxiliary[slot].name)];
    const bool is_made = p->block >= static_cast<int>(blocks_.size());
    const Block& block = is_made ? made[p->block - blocks_.size()] : blocks_[p->block];
    if (!block.candidates.empty() || candidates.contains(p->block)) continue;
    for (const Device& device : devices_) {
      candidates[p->block].emplace_back(engine_, device, block.dtype, Shape{block.elements});
    }
  }

  std::vector<PreparedPtr> zeros;
  const auto prepare_zeros = [&](const Block& block) {
    const std::vector<PreparedPtr> more = PrepareZeros(block);
    zeros.insert(zeros.end(), more.begin(), more.end());
  };
  for (const auto& [block, tensors] : gradients) prepare_zeros({.gradients = tensors});
  for (const Block& block : made) prepare_zeros(block);

  zero_gradients_.insert(zero_gradients_.end(), zeros.begin(), zeros.end());
  for (auto& [block, tensors] : gradients) blocks_[block].gradients = std::move(tensors);
  for (StoredParameter& p : fresh) {
    index_[p.name] = static_cast<int>(parameters_.size());
    parameters_.push_back(std::move(p));
  }
  for (Block& block : made) blocks_.push_back(std::move(block));
  for (auto& [block, tensors] : candidates) blocks_[block].candidates = std::move(tensors);
}

std::vector<PreparedPtr> ParameterStore::PrepareZeros(const Block& block) const {
  std::vector<PreparedPtr> zeros;
  for (size_t d = 0; d < block.row_gradients.size(); ++d) {
    const std::shared_ptr<RowGradient>& rows = block.row_gradients[d];
    zeros.push_back(engine_->Prepare(
        {.name = "zero gradients", .device = devices_[d], .writes = {rows->var}, .run = [rows](const OpContext&) {
           rows->now.Clear();
         }}));
  }
  for (const Tensor& gradient : block.gradients) {
    zeros.push_back(engine_->Prepare(
        {.name = "zero gradients",
         .device = gradient.device(),
         .writes = {gradient.var()},
         .run = [gradient, &flat = Backend::Of(gradient.device().kind).flat()](const OpContext& context) {
           flat.Zero(context.stream, gradient.address(), gradient.bytes());
         }}));
  }
  return zeros;
}

void ParameterStore::Hold(const std::string& name, const std::vector<Tensor>& values,
                          const std::vector<Tensor>& gradients, bool auxiliary) {
  Check(!Find(name), "an array is held before the first program that uses it");
  const int64_t elements = values[0].elements();
  Block block{.dtype = values[0].dtype(), .elements = elements, .auxiliary = auxiliary, .values = {}, .gradients = {}};
  for (const Tensor& value : values) block.values.push_back(value.Reshape({elements}));
  for (const Tensor& gradient : gradients) block.gradients.push_back(gradient.Reshape({elements}));
  block.parameters.push_back(static_cast<int>(parameters_.size()));
  const std::vector<PreparedPtr> zeros = PrepareZeros(block);
  zero_gradients_.insert(zero_gradients_.end(), zeros.begin(), zeros.end());
  index_[name] = static_cast<int>(parameters_.size());
  parameters_.push_back({.name = name,
                         .dtype = block.dtype,
                         .shape = values[0].shape(),
                         .format = Format::Plain(),
                         .block = static_cast<int>(blocks_.size()),
                         .elements = elements,
                         .auxiliary = auxiliary});
  blocks_.push_back(std::move(block));
}

std::shared_ptr<ParameterStore> ParameterStore::View(const ParameterStore& store, std::shared_ptr<Engine> engine) {
  auto view = std::make_shared<ParameterStore>(engine, store.devices_);
  view->parameters_ = store.parameters_;
  view->index_ = store.index_;
  view->is_view_ = true;
  for (size_t d = 0; d < store.devices_.size(); ++d) {
    view->derived_[d] = store.is_view_          ? store.derived_[d]
                        : store.holders_[d] < d ? view->derived_[store.holders_[d]]
                                                : std::make_shared<DerivedValues>();
  }
  for (const Block& block : store.blocks_) {
    Block& copy = view->blocks_.emplace_back(block);
    copy.gradients.clear();
    copy.row_gradients.clear();
    copy.candidates.clear();
    for (Tensor& values : copy.values) values = values.For(engine);
  }
  return view;
}

std::vector<std::string> ParameterStore::NamesOf(const Block& block) const {
  std::vector<std::string> names;
  for (const int p : block.parameters) names.push_back(parameters_[static_cast<size_t>(p)].name);
  return names;
}

const StoredParameter* ParameterStore::Find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &parameters_[found->second];
}

void ParameterStore::FillFormats(Signature* signature) const {
  for (Argument& a : signature->arguments) {
    if (a.role != Role::kParameter) continue;
    const StoredParameter* p = Find(a.name);
    if (!p || p->auxiliary) continue;
    a.format = p->format;
    a.by_rows = a.by_rows && Rows(*p, 0);
  }
}

Tensor ParameterStore::Value(const StoredParameter& p, int device) const {
  return blocks_[p.block].values[device].Slice(p.offset, p.offset + p.elements);
}

Tensor ParameterStore::Candidate(const StoredParameter& p, int device) const {
  return blocks_[p.block].candidates[device].Slice(p.offset, p.offset + p.elements);
}

Tensor ParameterStore::Gradient(const StoredParameter& p, int device) const {
  const Block& block = blocks_[p.block];
  return block.gradients.empty() ? Tensor() : block.gradients[device].Slice(p.offset, p.offset + p.elements);
}

std::shared_ptr<RowGradient> ParameterStore::Rows(const StoredParameter& p, int device) const {
  const Block& block = blocks_[p.block];
  return block.row_gradients.empty() ? nullptr : block.row_gradients[device];
}

void ParameterStore::Set(const StoredParameter& p, const HostTensor& value) const {
  if (is_view_) Throw("parameter \"{}\" is another group's and only read here", p.name);
  if (value.shape() != p.shape)
    Throw<ShapeError>("parameter \"{}\": expected {}, got {}", p.name, p.shape, value.shape());
  HostTensor stored(p.dtype, {p.elements});
  ToStorage(value.dtype() == p.dtype ? value : value.Cast(p.dtype), p.format, stored.raw());
  for (const Tensor& replica : ValuesOnce(p)) replica.CopyFrom(stored);
}

std::vector<Tensor> ParameterStore::ValuesOnce(const StoredParameter& p) const {
  std::vector<Tensor> values;
  for (size_t d = 0; d < devices_.size(); ++d) values.push_back(Value(p, static_cast<int>(d)));
  return EachOnce(values);
}

HostTensor ParameterStore::Get(const StoredParameter& p, int device) const {
  return FromStorage(p.dtype, p.shape, p.format, Value(p, device).ToHost().raw());
}

HostTensor ParameterStore::Get(const StoredParameter& p) const {
  for (int d = 0;; ++d) {
    try {
      return Get(p, d);
    } catch (const DeviceError&) {
      if (d + 1 == static_cast<int>(devices_.size())) throw;
    }
  }
}

void ParameterStore::Mend(bool set) const {
  for (const Block& block : blocks_) {
    std::vector<Tensor> whole, lost;
    for (const Tensor& values : EachOnce(block.values)) {
      try {
        values.Wait();
        whole.push_back(values);
      } catch (const HangError&) {
        throw;
      } catch (const Error&) {
        lost.push_back(values);
      }
    }
    for (const Tensor& values : lost) {
      if (!whole.empty()) {
        values.CopyFrom(whole[0]);
      } else if (set) {
        values.Fill(0);
      }
    }
  }
}

HostTensor ParameterStore::GetGradient(const StoredParameter& p, int device) const {
  if (const std::shared_ptr<RowGradient> by_rows = Rows(p, device)) {
    engine_->Wait(by_rows->var);
    const auto [numbers, rows, count] = by_rows->now.At();
    HostTensor whole(p.dtype, p.shape);
    const int64_t width = p.shape.CountFrom(1), bytes = width * SizeOf(p.dtype);
    for (int64_t i = 0; i < count; ++i) {
      if (numbers[i] < 0) continue;
      flat::Add(p.dtype, static_cast<const char*>(rows) + i * bytes,
                static_cast<char*>(whole.raw()) + numbers[i] * bytes, width);
    }
    return whole;
  }
  const Tensor gradient = Gradient(p, device);
  if (!gradient.defined()) Throw("parameter \"{}\" has no gradient: its gradient request is null", p.name);
  return FromStorage(p.dtype, p.shape, p.format, gradient.ToHost().raw());
}

std::vector<int> ParameterStore::UpdatedBlocks(const Plan& plan) const {
  std::set<int> blocks;
  for (const int slot : plan.updates) blocks.insert(Find(plan.auxiliary[slot].name)->block);
  return {blocks.begin(), blocks.end()};
}

void ParameterStore::AppendBegin(const std::vector<int>& blocks, StepParts* parts) const {
  for (const int b : blocks) {
    for (size_t d = 0; d < devices_.size(); ++d) {
      const Tensor &from = blocks_[b].values[d], &to = blocks_[b].candidates[d];
      parts->push_back({.name = "begin states",
                        .device = devices_[d],
                        .reads = {from.var()},
                        .writes = {to.var()},
                        .run = [from, to, &flat = Backend::Of(devices_[d].kind).flat()](const OpContext& context) {
                          flat.Copy(context.stream, from.address(), to.address(), to.bytes());
                        }});
    }
  }
}

void ParameterStore::AppendPublish(const std::vector<int>& blocks, const std::vector<VarPtr>& gates, StepParts* parts,
                                   std::span<const std::vector<Tensor>> statuses) const {
  for (const int b : blocks) {
    for (size_t d = 0; d < devices_.size(); ++d) {
      const Tensor &from = blocks_[b].candidates[d], &to = blocks_[b].values[d];
      const std::vector<Tensor> own = statuses.empty() ? std::vector<Tensor>() : statuses[d];
      std::vector<const StepStatus*> addresses;
      for (const Tensor& status : own) addresses.push_back(static_cast<const StepStatus*>(status.address()));
      parts->push_back({.name = "publish states",
                        .device = devices_[d],
                        .reads = gates,
                        .updates = {to.var()},
                        .run = [from, to, own, addresses = std::move(addresses),
                                &flat = Backend::Of(devices_[d].kind).flat()](const OpContext& context) {
                          flat.CopyFinite(context.stream, to.dtype(), from.address(), to.address(), to.elements(),
                                          addresses);
                        }});
      parts->back().reads.push_back(from.var());
      for (const Tensor& status : own) parts->back().reads.push_back(status.var());
    }
  }
}

void ParameterStore::ZeroGradients() const {
  for (const PreparedPtr& zero : zero_gradients_) engine_->Push(zero);
}

}  // namespace bindery
