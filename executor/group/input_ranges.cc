#include "executor/group/input_ranges.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "symbol/infer.h"
#include "symbol/ops/cast.h"
#include "symbol/ops/cross_entropy.h"
#include "symbol/ops/indexing.h"
#include "symbol/ops/loss.h"
#include "symbol/ops/recurrent.h"
#include "symbol/ops/sequence.h"

namespace bindery {
namespace {

using AskedRange = InputRanges::Range;

constexpr size_t kMostKnown = 64;

AskedRange UpTo(int64_t high, double low = 0) { return {.low = low, .high = static_cast<double>(high)}; }

// Numbers of n classes, rows or such, of which negative ones are counted from the end.
AskedRange FromEitherEnd(int64_t n) { return UpTo(n - 1, -static_cast<double>(n)); }

std::optional<AskedRange> OfSoftmaxLabel(const Node& node, const std::vector<Shape>& in) {
  const auto& attrs = node.attrs().get<SoftmaxOutputAttrs>();
  const Shape &data = in[0], &label = in[1];
  if (label == data || data.rank() == 0 || data[0] == 0) return std::nullopt;  // probabilities
  const int64_t each = data.Elements() / data[0];
  AskedRange range = UpTo((attrs.multi_output ? data[1] : attrs.preserve_shape ? data[-1] : each) - 1);
  if (attrs.use_ignore) range.besides = attrs.ignore_label;
  return range;
}

std::optional<AskedRange> OfEntropyLabel(const Node& node, const std::vector<Shape>& in) {
  const auto& attrs = node.attrs().get<CrossEntropyAttrs>();
  AskedRange range = UpTo(in[0][static_cast<int>(attrs.axis)] - 1);
  if (attrs.use_ignore) range.besides = attrs.ignore_label;
  return range;
}

std::optional<AskedRange> OfHingeLabel(const Node&, const std::vector<Shape>&) {
  constexpr double kMost = std::numeric_limits<double>::max();
  return AskedRange{.low = -kMost, .high = kMost};
}

std::optional<AskedRange> OfRecurrentLengths(const Node& node, const std::vector<Shape>& in) {
  return UpTo(in[0][node.attrs().get<RecurrentAttrs>().layout == SequenceLayout::kTnc ? 0 : 1]);
}

template <class Attrs, int kLeast>
std::optional<AskedRange> OfLengths(const Node& node, const std::vector<Shape>& in) {
  return UpTo(in[0][AxesOf(node.attrs().get<Attrs>(), in[0]).steps], kLeast);
}

std::optional<AskedRange> OfCtcSteps(const Node&, const std::vector<Shape>& in) { return UpTo(in[0][0]); }
std::optional<AskedRange> OfCtcLabels(const Node&, const std::vector<Shape>& in) { return UpTo(in[1][1]); }

std::optional<AskedRange> OfEmbedded(const Node& node, const std::vector<Shape>&) {
  const auto& attrs = node.attrs().get<EmbeddingAttrs>();
  return attrs.mode == IndexMode::kRaise ? std::optional(FromEitherEnd(attrs.input_dim)) : std::nullopt;
}

std::optional<AskedRange> OfTaken(const Node& node, const std::vector<Shape>& in) {
  const auto& attrs = node.attrs().get<TakeAttrs>();
  if (attrs.mode != IndexMode::kRaise) return std::nullopt;
  AskedRange range = FromEitherEnd(in[0][static_cast<int>(attrs.axis)]);
  if (attrs.padding != kNoIndex) range.besides = static_cast<double>(attrs.padding);
  return range;
}

// What the kernels of these operators refuse.
struct Rule {
  const char *op, *input;
  std::optional<AskedRange> (*range)(const Node& node, const std::vector<Shape>& inputs);
  bool in_training = false;   // it is the gradient that refuses them
  bool of_parameter = false;  // only where the first input has one shape in all batches: a parameter
};
constexpr Rule kRules[] = {
    {"SoftmaxOutput", "label", OfSoftmaxLabel, true},
    {"SVMOutput", "label", OfHingeLabel, true},
    {"CrossEntropy", "label", OfEntropyLabel},
    {"CTCLoss", "data_lengths", OfCtcSteps},
    {"CTCLoss", "label_lengths", OfCtcLabels},
    {"Recurrent", "lengths", OfRecurrentLengths},
    {"SequenceMask", "lengths", OfLengths<SequenceMaskAttrs, 0>},
    {"SequenceReverse", "lengths", OfLengths<SequenceAttrs, 0>},
    {"SequenceLast", "lengths", OfLengths<SequenceAttrs, 1>},
    {"Embedding", "data", OfEmbedded},
    {"Take", "indices", OfTaken, false, true},
};

const Rule* RuleOf(const Node& node, const std::string& input) {
  const auto found =
      std::ranges::find_if(kRules, [&](const Rule& rule) { return node.op().name == rule.op && input == rule.input; });
  return found == std::end(kRules) ? nullptr : &*found;
}

}  // namespace

std::string InputRanges::Range::Complaint() const {
  const bool is_bounded = high < std::numeric_limits<double>::max();
  return is_bounded ? fmt::format("not in {:.0f}..{:.0f}", low, high) : "no whole number";
}

InputRanges::InputRanges(const GroupSpec& spec) : spec_(spec), graph_(Graph::Of(spec.symbol)) {
  std::vector<bool> is_trained;  // does a gradient flow through it?
  const auto trains = [&](const Entry& entry) { return is_trained[static_cast<size_t>(graph_.IndexOf(entry.node))]; };
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const Node& node = *graph_.nodes[n];
    if (node.is_variable()) {
      const int argument = spec.Find(node.name());
      is_trained.push_back(argument >= 0 &&
                           spec.signature.arguments[static_cast<size_t>(argument)].request != GradReq::kNull);
      continue;
    }
    is_trained.push_back(!node.op().blocks_gradient && std::ranges::any_of(node.inputs(), trains));
    const std::vector<std::string> names = InputNames(node);
    for (size_t i = 0; i < names.size(); ++i) {
      const Rule* const rule = RuleOf(node, names[i]);
      if (!rule || (rule->of_parameter && !node.inputs()[0].node->is_variable())) continue;
      if (rule->of_parameter && InputOf(node.inputs()[0])) continue;
      if (rule->in_training && !trains(node.inputs()[0])) continue;
      if (const auto input = InputOf(node.inputs()[i])) uses_.push_back({*input, n, static_cast<int>(i)});
    }
  }
}

