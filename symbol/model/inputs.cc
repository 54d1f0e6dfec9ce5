// Models cut to what is wanted of them, and what is known of their inputs.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/split_text.h"
#include "symbol/graph.h"
#include "symbol/model.h"
#include "symbol/op_def.h"

namespace bindery {
namespace {

constexpr const char* kTrainedInputsKey = "bindery.inputs";  // lines "int32 ?,12 tokens"

std::optional<Shape> ParseExtents(std::string_view text) {
  std::vector<int64_t> extents;
  for (const std::string_view part : SplitText(text, ',')) {
    int64_t extent = kUnknownDim;
    const auto end = std::from_chars(part.data(), part.data() + part.size(), extent);
    if (part != "?" && (end.ec != std::errc() || end.ptr != part.data() + part.size() || extent < 0)) return {};
    extents.push_back(extent);
  }
  if (extents.size() > Shape::kMaxRank) return {};
  return Shape(extents);
}

std::set<std::string> VariablesOf(std::span<const Entry> heads) {
  std::set<std::string> names;
  for (const NodePtr& node : PostOrder(heads)) {
    if (node->is_variable()) names.insert(node->name());
  }
  return names;
}

// What a head reads to predict: one of a label, as SoftmaxOutput, all but that.
std::set<std::string> ReadToPredict(const Entry& head) {
  if (!IsLoss(*head.node)) return VariablesOf({&head, 1});
  std::vector<Entry> inputs;
  const std::vector<std::string> names = InputNames(*head.node);
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != "label") inputs.push_back(head.node->inputs()[i]);
  }
  return VariablesOf(inputs);
}

bool ShareNodes(const Symbol& a, const Symbol& b) {
  std::set<NodePtr> nodes;
  for (const NodePtr& node : PostOrder(a.entries())) nodes.insert(node);
  return std::ranges::any_of(PostOrder(b.entries()), [&](const NodePtr& node) { return nodes.contains(node); });
}

}  // namespace

Model Cut(const Model& model, const Symbol& symbol) {
  Model cut{.symbol = symbol, .metadata = model.metadata};
  for (const std::string& name : symbol.ListInputs()) {
    if (const auto value = model.params.find(name); value != model.params.end()) cut.params.insert(*value);
    if (const auto value = model.aux.find(name); value != model.aux.end()) cut.aux.insert(*value);
  }
  if (cut.params.empty() && cut.aux.empty() && !(model.params.empty() && model.aux.empty()) &&
      !ShareNodes(model.symbol, symbol)) {
    Throw<ModelError>(
        "nothing of the model is left in the symbol that it is to be cut to, whose inputs are {}: make that of the "
        "model's own values, model.symbol.Internals()[\"NAME_output\"]",
        fmt::join(symbol.ListInputs(), ", "));
  }
  return cut;
}

Symbol WithoutTargets(const Symbol& symbol, const std::function<bool(const std::string& variable)>& is_given) {
  const auto is_loss = [](const Entry& head) {
    return IsLoss(*head.node) && !head.node->op().blocks_gradient && head.node->inputs().size() == 1;
  };
  std::set<std::string> read;  // by the others
  for (const Entry& head : symbol.entries()) {
    if (!is_loss(head)) read.merge(ReadToPredict(head));
  }
  std::vector<Entry> heads = symbol.entries();
  std::erase_if(heads, [&](const Entry& head) {
    return is_loss(head) && std::ranges::any_of(VariablesOf({&head, 1}), [&](const std::string& name) {
             return !read.contains(name) && !is_given(name);
           });
  });
  return heads.empty() || heads.size() == symbol.entries().size() ? symbol : Symbol(std::move(heads));
}

std::map<std::string, TrainedInput> TrainedInputs(const Model& model) {
  std::map<std::string, TrainedInput> inputs;
  const auto found = model.metadata.find(kTrainedInputsKey);
  if (found == model.metadata.end()) return inputs;
  for (const std::string_view line : SplitText(found->second, '\n')) {
    const size_t extents = line.find(' '), name = line.find(' ', extents + 1);
    if (extents == std::string_view::npos || name == std::string_view::npos) continue;
    const std::optional<Shape> shape = ParseExtents(line.substr(extents + 1, name - extents - 1));
    if (!shape) continue;
    try {
      const DType dtype = ParseDType(line.substr(0, extents));
      inputs[std::string(line.substr(name + 1))] = {dtype, *shape};
    } catch (const Error&) {  // of a later version, or written by hand: it only tells what is likely
    }
  }
  return inputs;
}

void SetTrainedInputs(const std::map<std::string, TrainedInput>& inputs, Model* model) {
  std::string lines;
  for (const auto& [name, input] : inputs) {
    std::string extents;
    for (const int64_t extent : input.shape) {
      extents += fmt::format("{}{}", extents.empty() ? "" : ",", extent < 0 ? "?" : std::to_string(extent));
    }
    if (!extents.empty() && name.find('\n') == std::string::npos) {
      lines += fmt::format("{} {} {}\n", input.dtype, extents, name);
    }
  }
  model->metadata.erase(kTrainedInputsKey);
  if (!lines.empty()) model->metadata[kTrainedInputsKey] = lines;
}

}  // namespace bindery
