#include "train/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/op_def.h"
#include "symbol/ops/convolution.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/fully_connected.h"
#include "symbol/ops/quantize.h"
#include "symbol/ops/quantized.h"
#include "train/folded_model.h"

namespace bindery {
namespace {

using EntryKey = std::pair<const Node*, int>;
EntryKey KeyOf(const Entry& entry) { return {entry.node.get(), entry.output}; }

// ---- Layers

// How often each node's outputs are read, by other nodes and as outputs of the model.
using Reads = std::map<const Node*, int>;
Reads ReadsOf(const Graph& graph) {
  Reads reads;
  for (const NodePtr& node : graph.nodes) {
    for (const Entry& input : node->inputs()) ++reads[input.node.get()];
  }
  for (const Entry& output : graph.outputs) ++reads[output.node.get()];
  return reads;
}

// The axis of the outputs in the weight of a layer that multiplies by a parameter, as integers can; none for others.
std::optional<int> AxisOf(const Node& node, const Model& model, const Graph& graph, const NodeTypes& types) {
  if (!IsIntegerLayer(node)) return std::nullopt;
  const Entry &data = node.inputs()[0], &weight = node.inputs()[1];
  const auto n = static_cast<size_t>(graph.IndexOf(data.node));
  if (!weight.node->is_variable()) return std::nullopt;
  if (types[n][static_cast<size_t>(data.output)].dtype != DType::kFloat32) return std::nullopt;
  const auto found = model.params.find(weight.node->name());
  if (found == model.params.end() || found->second.dtype() != DType::kFloat32) return std::nullopt;
  return AxisOfOutputs(node, found->second.shape());
}

// The layers that are quantized, with these axes. A weight that anything else reads, too, as an Embedding's table, or a
// product by its transpose, stays as it is.
using Layers = std::map<const Node*, int>;
Layers LayersOf(const Model& model, const Graph& graph, const NodeTypes& types, const Reads& reads) {
  std::map<std::pair<const Node*, int>, std::vector<const Node*>> by_weight;
  for (const NodePtr& node : graph.nodes) {
    if (const std::optional<int> axis = AxisOf(*node, model, graph, types)) {
      by_weight[{node->inputs()[1].node.get(), *axis}].push_back(node.get());
    }
  }
  Layers layers;
  for (const auto& [weight, readers] : by_weight) {
    if (std::ssize(readers) != reads.at(weight.first)) continue;
    for (const Node* reader : readers) layers[reader] = weight.second;
  }
  return layers;
}

// ---- What layers see

struct ValueRange {
  double low = 0, high = 0;  // 0 is always among them
};

class Observer {
 public:
  // `renamed`: the model's input that the data's only array is for, if it is called otherwise.
  Observer(const Model& model, std::vector<Entry> entries, const std::string& renamed, DataIter& data,
           const QuantizeOptions& options)
      : entries_(std::move(entries)), data_(data), options_(options), ranges_(entries_.size()) {
    Model part{.symbol = SymbolOf(model, renamed)};
    for (const std::string& name : part.symbol.ListArguments()) Take(name, model.params, &part.params);
    for (const std::string& name : part.symbol.ListAuxiliaryStates()) Take(name, model.aux, &part.aux);
    group_ = std::make_unique<DataParallelExecutorGroup>(
        part.symbol, GroupOptions{.devices = {Cpu(0)}, .data = data_.ProvideData(), .for_training = false});
    group_->SetParams(part.params, part.aux);
  }

  std::vector<ValueRange> Run() {
    Sweep([&](size_t i, std::span<const float> values) {
      const auto [low, high] = std::ranges::minmax(values);
      ranges_[i].low = std::min<double>(ranges_[i].low, low);
      ranges_[i].high = std::max<double>(ranges_[i].high, high);
    });
    if (options_.percentile < 100) CutTails();
    return ranges_;
  }

 private:
  static void Take(const std::string& name, const HostTensorMap& from, HostTensorMap* to) {
    if (const auto found = from.find(name); found != from.end()) to->insert(*found);
  }

