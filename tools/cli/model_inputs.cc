#include "tools/cli/model_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "symbol/graph.h"
#include "tools/cli/options.h"

namespace bindery::cli {
namespace {

bool HasData(const Model& model) {
  const std::vector<std::string> names = model.symbol.ListArguments();
  return std::ranges::find(names, "data") != names.end();
}

Shape ShapeOfData(const Model& model, std::span<const int64_t> shape, int64_t batch_size) {
  if (!shape.empty()) return Shape(shape);
  const auto sample = LikelySample(model);
  if (!sample) {
    throw UsageError("--shape: the model does not say the shape of \"data\"; give it, e.g. --shape 64,1,28,28");
  }
  return sample->Insert(BatchAxis(model), batch_size);
}

// Which of its axes the batch is; "": the first.
std::string LayoutOfData(const Model& model, const Shape& shape) {
  const auto axis = static_cast<size_t>(BatchAxis(model));
  std::string layout(static_cast<size_t>(shape.rank()), '-');
  if (axis == 0 || axis >= layout.size()) return "";
  layout[axis] = 'N';
  return layout;
}

std::string ListText(const std::vector<DataDesc>& inputs) {
  std::string text;
  for (const DataDesc& input : inputs) {
    text += fmt::format("{}\"{}\" {}", text.empty() ? "" : ", ", input.name, input.shape);
  }
  return text;
}

}  // namespace

std::vector<std::string> ListInputs(const Model& model) {
  if (model.params.empty()) return {};
  std::vector<std::string> inputs = model.symbol.ListArguments();
  const std::set<std::string> labels = ListLabels(model.symbol);
  std::erase_if(inputs, [&](const std::string& name) { return labels.contains(name) || model.params.contains(name); });
  return inputs;
}

std::vector<DataDesc> DescribeInputs(const Model& model, std::span<const int64_t> shape, int64_t batch_size) {
  if (HasData(model)) {
    const Shape whole = ShapeOfData(model, shape, batch_size);
    return {{.name = "data", .shape = whole, .layout = LayoutOfData(model, whole)}};
  }
  const std::vector<std::string> names = ListInputs(model);
  if (names.empty()) CheckArguments(model, /*labelled=*/false);
  const auto trained = TrainedInputs(model);
  std::vector<DataDesc> inputs;
  for (const NodePtr& node : Graph::Of(model.symbol).nodes) {
    if (!node->is_variable() || std::ranges::find(names, node->name()) == names.end()) continue;
    DataDesc input{.name = node->name(), .dtype = node->declared_dtype.value_or(DType::kFloat32)};
    const auto seen = trained.find(node->name());
    if (node->declared_shape) input.shape = *node->declared_shape;
    if (!node->declared_shape && seen != trained.end()) input.shape = seen->second.shape;
    inputs.push_back(std::move(input));
  }
  if (!shape.empty()) {
    if (inputs.size() > 1) {
      throw UsageError(fmt::format("--shape: the model has {} inputs, {}: their shapes are those that it declares",
                                   inputs.size(), ListText(inputs)));
    }
    inputs[0].shape = Shape(shape);
  }
  // Where some are for any number of samples, the others are not of samples.
  const auto is_open = [](const DataDesc& input) { return input.shape.rank() > 0 && input.shape[0] == kUnknownDim; };
  const bool any_open = std::ranges::any_of(inputs, is_open);
  for (DataDesc& input : inputs) {
    if (is_open(input)) {
      input.shape.Set(0, batch_size);
    } else if (any_open) {
      input.layout = std::string(static_cast<size_t>(input.shape.rank()), '-');
    }
  }
  return inputs;
}

ShapeMap ShapesOf(const std::vector<DataDesc>& inputs) {
  ShapeMap shapes;
  for (const DataDesc& input : inputs) shapes[input.name] = input.shape;
  return shapes;
}

void CheckShapesKnown(const std::vector<DataDesc>& inputs) {
  if (std::ranges::all_of(inputs, [](const DataDesc& input) { return input.shape.IsKnown(); })) return;
  throw UsageError(fmt::format("the model does not say all extents of its inputs, which are {}", ListText(inputs)));
}

}  // namespace bindery::cli
