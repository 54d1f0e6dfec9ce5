// What a model is like from outside: its input, its metrics, its parameters.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/log.h"
#include "base/names.h"
#include "base/split_text.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/ops.h"
#include "symbol/ops/heads.h"
#include "symbol/ops/loss.h"
#include "symbol/print/summary.h"
#include "tools/cli/options.h"
#include "tools/cli/run_options.h"
#include "train/call_text.h"
#include "train/checkpoint/best_checkpoint.h"
#include "train/data/text.h"
#include "train/finite.h"
#include "train/label_scaling.h"
#include "train/metrics/metric_kinds.h"

namespace bindery::cli {
namespace {

// The names that ArrayIter gives its arrays.
constexpr const char *kDataName = "data", *kLabelName = "softmax_label";

constexpr const char* kNumbersKey = "bindery.outputs";  // of Model::metadata: the names of numbers, a line each

// nullptr: there is no such variable.
NodePtr FindInput(const Model& model, const std::string& name) {
  for (const NodePtr& node : Graph::Of(model.symbol).nodes) {
    if (node->is_variable() && node->name() == name) return node;
  }
  return nullptr;
}

// What comes with each batch, as the graph or the model's training tell.
std::set<std::string> InputsOf(const Model& model) {
  std::set<std::string> inputs = ListGiven(model.symbol, {});
  for (const char* name : {kDataName, kLabelName}) inputs.insert(name);
  for (const auto& [name, input] : TrainedInputs(model)) inputs.insert(name);
  return inputs;
}

// Throws CheckpointError unless `values` are just those called `names`, without inputs; `source` is their file.
void CheckComplete(const std::vector<std::string>& names, const std::set<std::string>& inputs,
                   const HostTensorMap& values, const std::string& source) {
  for (const std::string& name : names) {
    if (inputs.contains(name) || values.contains(name)) continue;
    Throw<CheckpointError>("{} has no value for \"{}\": it is not this model, trained", source, name);
  }
  for (const auto& [name, value] : values) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    Throw<CheckpointError>("{} has a value for \"{}\", which is not in this model{}", source, name,
                           NameHint(name, names));
  }
}

// Of a head's scores; nullptr: it is no SoftmaxOutput.
const SoftmaxOutputAttrs* SoftmaxOf(const Node& head) {
  const bool is_softmax = !head.is_variable() && &head.attrs().type() == &AttrsOf<SoftmaxOutputAttrs>();
  return is_softmax ? &head.attrs().get<SoftmaxOutputAttrs>() : nullptr;
}

}  // namespace

std::optional<Shape> SampleShape(const Model& model, const std::string& input) {
  const NodePtr data = FindInput(model, input);
  const int least = input == kDataName ? 2 : 1;  // of others, single numbers
  if (!data || !data->declared_shape || data->declared_shape->rank() < least) return std::nullopt;
  const Shape sample = data->declared_shape->Erase(BatchAxis(model, input));
  return sample.IsKnown() ? std::optional(sample) : std::nullopt;
}

ShapeMap SampleShapes(const Model& model, int64_t samples) {
  ShapeMap shapes;
  for (const SampleArray& input : MayBeInputs(model)) {
    const auto sample = SampleShape(model, input.name);
    const int axis = BatchAxis(model, input.name);
    if (!sample) continue;
    // Other variables that say that they are for any number of samples; parameters do not.
    const bool is_input =
        input.name == kDataName || (*FindInput(model, input.name)->declared_shape)[axis] == kUnknownDim;
    if (is_input) shapes[input.name] = sample->Insert(axis, samples);
  }
  return shapes;
}

int64_t AnswersOf(const Model& model) {
  const ShapeMap inputs = SampleShapes(model, 1);
  if (inputs.empty() || model.symbol.size() != 1) return 0;
  const InferredShapes shapes = InferShapesPartial(model.symbol, inputs);
  const auto& shape = shapes.outputs[0];
  if (!shape || !shape->IsKnown() || shape->rank() < 2) return 0;
  const SoftmaxOutputAttrs* softmax = SoftmaxOf(*model.symbol.entries()[0].node);
  if (softmax == nullptr) return shape->rank() == 2 ? (*shape)[1] : 0;
  if (softmax->multi_output) return (*shape)[1];
  return softmax->preserve_shape ? (*shape)[-1] : shape->CountFrom(1);
}

std::optional<Shape> LikelySample(const Model& model) {
  if (const auto sample = SampleShape(model)) return sample;
  const auto trained = TrainedInputs(model);
  const auto data = trained.find(kDataName);
  if (data == trained.end() || data->second.shape.rank() < 2 || data->second.shape[0] != kUnknownDim)
    return std::nullopt;
  return data->second.shape.Erase(0);
}

