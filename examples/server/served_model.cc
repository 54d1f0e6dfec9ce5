#include "examples/server/served_model.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

namespace bindery::server {
namespace {

Model Load(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    std::optional<Checkpoint> newest = CheckpointStore(path).LoadNewest();
    if (!newest) Throw<DataError>("{}: no checkpoints in this folder", path);
    return std::move(newest->model);
  }
  return path.ends_with(".ckpt") ? LoadCheckpoint(path).model : LoadModel(path);
}

Shape SampleOf(const Node& input, const std::map<std::string, Shape>& given) {
  const auto found = given.find(input.name());
  const std::optional<Shape>& declared = input.declared_shape;
  const auto layout = input.annotations().find("layout");
  if (layout != input.annotations().end() && !layout->second.empty() && !layout->second.starts_with('N')) {
    Throw<ModelError>("input \"{}\" has layout \"{}\": served are models with the batch at axis 0", input.name(),
                      layout->second);
  }
  if (found != given.end()) return found->second;
  if (declared && declared->rank() > 0 && declared->Erase(0).IsKnown()) return declared->Erase(0);
  Throw<ModelError>(
      "\"{}\" has no value in the model, nor does that say the shape of a sample: if it is a parameter, give "
      "--weights; an input, its shape, as --input {}:1,28,28",
      input.name(), input.name());
}

}  // namespace

int64_t ServedModel::SampleElements() const {
  int64_t elements = 0;
  for (const ValueSpec& input : inputs) elements += input.sample.Elements();
  return elements;
}

std::vector<DataDesc> ServedModel::Describe(int64_t batch) const {
  std::vector<DataDesc> descriptions;
  for (const ValueSpec& input : inputs) {
    descriptions.push_back({.name = input.name, .shape = input.sample.Insert(0, batch), .dtype = input.dtype});
  }
  return descriptions;
}

ValueSpec ServedModel::Asked(const ValueSpec& input) const {
  ValueSpec asked = input;
  if (IsOfTable()) asked.dtype = DType::kFloat64;
  const int axis = asked.sample.rank() - 1;
  if (!categories.empty()) asked.sample.Set(axis, asked.sample[axis] - ColumnsWith(categories, 0));
  return asked;
}

const ColumnCategories* ServedModel::CategoriesOf(int64_t element) const {
  if (categories.empty()) return nullptr;
  const int64_t place = element % (SampleElements() - ColumnsWith(categories, 0));
  const auto found = std::ranges::find(categories, place, &ColumnCategories::place);
  return found == categories.end() ? nullptr : &*found;
}

HostTensorMap ServedModel::Prepare(HostTensorMap asked) const {
  if (!IsOfTable()) return asked;
  HostTensor& input = asked.at(inputs[0].name);
  const int64_t samples = input.shape()[0];
  HostTensor rows = input.Reshape({samples, Asked(inputs[0]).sample.Elements()});
  if (!categories.empty()) rows = ExpandCategories(categories, rows);
  input = ScaleColumns(columns, rows, missing).Reshape(inputs[0].sample.Insert(0, samples)).Cast(inputs[0].dtype);
  return asked;
}

Model LoadWithWeights(const std::string& path, const std::string& weights) {
  Model model = Load(path);
  if (weights.empty()) return model;
  Model values = Load(weights);
  for (const auto& [name, value] : model.params) {
    if (!values.params.contains(name)) Throw<DataError>("{}: no value for \"{}\"", weights, name);
  }
  model.params = std::move(values.params);
  model.aux = std::move(values.aux);
  SetPreprocessing(Preprocessing(values), &model);  // of what the values were trained on
  ScaleLabelsAsKept(&model);
  // What only the network of the weights has would be refused when it is bound.
  const std::vector<std::string> arguments = model.symbol.ListArguments();
  std::erase_if(model.params, [&](const auto& item) {
    return std::find(arguments.begin(), arguments.end(), item.first) == arguments.end();
  });
  return model;
}

ServedModel Describe(Model model, const std::map<std::string, Shape>& sample_shapes) {
  ServedModel served;
  const auto labels = ListLabels(model.symbol);
  // As the predictor has it: all but labels is asked for.
  model.symbol = WithoutTargets(model.symbol, [&](const std::string& name) {
    return !labels.contains(name) || model.params.contains(name) || model.aux.contains(name);
  });
  ShapeMap two, three;
  DTypeMap dtypes;
  for (const NodePtr& node : Graph::Of(model.symbol).nodes) {
    const bool has_value = model.params.contains(node->name()) || model.aux.contains(node->name());
    if (!node->is_variable() || has_value || labels.contains(node->name())) continue;
    served.inputs.push_back(
        {node->name(), SampleOf(*node, sample_shapes), node->declared_dtype.value_or(DType::kFloat32)});
    const ValueSpec& input = served.inputs.back();
    if (input.sample.Elements() == 0) Throw<ModelError>("input \"{}\": samples of shape {}", input.name, input.sample);
    two[input.name] = input.sample.Insert(0, 2);
    three[input.name] = input.sample.Insert(0, 3);
    dtypes[input.name] = input.dtype;
  }
  for (const auto& [name, shape] : sample_shapes) {
    if (!two.contains(name)) Throw<ModelError>("--input {}: the model has no such input", name);
  }
  if (served.inputs.empty()) throw ModelError("the model has no inputs");
  served.categories = CategoriesOfColumns(model);
  if (!served.categories.empty()) {
    const Shape& sample = served.inputs[0].sample;
    const int64_t features = served.SampleElements() - ColumnsWith(served.categories, 0);
    if (served.inputs.size() > 1 || sample.rank() < 1 || sample[-1] != sample.Elements() ||
        served.categories.back().place >= features) {
      Throw<ModelError>("the model's preprocessing has categories that its samples of {} do not have room for", sample);
    }
  }
  served.columns = ScalingOfColumns(model);
  if (served.columns.IsMeasured() &&
      (served.inputs.size() > 1 || served.SampleElements() != std::ssize(served.columns.first))) {
    Throw<ModelError>("the model's preprocessing scales {} columns, but its samples have {} numbers",
                      served.columns.first.size(), served.SampleElements());
  }
  if (served.inputs.size() == 1) served.missing = MissingOfColumns(model);
  // What follows the batch has another extent with another batch.
  const InferredShapes of_two = InferShapes(model.symbol, two), of_three = InferShapes(model.symbol, three);
  const InferredDTypes types = InferDTypes(model.symbol, dtypes);
  const std::vector<std::string> names = model.symbol.ListOutputs();
  for (size_t i = 0; i < names.size(); ++i) {
    const Shape &a = *of_two.outputs[i], &b = *of_three.outputs[i];
    const bool batched = a.rank() > 0 && a[0] == 2 && b.rank() == a.rank() && b[0] == 3 && a.Erase(0) == b.Erase(0);
    if (!batched) {
      Throw<ModelError>("output \"{}\" is {} for 2 samples and {} for 3: served are models with the batch at axis 0",
                        names[i], a, b);
    }
    served.outputs.push_back({names[i], a.Erase(0), types.outputs[i]});
  }
  served.model = std::move(model);
  return served;
}

}  // namespace bindery::server
