#include "executor/group/input_ranges.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "executor/sample_error.h"
#include "symbol/infer.h"

namespace bindery {
namespace {

constexpr size_t kMostKnown = 64;

// What a cast of numbers to whole ones of this type leaves as they are.
InputRanges::Range WholeNumbersOf(DType dtype) {
  return Dispatch(dtype, []<class T>() {
    using Limits = std::numeric_limits<T>;
    // The largest number of 64 bits is none of a double's.
    const double below = std::nextafter(std::ldexp(1.0, Limits::digits), 0);
    return InputRanges::Range{
        {.low = LoadDouble(Limits::lowest()), .high = std::min(LoadDouble(Limits::max()), below)}};
  });
}

// Are all numbers of the one type numbers of the other, of whole ones?
bool IsWithin(DType one, DType other) {
  if (one == other || IsFloat(one)) return one == other;
  const WholeNumbers a = WholeNumbersOf(one), b = WholeNumbersOf(other);
  return a.low >= b.low && a.high <= b.high;
}

// An array as (outer, rows, inner); without a batch axis it is one row.
Shape RowView(const Shape& shape, int axis) {
  if (axis < 0) return {1, 1, shape.Elements()};
  return {shape.CountTo(axis), shape[axis], shape.CountFrom(axis + 1)};
}

}  // namespace

std::string InputRanges::Range::Complaint() const {
  const bool is_bounded = high < std::numeric_limits<double>::max();
  return is_bounded ? fmt::format("not in {:.0f}..{:.0f}", low, high) : "no whole number";
}

InputRanges::InputRanges(const Symbol& symbol, const Signature& signature, std::vector<DataDesc> inputs,
                         bool for_training)
    : graph_(Graph::Of(symbol)), inputs_(std::move(inputs)), for_training_(for_training), given_(signature.Given()) {
  const std::vector<bool> is_trained = TrainedNodes(graph_, signature);
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const Node& node = *graph_.nodes[n];
    if (node.is_variable() || node.op().asks.empty()) continue;
    const std::vector<std::string> names = InputNames(node);
    for (const AskedNumbers& asked : node.op().asks) {
      const auto place = static_cast<size_t>(std::ranges::find(names, asked.input) - names.begin());
      if (place == names.size()) continue;
      const Entry& first = node.inputs()[0];
      if (asked.of_parameter && (!first.node->is_variable() || InputOf(first))) continue;
      if (asked.in_training && !is_trained[static_cast<size_t>(graph_.IndexOf(first.node))]) continue;
      if (const auto input = InputOf(node.inputs()[place])) uses_.push_back({*input, n, place, &asked});
    }
  }
}

std::optional<size_t> InputRanges::Find(const std::string& name) const {
  const auto found = std::ranges::find(inputs_, name, &DataDesc::name);
  return found == inputs_.end() ? std::nullopt : std::optional(static_cast<size_t>(found - inputs_.begin()));
}

// That it shows, if all between are views, as it depends on types whether they are.
std::optional<size_t> InputRanges::InputOf(const Entry& entry) const {
  const Node* node = entry.node.get();
  for (; !node->is_variable(); node = node->inputs()[0].node.get()) {
    if (!node->op().is_view) return std::nullopt;
  }
  return Find(node->name());
}