// No value if it is none, or other numbers.
std::optional<size_t> InputRanges::InputOf(const Entry& entry) const {
  const Node* node = entry.node.get();
  for (; !node->is_variable(); node = node->inputs()[0].node.get()) {
    const OpDef& op = node->op();
    if (!op.is_view || op.is_random || CastFrom(*node) || op.name == "SumTo") return std::nullopt;
  }
  for (size_t i = 0; i < spec_.num_inputs(); ++i) {
    if (spec_.input(i).name == node->name()) return i;
  }
  return std::nullopt;
}

const std::multimap<size_t, AskedRange>& InputRanges::Of(const std::vector<Shape>& shapes, Mode mode) {
  static const std::multimap<size_t, AskedRange> kNone;
  if (uses_.empty()) return kNone;
  const auto found =
      std::ranges::find_if(known_, [&](const Known& known) { return known.mode == mode && known.shapes == shapes; });
  if (found != known_.end()) return found->ranges;
  ShapeMap given;
  for (size_t i = 0; i < shapes.size(); ++i) given[spec_.input(i).name] = shapes[i];
  for (const int state : spec_.states) {
    const Argument& argument = spec_.signature.arguments[static_cast<size_t>(state)];
    if (argument.shape) given[argument.name] = *argument.shape;
  }
  const PartialTypes types = InferPartial(graph_, given, nullptr, spec_.SamplesOf(shapes));
  Known known{.shapes = shapes, .mode = mode, .ranges = {}};
  for (const Use& use : uses_) {
    const Node& node = *graph_.nodes[use.node];
    const Rule& rule = *RuleOf(node, InputNames(node)[static_cast<size_t>(use.at)]);
    if (rule.in_training && (mode != Mode::kTrain || !spec_.options.for_training)) continue;
    std::vector<Shape> inputs;
    for (const Entry& entry : node.inputs()) {
      const auto node_of_it = static_cast<size_t>(graph_.IndexOf(entry.node));
      const auto& shape = types[node_of_it][static_cast<size_t>(entry.output)].shape;
      if (!shape || !shape->IsKnown()) break;
      inputs.push_back(*shape);
    }
    if (inputs.size() < node.inputs().size()) continue;
    std::optional<AskedRange> range = rule.range(node, inputs);
    if (!range) continue;
    range->asks = fmt::format("{} \"{}\"", node.op().name, node.name());
    known.ranges.emplace(use.input, std::move(*range));
  }
  if (known_.size() == kMostKnown) known_.erase(known_.begin());
  known_.push_back(std::move(known));
  return known_.back().ranges;
}

}  // namespace bindery