int BatchAxis(const Model& model, const std::string& input) {
  const NodePtr data = FindInput(model, input);
  if (!data || !data->declared_shape) return 0;
  const auto layout = data->annotations().find("layout");
  const size_t axis = layout == data->annotations().end() ? 0 : layout->second.find('N');
  return static_cast<int>(axis < static_cast<size_t>(data->declared_shape->rank()) ? axis : 0);
}

int64_t VocabularySize(const Model& model) {
  const auto found = model.metadata.find(kVocabularyKey);
  return found == model.metadata.end() ? 0 : Vocabulary(found->second).size();
}

void SetSampleShape(Model* model, const Shape& sample, const std::string& input) {
  const NodePtr data = FindInput(*model, input);
  if (!data || SampleShape(*model, input)) return;
  const Symbol declared = Variable(
      input,
      {.shape = sample.Insert(0, kUnknownDim), .dtype = data->declared_dtype, .annotations = data->annotations()});
  model->symbol = model->symbol.Compose({{input, declared}});
}

Model AsClassifier(Model model) {
  std::vector<NodePtr> inputs;
  const Graph graph = Graph::Of(model.symbol);
  for (const NodePtr& node : graph.nodes) {
    const bool is_input =
        node->is_variable() && !model.params.contains(node->name()) && !model.aux.contains(node->name());
    if (is_input) inputs.push_back(node);
  }
  const auto is_loss = [&](const NodePtr& node) {
    return IsLoss(*node) && (!node->op().blocks_gradient || node == graph.outputs[0].node);
  };
  // Of several, which are known where all else has values, each keeps its name.
  const bool known = inputs.size() == 1 || (inputs.size() > 1 && !model.params.empty());
  if (!known || model.symbol.size() != 1 || std::ranges::any_of(graph.nodes, is_loss)) return model;
  Symbol scores = model.symbol;
  if (inputs.size() == 1) {
    const Node& input = *inputs[0];
    const Symbol data = Variable(
        kDataName, {.shape = input.declared_shape, .dtype = input.declared_dtype, .annotations = input.annotations()});
    scores = scores.Compose({{input.name(), data}});
  }
  const InferredShapes shapes = InferShapesPartial(scores, {});
  const bool is_table = shapes.outputs[0] && shapes.outputs[0]->rank() == 2;
  const bool is_one = is_table && (*shapes.outputs[0])[1] == 1;  // for each sample: no class of several
  const std::optional<Entry> score = is_one ? SigmoidOf(scores.entry()) : std::nullopt;
  if (model.metadata.contains(kNumbersKey) || (is_one && !score)) {
    scores = LinearRegressionOutput(scores, Variable(kLabelName), {}, "regression");
  } else if (is_one) {
    scores = LogisticRegressionOutput(Symbol(*score), Variable(kLabelName), {}, "sigmoid");
  } else if (is_table) {
    scores = SoftmaxOutput(ScoresOf(scores), {}, "softmax");
  }
  model.symbol = scores;
  return model;
}

bool IsComplete(const Model& model) {
  const std::set<std::string> inputs = InputsOf(model);
  return std::ranges::all_of(model.symbol.ListArguments(), [&](const std::string& name) {
    return inputs.contains(name) || model.params.contains(name);
  });
}

void CheckArguments(const Model& model, bool labelled, const std::vector<std::string>& given) {
  const std::vector<std::string> names = model.symbol.ListArguments();
  std::vector<std::string> wanted = given;
  if (labelled) wanted.push_back(kLabelName);
  for (const std::string& name : wanted) {
    if (std::ranges::find(names, name) != names.end()) continue;
    std::vector<std::string> inputs = names;
    std::erase_if(inputs, [&](const std::string& other) { return model.params.contains(other); });
    const bool takes_by_name = name == kDataName && !model.params.empty();
    Throw<ModelError>("the model has no argument \"{}\", which takes the {}; its {} are {}{}", name,
                      name == kLabelName ? "labels" : "samples", model.params.empty() ? "arguments" : "inputs",
                      fmt::join(inputs, ", "), takes_by_name ? ": arrays of npz:FILE may be called like these" : "");
  }
}