const InputRanges::Ranges& InputRanges::Of(const std::vector<Shape>& shapes, std::optional<int64_t> samples,
                                           Mode mode) {
  static const Ranges kNone;
  if (uses_.empty()) return kNone;
  const auto found =
      std::ranges::find_if(known_, [&](const Known& known) { return known.mode == mode && known.shapes == shapes; });
  if (found != known_.end()) return found->ranges;
  ShapeMap given = given_.shapes;
  for (size_t i = 0; i < shapes.size(); ++i) given[inputs_[i].name] = shapes[i];
  const PartialTypes types = InferPartial(graph_, given, &given_.dtypes, samples);
  const auto type_of = [&](const Entry& entry) -> std::optional<ValueType> {
    const PartialType& type = types[static_cast<size_t>(graph_.IndexOf(entry.node))][static_cast<size_t>(entry.output)];
    if (!type.dtype || !type.shape || !type.shape->IsKnown()) return std::nullopt;
    return ValueType{.dtype = *type.dtype, .shape = *type.shape};
  };
  const auto is_same = [&](Entry entry) {  // as the variable that it shows
    for (; !entry.node->is_variable(); entry = entry.node->inputs()[0]) {
      const std::optional<ValueType> input = type_of(entry.node->inputs()[0]), output = type_of(entry);
      const AnyAttrs& attrs = entry.node->attrs();
      if (!input || !output || !entry.node->op().is_view({attrs, *input, *output, mode == Mode::kTrain})) return false;
    }
    return true;
  };
  Known known{.shapes = shapes, .mode = mode, .ranges = {}};
  for (const Use& use : uses_) {
    const Node& node = *graph_.nodes[use.node];
    if (use.asked->in_training && (mode != Mode::kTrain || !for_training_)) continue;
    if (!is_same(node.inputs()[use.place])) continue;
    std::vector<Shape> inputs;
    for (const Entry& entry : node.inputs()) {
      if (const auto type = type_of(entry)) inputs.push_back(type->shape);
    }
    if (inputs.size() < node.inputs().size()) continue;
    if (const std::optional<WholeNumbers> range = use.asked->range(node.attrs(), inputs)) {
      known.ranges.emplace(use.input, Range{*range, fmt::format("{} \"{}\"", node.op().name, node.name())});
    }
  }
  if (known_.size() == kMostKnown) known_.erase(known_.begin());
  known_.push_back(std::move(known));
  return known_.back().ranges;
}

void InputRanges::Check(size_t i, const HostTensor& array, const Ranges& ranges, int64_t pad,
                        std::span<const int64_t> index) const {
  const DataDesc& desc = inputs_[i];
  if (!IsFloat(desc.dtype) && desc.dtype != DType::kBool && !IsWithin(array.dtype(), desc.dtype)) {
    CheckRange(desc, array, WholeNumbersOf(desc.dtype), pad, index);
  }
  const auto [begin, end] = ranges.equal_range(i);
  for (auto range = begin; range != end; ++range) CheckRange(desc, array, range->second, pad, index);
}

void InputRanges::Check(const std::string& name, const HostTensor& array, std::optional<int64_t> samples, Mode mode) {
  const std::optional<size_t> input = Find(name);
  if (!input) return;
  if (std::ranges::find(uses_, *input, &Use::input) == uses_.end()) return Check(*input, array, Ranges());
  std::vector<Shape> shapes;
  for (const DataDesc& desc : inputs_) shapes.push_back(desc.shape);
  Check(*input, array, Of(shapes, samples, mode));
}

void InputRanges::CheckRange(const DataDesc& desc, const HostTensor& array, const Range& range, int64_t pad,
                             std::span<const int64_t> index) const {
  const Shape view = RowView(array.shape(), desc.BatchAxis());
  const int64_t rows = desc.BatchAxis() < 0 ? 1 : view[1] - pad;
  const auto bad = Dispatch(array.dtype(), [&]<class T>() -> std::optional<std::pair<int64_t, double>> {
    const T* const values = static_cast<const T*>(array.raw());
    for (int64_t outer = 0; outer < view[0]; ++outer) {
      const int64_t first = outer * view[1] * view[2];
      for (int64_t at = first; at < first + rows * view[2]; ++at) {
        const double value = LoadDouble(values[at]);
        if (std::is_integral_v<T> && value >= range.low && value <= range.high) continue;
        if (!range.Has(value)) return std::pair(at, value);
      }
    }
    return std::nullopt;
  });
  if (!bad) return;
  const auto [at, value] = *bad;
  const std::string what = range.asks.empty()
                               ? fmt::format("expected values of {}, got {}", desc.dtype, value)
                               : fmt::format("{} is {}, which {} takes", value, range.Complaint(), range.asks);
  if (desc.BatchAxis() < 0) Throw<DataError>("\"{}\": {} (element {})", desc.name, what, at);
  const int64_t sample = at / view[2] % view[1];
  throw SampleError(fmt::format("\"{}\": {} (element {}, of {})", desc.name, what, at, SampleText(sample, index)),
                    sample, RowOfSample(sample, index));
}

}  // namespace bindery