  // The entries, and inputs of the model that none of them is made of, but that come with the data.
  Symbol SymbolOf(const Model& model, const std::string& renamed) const {
    const std::vector<DataDesc> given = data_.ProvideData();
    std::vector<Entry> outputs = entries_;
    const std::vector<std::string> read = Symbol(entries_).ListArguments();
    for (const NodePtr& node : Graph::Of(model.symbol).nodes) {
      const bool is_given = node->is_variable() && std::ranges::count(given, node->name(), &DataDesc::name) > 0;
      if (is_given && std::ranges::count(read, node->name()) == 0) outputs.push_back({node, 0});
    }
    const Symbol seen(outputs);
    return renamed.empty() ? seen : seen.Compose({{renamed, Variable(given[0].name)}});
  }

  template <class F>
  void Sweep(const F& see) {
    int64_t batches = 0;
    data_.Reset();
    while (options_.batches == 0 || batches < options_.batches) {
      const BatchPtr batch = data_.Next();
      if (!batch) break;
      ++batches;
      group_->Forward(*batch, Mode::kPredict);
      const std::vector<Tensor> outputs = group_->Outputs();
      for (size_t i = 0; i < entries_.size(); ++i) {
        const HostTensor output = outputs[i].ToHost();
        const std::span<const float> values = output.data<float>();
        for (const float value : values) {
          if (std::isfinite(value)) continue;
          Throw<NumericError>("{}, of the data to calibrate by, is {}", Describe(*entries_[i].node), value);
        }
        if (!values.empty()) see(i, values);
      }
      if (data_.repeats() && data_.is_new_epoch()) break;
    }
    if (batches == 0) throw DataError("there is no batch to calibrate by");
    data_.Reset();
  }

  void CutTails() {
    constexpr int kBins = 8192;
    std::vector<std::vector<int64_t>> counts(entries_.size(), std::vector<int64_t>(kBins));
    Sweep([&](size_t i, std::span<const float> values) {
      const auto [low, high] = ranges_[i];
      if (low == high) return;
      for (const float value : values) {
        const double at = (value - low) / (high - low) * kBins;
        ++counts[i][static_cast<size_t>(std::clamp<double>(at, 0, kBins - 1))];
      }
    });
    for (size_t i = 0; i < entries_.size(); ++i) {
      int64_t all = 0;
      for (const int64_t count : counts[i]) all += count;
      const double beyond = static_cast<double>(all) * (100 - options_.percentile) / 200;
      const auto cut = [&](auto begin, auto end) {  // bins that hold no more than that
        int64_t bins = 0;
        for (double sum = 0; begin != end; ++begin, ++bins) {
          sum += static_cast<double>(*begin);
          if (sum > beyond) break;
        }
        return bins;
      };
      const double bin = (ranges_[i].high - ranges_[i].low) / kBins;
      const int64_t below = cut(counts[i].begin(), counts[i].end()), above = cut(counts[i].rbegin(), counts[i].rend());
      ranges_[i] = {std::min(ranges_[i].low + bin * static_cast<double>(below), 0.0),
                    std::max(ranges_[i].high - bin * static_cast<double>(above), 0.0)};
    }
  }

  const std::vector<Entry> entries_;
  DataIter& data_;
  const QuantizeOptions& options_;
  std::vector<ValueRange> ranges_;
  std::unique_ptr<DataParallelExecutorGroup> group_;
};

// ---- The new model

// One scale and zero point for a range.
struct Scaling {
  float scale;
  double zero;
};
Scaling ScalingOf(const ValueRange& range, DType dtype) {
  const double low = dtype == DType::kInt8 ? -128 : 0;
  const auto scale = static_cast<float>((range.high - range.low) / 255);
  if (!(scale >= std::numeric_limits<float>::min())) return {1, 0};
  return {scale, std::clamp(std::nearbyint(low - range.low / scale), low, low + 255)};
}

struct QuantizedWeight {
  HostTensor values, scales;
};
// Outputs lie along `axis`. Throws NumericError unless all of it is finite.
QuantizedWeight QuantizeWeight(const std::string& name, const HostTensor& weight, int axis) {
  constexpr float kOfZeros = 1.0f / (1 << 16);  // any would do, but a bias is rounded to steps of it times the data's
  const int64_t outputs = weight.shape()[axis], inner = weight.shape().CountFrom(axis + 1);
  QuantizedWeight result{HostTensor(DType::kInt8, weight.shape()), HostTensor(DType::kFloat32, {outputs})};
  const std::span<const float> w = weight.data<float>();
  const auto scale_of = [&](size_t i) -> float& {
    return result.scales.data<float>()[i / static_cast<size_t>(inner) % static_cast<size_t>(outputs)];
  };
  for (size_t i = 0; i < w.size(); ++i) {
    if (!std::isfinite(w[i])) Throw<NumericError>("parameter \"{}\" has an element that is {}", name, w[i]);
    scale_of(i) = std::max(scale_of(i), std::abs(w[i]));
  }
  for (float& scale : result.scales.data<float>()) {
    scale = scale / 127 >= std::numeric_limits<float>::min() ? scale / 127 : kOfZeros;
  }
  const std::span<int8_t> q = result.values.data<int8_t>();
  for (size_t i = 0; i < w.size(); ++i) {
    q[i] = static_cast<int8_t>(std::clamp<float>(std::nearbyint(w[i] / scale_of(i)), -127, 127));
  }
  return result;
}

class Builder {
 public:
  Builder(const Model& model, const std::map<EntryKey, ValueRange>& ranges, const Reads& reads, DType activations)
      : model_(model), ranges_(ranges), reads_(reads), activations_(activations) {
    for (const std::string& name : model.symbol.ListInputs()) taken_.insert(name);
  }