void CheckInputs(const Model& model, bool labelled, const std::vector<std::string>& given) {
  CheckArguments(model, labelled, given);
  const std::set<std::string> labels = ListLabels(model.symbol);
  std::map<std::string, Annotations> annotations = model.symbol.AllAnnotations();
  std::vector<std::string> more, quoted;
  for (const std::string& name : InputsOf(model)) {
    if (name == kLabelName || std::ranges::find(given, name) != given.end()) continue;
    if (FindInput(model, name) == nullptr || (!labelled && labels.contains(name))) continue;
    const bool is_parameter = model.params.contains(name) || annotations[name].contains("init");
    if (!is_parameter) more.push_back("\"" + name + "\"");
  }
  if (more.empty()) return;
  for (const std::string& name : given) quoted.push_back("\"" + name + "\"");
  if (labelled) quoted.push_back(fmt::format("\"{}\"", kLabelName));
  Throw<ModelError>(
      "the model takes {}, too, but the data give {} alone: those of npz:FILE have an array for each input, of its "
      "name",
      fmt::join(more, ", "), fmt::join(quoted, ", "));
}

void CheckClasses(const Model& model, int64_t classes, const ModelOptions& options) {
  const int64_t answers = AnswersOf(model);
  if (answers == 0) return;
  const Node& head = *model.symbol.entries()[0].node;
  const SoftmaxOutputAttrs* softmax = SoftmaxOf(head);
  if (softmax != nullptr && softmax->use_ignore) return;  // a label of no class may be the largest
  const HeadKind kind = HeadKindOf(head);
  const bool is_truth = kind == HeadKind::kTruths && answers == 1;
  if (softmax == nullptr && kind != HeadKind::kScores && !is_truth) return;
  const int64_t told = is_truth ? 2 : answers;
  if (classes <= told) return;
  if (options.StatedClasses() > 0) {
    throw UsageError(
        fmt::format("--model: \"{}\" tells {} classes apart, but the data have {}", options.Name(), told, classes));
  }
  Throw<DataError>("--data: the labels are of {} classes, but model \"{}\" tells {} apart", classes, options.Name(),
                   told);
}

bool TakesLabels(const Model& model) {
  const std::vector<std::string> names = model.symbol.ListArguments();
  return std::ranges::find(names, kLabelName) != names.end();
}

// Its head hands its data on as they are and compares them with a label of the same shape: classes would be one axis
// less. So not a loss that is made of labels, whose shape is theirs as well, nor a sigmoid, whose answers may be of two
// classes.
bool GivesNumbers(const Model& model) {
  const std::vector<std::string> arguments = model.symbol.ListArguments();
  const auto label = std::ranges::find(arguments, kLabelName);
  const ShapeMap inputs = SampleShapes(model, 1);
  if (label == arguments.end() || inputs.empty() || model.symbol.size() != 1) return false;
  const auto compares = [](const NodePtr& node) {
    if (node->is_variable() || !IsLoss(*node) || !node->op().is_view || node->inputs().size() != 2) return false;
    const NodePtr& with = node->inputs()[1].node;
    return with->is_variable() && with->name() == kLabelName;
  };
  if (std::ranges::none_of(Graph::Of(model.symbol).nodes, compares)) return false;
  const InferredShapes shapes = InferShapesPartial(model.symbol, inputs);
  const auto& wanted = shapes.arguments[static_cast<size_t>(label - arguments.begin())];
  return wanted && shapes.outputs[0] && *wanted == *shapes.outputs[0];
}

std::vector<std::string> NamesOfNumbers(const Model& model, int64_t outputs) {
  std::vector<std::string> names;
  if (const auto found = model.metadata.find(kNumbersKey); found != model.metadata.end()) {
    for (const std::string_view line : SplitText(found->second, '\n')) names.emplace_back(line);
  }
  names.resize(static_cast<size_t>(outputs));
  std::set<std::string> taken;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) names[i] = outputs == 1 ? "value" : fmt::format("value_{}", i + 1);
    // Columns of a file may have one name.
    const std::string name = names[i];
    for (int number = 2; !taken.insert(names[i]).second; ++number) names[i] = fmt::format("{}_{}", name, number);
  }
  return names;
}

void SetNamesOfNumbers(const std::vector<std::string>& names, Model* model) {
  std::string& lines = model->metadata[kNumbersKey];
  lines.clear();
  for (std::string name : names) {
    std::ranges::replace(name, '\n', ' ');
    lines += name + "\n";
  }
}

void ForgetNamesOfNumbers(Model* model) { model->metadata.erase(kNumbersKey); }

std::vector<std::string> ParseMetrics(const std::string& metrics) {
  std::vector<std::string> names;
  try {
    for (const auto& [name, value] : MakeMetric(metrics)->Get()) names.push_back(name);
  } catch (const Error& e) {
    throw UsageError("--metrics: " + e.message());
  }
  return names;
}

