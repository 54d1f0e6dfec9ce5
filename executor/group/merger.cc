#include "executor/group/merger.h"

#include <algorithm>

#include "base/error.h"
#include "engine/backend.h"
#include "executor/group/device_feed.h"

namespace bindery {
namespace {

std::vector<SampleRange> NotEmpty(std::vector<SampleRange> ranges) {
  std::erase_if(ranges, [](const SampleRange& range) { return range.size() == 0; });
  return ranges;
}

double PartOf(const SampleRange& range, int64_t samples) {
  return static_cast<double>(range.size()) / static_cast<double>(samples);
}

}  // namespace

Tensor Merger::Merge(std::vector<Tensor> parts, const ValueType& type, const std::string& rule,
                     const std::vector<SampleRange>& all_ranges) const {
  const int axis = type.batch_axis;
  if (parts.size() == 1 || (axis < 0 && (rule.empty() || rule == "first"))) return parts[0];
  const Device device = parts[0].device();
  const int64_t samples = all_ranges.back().end;
  Shape shape = parts[0].shape();
  if (axis >= 0) shape.Set(axis, samples * type.batch_fold.outer * type.batch_fold.inner);
  const Tensor merged(engine_, device, parts[0].dtype(), shape);
  if (axis >= 0) {
    DeviceFeed feed(engine_, device, 0, 1);
    feed.Add(parts, type, {0, samples}, merged);
    feed.Push("merge", merged.var());
    return merged;
  }
  Operation operation{.name = "merge", .device = device, .writes = {merged.var()}};
  for (Tensor& part : parts) {
    if (!ShareMemory(part.device(), device)) {
      const Tensor here(engine_, device, part.dtype(), part.shape());
      here.CopyFrom(part);
      part = here;
    }
    (rule == "mean" ? operation.updates : operation.reads).push_back(part.var());
  }
  operation.run = [=, ranges = NotEmpty(all_ranges),
                   &flat = Backend::Of(device.kind).flat()](const OpContext& context) {
    std::vector<const void*> sources;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Tensor& part = parts[i];
      if (rule == "mean") {
        flat.Scale(context.stream, part.dtype(), part.address(), part.elements(), PartOf(ranges[i], samples));
      }
      sources.push_back(part.address());
    }
    flat.Sum(context.stream, merged.dtype(), sources, merged.address(), merged.elements());
  };
  engine_->Push(std::move(operation));
  return merged;
}

std::vector<std::vector<Tensor>> Merger::OutputsPerDevice(const Binding& binding, int begin, int end) const {
  const int heads = static_cast<int>(spec_.signature.heads.size());
  if (end < 0) end = heads;
  if (begin < 0 || begin > end || end > heads) Throw("outputs {} to {} of {}", begin, end, heads);
  std::vector<std::vector<Tensor>> outputs;
  for (int i = begin; i < end; ++i) {
    std::vector<Tensor>& parts = outputs.emplace_back();
    for (const GroupStep::Participant& p : binding.participants()) parts.push_back(p.executor->CopyOutput(*p.bound, i));
  }
  return outputs;
}

std::vector<Tensor> Merger::Outputs(const Binding& binding, int begin, int end) const {
  std::vector<Tensor> merged;
  for (const std::vector<Tensor>& parts : OutputsPerDevice(binding, begin, end)) {
    const int head = begin + static_cast<int>(merged.size());
    merged.push_back(Merge(parts, binding.OutputType(head), spec_.merge_rules[head], binding.ranges));
  }
  return merged;
}

std::vector<std::vector<Tensor>> Merger::InputGradientsPerDevice(const Binding& binding) const {
  std::vector<std::vector<Tensor>> gradients;
  for (size_t i = 0; i < spec_.options.data.size(); ++i) {
    const DataDesc& desc = spec_.options.data[i];
    if (spec_.RequestOf(i) == GradReq::kNull) {
      if (spec_.options.inputs_need_grad) continue;
      Throw("InputGradients: bind the group with inputs_need_grad = true (no gradient is asked for \"{}\")", desc.name);
    }
    std::vector<Tensor>& parts = gradients.emplace_back();
    for (const GroupStep::Participant& p : binding.participants()) {
      const Tensor inside = p.executor->InputGradient(*p.bound, spec_.inputs[i]);
      const Tensor copy(engine_, inside.device(), inside.dtype(), inside.shape());
      copy.CopyFrom(inside);
      parts.push_back(copy);
    }
  }
  return gradients;
}