  // The layer of the same name among integers; `inputs` in place of its own. Outputs lie along this axis of its weight.
  NodePtr Layer(const Node& node, int axis, std::vector<Entry> inputs) {
    const Scaling of_data = ScalingOf(ranges_.at(KeyOf(node.inputs()[0])), activations_);
    Symbol& data = data_[KeyOf(node.inputs()[0])];
    if (data.empty()) data = Rounded(Symbol(inputs[0]), of_data);
    inputs[0] = data.entry();
    const std::string name = node.inputs()[1].node->name();
    IntegerWeight& weight = weights_[name];
    if (weight.real.empty()) weight = Weight(name, axis);
    inputs[1] = weight.real.entry();
    if (inputs.size() > 2) inputs[2] = Bias(node.inputs()[2], weight.scales, of_data).value_or(inputs[2]);
    return WithInputs(node, std::move(inputs));
  }

  HostTensorMap TakeParams() { return std::move(made_); }

 private:
  Symbol Rounded(const Symbol& x, const Scaling& scaling) const {
    const Symbol scale = Constant(HostTensor::Full(DType::kFloat32, {}, scaling.scale));
    const Symbol zero = Constant(HostTensor::Full(activations_, {}, scaling.zero));
    const Symbol whole = QuantizeLinear(x, scale, zero, {.dtype = activations_});
    return DequantizeLinear(whole, scale, zero);
  }

  Symbol Parameter(const std::string& name, HostTensor value) {
    const Symbol variable = Variable(name, {.shape = value.shape(), .dtype = value.dtype()});
    made_[name] = std::move(value);
    return variable;
  }
  // The parameter `name` and its scales along an axis, which get a name that nothing else has.
  Symbol Real(const std::string& name, HostTensor whole, HostTensor scales, int axis = 0) {
    std::string of_scales = name + "_scale";
    while (!taken_.insert(of_scales).second) of_scales += "_";
    const Symbol integers = Parameter(name, std::move(whole)), steps = Parameter(of_scales, std::move(scales));
    return Apply(DequantizeLinearOp(), DequantizeAttrs{.axis = axis, .no_zero_point = true}, {integers, steps});
  }

  struct IntegerWeight {
    Symbol real;
    HostTensor scales;
  };
  IntegerWeight Weight(const std::string& name, int axis) {
    QuantizedWeight weight = QuantizeWeight(name, model_.params.at(name), axis);
    return {Real(name, std::move(weight.values), weight.scales, axis), weight.scales};
  }

  // In units of the sums. None if the layer is not alone with it, or it does not fit.
  std::optional<Entry> Bias(const Entry& bias, const HostTensor& scales, const Scaling& of_data) {
    const auto found = model_.params.find(bias.node->name());
    if (!bias.node->is_variable() || found == model_.params.end() || reads_.at(bias.node.get()) > 1) return {};
    const HostTensor& value = found->second;
    if (value.dtype() != DType::kFloat32) return {};
    HostTensor whole(DType::kInt32, value.shape()), units(DType::kFloat32, value.shape());
    for (int64_t o = 0; o < value.elements(); ++o) {
      units.Set(o, static_cast<float>(scales.At(o)) * of_data.scale);
      const double q = std::nearbyint(value.At(o) / units.At(o));
      if (!(std::abs(q) <= std::numeric_limits<int32_t>::max())) return {};
      whole.Set(o, q);
    }
    return Real(bias.node->name(), std::move(whole), std::move(units)).entry();
  }

