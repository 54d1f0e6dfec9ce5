#include "tools/cli/model_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/names.h"
#include "base/split_text.h"
#include "symbol/graph.h"
#include "symbol/print/summary.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/options.h"

namespace bindery::cli {
namespace {

bool HasData(const Model& model) {
  const std::vector<std::string> names = model.symbol.ListArguments();
  return std::ranges::find(names, "data") != names.end();
}

Shape ShapeOfData(const Model& model, int64_t batch_size) {
  const auto sample = LikelySample(model);
  if (!sample) {
    throw UsageError("--shape: the model does not say the shape of \"data\"; give it, e.g. --shape 64,1,28,28");
  }
  return sample->Insert(BatchAxis(model), batch_size);
}

// Which of its axes the batch is; "": the first.
std::string LayoutOf(const Model& model, const DataDesc& input) {
  const auto axis = static_cast<size_t>(BatchAxis(model, input.name));
  std::string layout(static_cast<size_t>(input.shape.rank()), '-');
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

// Which is that of "data"; else of the first input of any number of samples; else of any. `only`: whose the shape
// without a name is.
std::optional<int64_t> BatchSizeOf(const Model& model, const GivenShapes& given, const std::string& only) {
  std::optional<int64_t> open, any;
  for (const NodePtr& node : Graph::Of(model.symbol).nodes) {
    if (!node->is_variable()) continue;
    const std::string& name = node->name();
    const auto said = given.find(name == only && given.contains("") ? "" : name);
    const int axis = BatchAxis(model, name);
    if (said == given.end() || axis >= said->second.rank()) continue;
    const int64_t size = said->second[axis];
    if (name == "data") return size;
    if (!any) any = size;
    const std::optional<Shape>& declared = node->declared_shape;
    if (!open && declared && declared->rank() > axis && (*declared)[axis] == kUnknownDim) open = size;
  }
  return open ? open : any;
}

// Those that are known, where the model has no values, or not all of them, too.
std::vector<std::string> KnownInputs(const Model& model) {
  if (!model.params.empty() && !HasData(model)) return ListInputs(model);
  std::set<std::string> known = ListGiven(model.symbol, {});
  known.insert("data");
  for (const auto& [name, input] : TrainedInputs(model)) known.insert(name);
  std::vector<std::string> inputs;
  for (const SampleArray& input : MayBeInputs(model)) {
    if (known.contains(input.name)) inputs.push_back(input.name);
  }
  return inputs;
}

// Variables that an operator takes as its parameters, by their places in it.
std::set<std::string> ParametersOf(const Symbol& symbol) {
  std::set<std::string> parameters;
  for (const NodePtr& node : Graph::Of(symbol).nodes) {
    if (node->is_variable()) continue;
    const std::vector<std::string> places = InputNames(*node);
    for (size_t i = 0; i < places.size(); ++i) {
      const Node& input = *node->inputs()[i].node;
      const bool is_parameter = places[i] == "weight" || places[i] == "bias" || places[i] == "gamma" ||
                                places[i] == "beta" || places[i] == "peephole";
      if (is_parameter && input.is_variable()) parameters.insert(input.name());
    }
  }
  return parameters;
}

}  // namespace

std::vector<SampleArray> MayBeInputs(const Model& model) {
  const std::set<std::string> labels = ListLabels(model.symbol);
  const std::set<std::string> parameters = ParametersOf(model.symbol);  // also of a model without values
  const auto trained = TrainedInputs(model);
  std::vector<SampleArray> inputs;
  const std::vector<std::string> arguments = model.symbol.ListArguments();  // in the order of the nodes
  for (const NodePtr& node : Graph::Of(model.symbol).nodes) {
    const std::string& name = node->name();
    if (!node->is_variable() || std::ranges::find(arguments, name) == arguments.end()) continue;
    if (labels.contains(name) || name == "softmax_label" || model.params.contains(name)) continue;
    const auto seen = trained.find(name);
    if (seen == trained.end() && parameters.contains(name)) continue;
    const DType dtype = seen == trained.end() ? DType::kFloat32 : seen->second.dtype;
    inputs.push_back({name, {}, node->declared_dtype.value_or(dtype)});
  }
  return inputs;
}

void AddShape(CLI::App* app, GivenShapes* shapes) {
  const auto parse = [shapes](const std::string& text) {
    for (const std::string_view part : SplitText(text, ';')) {
      const size_t equals = part.rfind('=');
      const bool named = equals != std::string_view::npos;
      const std::vector<int64_t> extents =
          ParseNumbers<int64_t>("--shape", named ? part.substr(equals + 1) : part, 1, INT64_MAX);
      if (extents.size() > Shape::kMaxRank) {
        throw UsageError(fmt::format("--shape: at most {} extents, got {}", Shape::kMaxRank, extents.size()));
      }
      const std::string name(named ? Trim(part.substr(0, equals)) : "");
      if (!shapes->emplace(name, Shape(extents)).second) {
        throw UsageError(fmt::format("--shape: two for {}", named ? fmt::format("\"{}\"", name) : "the only input"));
      }
    }
  };
  app->add_option_function<std::string>(
         "--shape", parse, "shape of the input, batch first, e.g. 64,1,28,28; of several: \"left=64,4;right=64,2\"")
      ->type_name("NUMBER,...");
}

Shape GivenSample(const GivenShapes& given) {
  for (const char* name : {"", "data"}) {
    const auto found = given.find(name);
    if (found != given.end()) return found->second.Erase(0);
  }
  return {};
}

std::vector<std::string> ListInputs(const Model& model) {
  if (model.params.empty()) return {};
  std::vector<std::string> inputs = model.symbol.ListArguments();
  const std::set<std::string> labels = ListLabels(model.symbol);
  std::erase_if(inputs, [&](const std::string& name) { return labels.contains(name) || model.params.contains(name); });
  return inputs;
}

std::vector<DataDesc> DescribeInputs(const Model& model, const GivenShapes& given, int64_t batch_size) {
  const std::vector<std::string> names = KnownInputs(model);
  if (names.empty()) CheckArguments(model, /*labelled=*/false);
  const auto trained = TrainedInputs(model);
  const std::string only = names.size() == 1 ? names[0] : HasData(model) ? "data" : "";  // what is meant without a name
  if (!only.empty() && given.contains("") && given.contains(only)) {
    throw UsageError(fmt::format("--shape: two for \"{}\", one of them without its name", only));
  }
  batch_size = BatchSizeOf(model, given, only).value_or(batch_size);
  std::vector<DataDesc> inputs;
  std::set<std::string> of_samples;  // whatever their first extents say
  for (const NodePtr& node : Graph::Of(model.symbol).nodes) {
    const std::string& name = node->name();
    if (!node->is_variable() || std::ranges::find(names, name) == names.end()) continue;
    DataDesc input{.name = name, .dtype = node->declared_dtype.value_or(DType::kFloat32)};
    const auto seen = trained.find(name);
    const auto said = given.find(name == only && given.contains("") ? "" : name);
    if (said != given.end()) {
      input.shape = said->second;
    } else if (name == "data" && (names.size() == 1 || LikelySample(model))) {
      input.shape = ShapeOfData(model, batch_size);
    } else if (node->declared_shape) {
      input.shape = *node->declared_shape;
    } else if (seen != trained.end()) {
      input.shape = seen->second.shape;
    }
    input.layout = LayoutOf(model, input);
    if (said != given.end() || name == "data") of_samples.insert(name);
    inputs.push_back(std::move(input));
  }
  for (const auto& [name, shape] : given) {
    if (std::ranges::find(names, name) != names.end() || (name.empty() && !only.empty())) continue;
    throw UsageError(name.empty()
                         ? fmt::format("--shape: the model has {} inputs, {}: say whose it is, as \"{}=64,...\"",
                                       inputs.size(), ListText(inputs), inputs[0].name)
                         : fmt::format("--shape: the model has no input \"{}\"{}", name, NameHint(name, names)));
  }
  // Where some are for any number of samples, the others are not of samples.
  const auto is_open = [](const DataDesc& input) { return input.shape.rank() > 0 && input.shape[0] == kUnknownDim; };
  const bool any_open = std::ranges::any_of(inputs, is_open) || !of_samples.empty();
  for (DataDesc& input : inputs) {
    if (is_open(input)) {
      input.shape.Set(0, batch_size);
    } else if (any_open && !of_samples.contains(input.name)) {
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
  throw UsageError(
      fmt::format("the model does not say all extents of its inputs, which are {}: --shape \"{}=64,...\" does",
                  ListText(inputs), inputs[0].name));
}

}  // namespace bindery::cli