std::vector<Tensor> Merger::InputGradients(const Binding& binding) const {
  std::vector<Tensor> merged;
  const std::vector<std::vector<Tensor>> parts = InputGradientsPerDevice(binding);
  for (size_t i = 0; i < spec_.options.data.size(); ++i) {
    if (spec_.RequestOf(i) == GradReq::kNull) continue;
    const DataDesc& desc = spec_.options.data[i];
    const ValueType type{.dtype = desc.dtype, .shape = {}, .batch_axis = desc.BatchAxis()};
    merged.push_back(Merge(parts[merged.size()], type, "sum", binding.ranges));
  }
  return merged;
}

std::vector<std::vector<Tensor>> Merger::States(const Binding& binding) const {
  std::vector<std::vector<Tensor>> states;
  for (const int state : spec_.states) {
    std::vector<Tensor>& parts = states.emplace_back();
    for (const GroupStep::Participant& p : binding.participants()) parts.push_back(p.executor->Input(*p.bound, state));
  }
  return states;
}

void Merger::SetStates(const Binding& binding, std::vector<std::vector<Tensor>> pieces) const {
  std::vector<Sharing> arrays;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const DataDesc& desc = spec_.options.states[i];
    for (Tensor& piece : pieces[i]) {
      const auto is_written = [&](const GroupStep::Participant& p) {
        return p.executor->Input(*p.bound, spec_.states[i]).var() == piece.var();
      };
      if (std::ranges::none_of(binding.participants(), is_written)) continue;
      const Tensor copy(engine_, piece.device(), piece.dtype(), piece.shape());
      copy.CopyFrom(piece);
      piece = copy;
    }
    arrays.push_back({spec_.states[i], pieces[i], {.dtype = desc.dtype, .shape = {}, .batch_axis = desc.BatchAxis()}});
  }
  if (!arrays.empty()) ShareOut(binding, "states", arrays);
}

void Merger::CheckHeadGradient(const Binding& binding, size_t head, const std::vector<Tensor>* given) const {
  if (binding.step->plan().head_gradients[head] < 0) return;
  const std::string& name = spec_.signature.heads[head];
  if (!given) {
    Throw("Backward: head \"{}\" is not a loss, so its gradient must be given (or make it a loss with MakeLoss)", name);
  }
  const ValueType& type = binding.OutputType(static_cast<int>(head));
  const Shape expected = binding.OutputShape(static_cast<int>(head)), got = WholeShape(*given, type, *engine_, name);
  CheckPieces(*given, type, binding.participants().size(), name);
  if (got != expected) {
    Throw<ShapeError>("Backward: gradient of head \"{}\": expected {}, got {}", name, expected, got);
  }
}

void Merger::PushHeadGradients(const Binding& binding, const DeviceArrays& gradients) const {
  const std::vector<int>& wanted = binding.step->plan().head_gradients;
  std::vector<Sharing> arrays;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] < 0) continue;
    CheckHeadGradient(binding, i, gradients.Find(i));
    const ValueType& type = binding.OutputType(static_cast<int>(i));
    arrays.push_back({wanted[i], *gradients.Find(i), type, type.batch_axis < 0 ? spec_.merge_rules[i] : ""});
  }
  for (const GroupStep::Participant& p : binding.participants()) p.executor->CheckFresh("Backward");
  if (!arrays.empty()) ShareOut(binding, "head gradients", arrays);
}

void Merger::ShareOut(const Binding& binding, const char* what, const std::vector<Sharing>& arrays) const {
  const auto& participants = binding.participants();
  std::vector<DeviceFeed> feeds;
  for (size_t k = 0; k < participants.size(); ++k) {
    const GroupStep::Participant& p = participants[k];
    const SampleRange range = binding.RangeOf(p);
    DeviceFeed& feed = feeds.emplace_back(engine_, p.executor->device(), k, participants.size());
    for (const Sharing& array : arrays) {
      double weight = 1;  // of this device's value in the merged one
      if (array.rule == "mean") weight = PartOf(range, binding.samples());
      if (array.rule == "first") weight = k == 0 ? 1 : 0;
      feed.Add(array.pieces, array.type, range, p.executor->Input(*p.bound, array.argument), weight);
    }
  }
  const bool all = binding.step->plan().arguments[arrays[0].argument].role == Role::kState;
  for (size_t k = 0; k < participants.size(); ++k) {
    feeds[k].Push(what, participants[k].executor->Input(*participants[k].bound, arrays[0].argument).var(), all);
  }
}

}  // namespace bindery