void CheckMetrics(const std::string& metrics, const Model& model, const DataIter& data) {
  const Symbol& symbol = model.symbol;
  const bool numbers = GivesNumbers(model);
  for (const std::string& call : SplitCalls(metrics)) {
    const MetricKind* const kind = FindMetricKind(CallText("metric", call).name());
    if (!numbers || !kind || kind->needs != MetricNeeds::kClasses) continue;
    throw UsageError(fmt::format(
        "--metrics: {} is of classes, but the model gives numbers: take mse, rmse, mae or pearson", kind->name));
  }
  const auto of_one = [](DataDesc description) {
    if (description.BatchAxis() >= 0) description.shape.Set(description.BatchAxis(), 1);
    return description;
  };
  ShapeMap known;
  MetricArrays arrays{.samples = 1};
  for (const DataDesc& description : data.ProvideData()) known[description.name] = of_one(description).shape;
  for (const DataDesc& description : data.ProvideLabel()) {
    const auto [name, shape, dtype, layout] = of_one(description);
    known[name] = shape;
    arrays.labels.push_back({.name = name, .symbol = Variable(name), .dtype = dtype, .shape = shape});
  }
  const InferredShapes shapes = InferShapes(symbol, known);
  const std::vector<std::string> names = symbol.ListOutputs();
  for (size_t i = 0; i < names.size(); ++i) {
    arrays.outputs.push_back({.name = names[i], .symbol = Variable(names[i]), .shape = *shapes.outputs[i]});
  }
  try {
    MakeMetric(metrics)->AsGraph(arrays);
  } catch (const Error& e) {
    throw UsageError("--metrics: " + e.message());
  }
}

void CheckValues(const char* set, const NamedValues& values) {
  for (const auto& [name, value] : values) {
    if (std::isinf(value)) Throw<NumericError>("{} {} is {}: the model has diverged", set, name, value);
    if (!std::isnan(value)) continue;
    LogLine(LogLevel::kWarning,
            fmt::format("{} {} has no value: no sample counts, or all answers or labels are alike", set, name));
  }
}

void CheckpointOptions::AddTo(CLI::App* app) {
  app->add_option("--checkpoints", folder,
                  "folder whose checkpoint is used, unless --weights, or a --model with values, is given")
      ->capture_default_str();
  app->add_option("--which", which, "newest, or best: of the best epoch, which train --keep-best keeps")
      ->capture_default_str();
}

LoadedModel LoadTrained(const CheckpointOptions& checkpoints, const ModelOptions& options) {
  if (checkpoints.which != "newest" && checkpoints.which != "best") {
    throw UsageError(fmt::format("--which: expected newest or best, got \"{}\"", checkpoints.which));
  }
  LoadedModel loaded;
  Model& trained = loaded.model;
  if (!options.model.empty() || !options.weights.empty()) trained = options.Load();
  loaded.source = fmt::format("model \"{}\"", options.weights.empty() ? options.model : options.weights);
  if (options.weights.empty() && trained.params.empty()) {
    const CheckpointStore store(checkpoints.folder);
    const bool best = checkpoints.which == "best";
    std::optional<Checkpoint> taken = best ? LoadBest(store) : store.LoadNewest();
    if (!taken && (!best || store.List().empty())) {
      throw UsageError(
          fmt::format("there is no checkpoint in \"{}\": train first (bindery train), or give "
                      "--checkpoints or --weights",
                      checkpoints.folder));
    }
    if (!taken) {
      throw UsageError(fmt::format(
          "--which: \"{}\" has no checkpoint of a best epoch: train with --keep-best, or take the newest one",
          checkpoints.folder));
    }
    loaded.source = fmt::format("the {} checkpoint in \"{}\"", checkpoints.which, checkpoints.folder);
    // A model by name is that of the samples it was trained on, with as many classes.
    if (!options.model.empty() && options.IsByName())
      trained = options.Load(SampleShape(taken->model).value_or(Shape()), AnswersOf(taken->model));
    const bool has_graph = !trained.symbol.empty();
    loaded.info = taken->info;
    Model kept = ModelIn(std::move(*taken));
    if (has_graph) kept.symbol = trained.symbol;
    trained = std::move(kept);
    if (has_graph) ScaleLabelsAsKept(&trained);
  }
  options.CheckWeightsFit(trained);
  CheckComplete(trained.symbol.ListArguments(), InputsOf(trained), trained.params, loaded.source);
  CheckComplete(trained.symbol.ListAuxiliaryStates(), {}, trained.aux, loaded.source);
  for (const HostTensorMap* values : {&trained.params, &trained.aux}) {
    const std::string bad = FirstNotFinite(*values);
    if (!bad.empty()) Throw<NumericError>("{}: {}: its training has diverged", loaded.source, bad);
  }
  return loaded;
}

}  // namespace bindery::cli