  const Model& model_;
  const std::map<EntryKey, ValueRange>& ranges_;
  const Reads& reads_;
  const DType activations_;
  std::set<std::string> taken_;  // names of variables
  std::map<EntryKey, Symbol> data_;
  std::map<std::string, IntegerWeight> weights_;
  HostTensorMap made_;
};

void Check(const QuantizeOptions& options) {
  if (options.activations != DType::kUInt8 && options.activations != DType::kInt8) {
    Throw("activations are quantized to uint8 or int8, not to {}", options.activations);
  }
  if (!(options.percentile > 50 && options.percentile <= 100)) {
    Throw("percentile must be more than 50 and at most 100, got {}", options.percentile);
  }
  if (options.batches < 0) Throw("batches must be 0 or more, got {}", options.batches);
}

}  // namespace

Model Quantized(const Model& model, DataIter& data, const QuantizeOptions& options) {
  Check(options);
  ShapeMap inputs;
  std::vector<std::string> unknown;  // inputs of the model
  std::string renamed;
  const std::vector<DataDesc> given = data.ProvideData();
  for (const DataDesc& desc : given) inputs[desc.name] = desc.shape;
  for (const DataDesc& desc : data.ProvideLabel()) inputs[desc.name] = desc.shape;
  const std::set<std::string> labels = ListLabels(model.symbol);
  for (const std::string& name : model.symbol.ListArguments()) {
    if (!model.params.contains(name) && !labels.contains(name) && !inputs.contains(name)) unknown.push_back(name);
  }
  if (unknown.size() == 1 && given.size() == 1) {
    renamed = unknown[0];
    inputs[renamed] = given[0].shape;
  } else if (!unknown.empty()) {
    Throw<DataError>("the data have no array for the model's \"{}\"", unknown[0]);
  }

  const Model folded = WithNormsFolded(model, inputs);
  const Graph graph = Graph::Of(folded.symbol);
  const NodeTypes types = TypesOf(graph, folded, inputs);
  const Reads reads = ReadsOf(graph);
  const Layers layers = LayersOf(folded, graph, types, reads);
  std::vector<Entry> seen;
  std::map<EntryKey, size_t> place;
  for (const NodePtr& node : graph.nodes) {
    if (!layers.contains(node.get())) continue;
    if (place.emplace(KeyOf(node->inputs()[0]), seen.size()).second) seen.push_back(node->inputs()[0]);
  }
  if (layers.empty()) {
    throw ModelError(
        "nothing to quantize: no convolution without groups, no full connection and no product by a matrix has a "
        "weight of float32 that it shares with no other operator");
  }
  const std::vector<ValueRange> found = Observer(folded, seen, renamed, data, options).Run();
  std::map<EntryKey, ValueRange> ranges;
  for (const auto& [key, i] : place) ranges[key] = found[i];

  Builder builder(folded, ranges, reads, options.activations);
  Model result{.metadata = model.metadata};
  result.symbol = Rewrite(folded.symbol, [&](const NodePtr& node, const std::vector<Entry>& now) -> std::vector<Entry> {
    const auto layer = layers.find(node.get());
    if (layer == layers.end()) return {};
    return OutputsOf(builder.Layer(*node, layer->second, now));
  });
  const HostTensorMap made = builder.TakeParams();
  for (const std::string& name : result.symbol.ListArguments()) {
    if (const auto own = made.find(name); own != made.end()) {
      result.params.insert(*own);
    } else if (const auto kept = folded.params.find(name); kept != folded.params.end()) {
      result.params.insert(*kept);
    }
  }
  for (const std::string& name : result.symbol.ListAuxiliaryStates()) {
    if (const auto kept = folded.aux.find(name); kept != folded.aux.end()) result.aux.insert(*kept);
  }
  return result;
}

}  // namespace bindery
