#include "symbol/passes/mixed_precision.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "symbol/graph.h"
#include "symbol/infer/fixed_point.h"
#include "symbol/op_def.h"
#include "symbol/ops/cast.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using Types = std::vector<std::optional<DType>>;  // no value: open

struct Inferred {
  Types inputs, outputs;
};

// What follows for one node from some of its inputs' types; nothing if its rule refuses them.
std::optional<Inferred> InferNode(const Node& node, const Types& inputs) {
  std::vector<Entry> variables;
  for (size_t i = 0; i < inputs.size(); ++i) variables.push_back(Variable(fmt::format("input{}", i)).entry());
  const Graph graph = Graph::Of(Symbol(OutputsOf(WithInputs(node, variables))));
  const ValueIndex values(graph);
  FixedPoint facts(graph, values);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]) facts.Add(values.Of(variables[i]), *inputs[i]);
  }
  try {
    facts.Run();
  } catch (const ShapeError&) {
    return std::nullopt;
  }
  Inferred result;
  for (const Entry& variable : variables) result.inputs.push_back(facts[values.Of(variable)].dtype);
  for (const Entry& output : graph.outputs) result.outputs.push_back(facts[values.Of(output)].dtype);
  return result;
}

bool IsKnown(const std::optional<DType>& type) { return type.has_value(); }
int64_t KnownTypes(const Inferred& types) {
  return std::ranges::count_if(types.inputs, IsKnown) + std::ranges::count_if(types.outputs, IsKnown);
}

// What is given with the model and has no axes.
std::optional<double> NumberOf(const Node& node) {
  if (const std::optional<double> scalar = ScalarValue(node)) return scalar;
  const auto value = ConstantValue(node);
  if (!value || value->shape().rank() > 0 || !IsFloat(value->dtype())) return std::nullopt;
  return value->At(0);
}

// Whether it stays a number other than 0 in the type: -1e9, which masks, and 1e-8 do not in float16.
bool Fits(double number, DType dtype) {
  const double there = HostTensor::Full(dtype, {}, number).At(0);
  return !std::isfinite(number) || (std::isfinite(there) && (there != 0 || number == 0));
}

class Mixer {
 public:
  Mixer(const Symbol& symbol, const MixedPrecisionOptions& options, const DTypeMap& dtypes)
      : graph_(Graph::Of(symbol)), original_(InferDTypes(graph_, dtypes)), low_(options.dtype),
        operators_(DefaultPrecisions()) {
    CheckMixedPrecision(options);
    for (const auto& [name, precision] : options.operators) operators_[name] = precision;
    FindKept();
  }

  Symbol Run() {
    const Symbol mixed = Rewrite(Symbol(graph_.outputs), [this](const NodePtr& node, const std::vector<Entry>& inputs) {
      return Visit(node, inputs);
    });
    std::vector<Entry> heads = mixed.entries();
    for (size_t i = 0; i < heads.size(); ++i) {
      const Entry& before = graph_.outputs[i];
      heads[i] = As(heads[i], original_[graph_.IndexOf(before.node)][before.output]);
    }
    return Symbol(std::move(heads));
  }

 private:
  struct Key {
    const Node* node;
    int output;
    DType dtype;
    auto operator<=>(const Key&) const = default;
  };

  // What stays float32 whatever the lists say. A Cast can bear the name of a head, but not one of several outputs.
  void FindKept() {
    for (const Entry& head : graph_.outputs) {
      const Node& node = *head.node;
      if (node.is_variable()) continue;
      heads_.insert(&node);
      if (IsLoss(node) || node.OutputName(head.output) != node.name() + "_output") kept_.insert(&node);
    }
    for (const NodePtr& node : graph_.nodes) {
      for (const Entry& input : node->inputs()) {
        const Node& producer = *input.node;
        if (producer.is_variable() || input.output < NumVisibleOutputs(producer.op(), producer.attrs())) continue;
        kept_.insert({&producer, node.get()});
      }
    }
  }

  Precision PrecisionOf(const Node& node) const {
    if (kept_.contains(&node)) return Precision::kFloat32;
    if (CastFrom(node)) return Precision::kFollow;  // it says its type itself
    const auto listed = operators_.find(node.op().name);
    return listed == operators_.end() ? Precision::kFollow : listed->second;
  }

  std::vector<Entry> Visit(const NodePtr& node, const std::vector<Entry>& inputs) {
    const Inferred types = Decide(*node, inputs);
    std::vector<Entry> cast = inputs;
    for (size_t i = 0; i < cast.size(); ++i) {
      if (types.inputs[i]) cast[i] = As(inputs[i], *types.inputs[i]);
    }
    const NodePtr made = cast == node->inputs() ? node : WithInputs(*node, std::move(cast));
    Types& outputs = types_[made.get()] = types.outputs;
    for (size_t o = 0; o < outputs.size() && !inputs.empty(); ++o) {
      if (!outputs[o]) outputs[o] = original_[graph_.IndexOf(node)][o];
    }
    if (heads_.contains(node.get())) made_heads_.insert(made.get());
    return OutputsOf(made);
  }

  // The types that a node gets and gives.
  Inferred Decide(const Node& node, const std::vector<Entry>& inputs) {
    Types actual;
    std::vector<bool> follows(inputs.size()), stays(inputs.size());  // numbers
    for (size_t i = 0; i < inputs.size(); ++i) {
      actual.push_back(TypeOf(inputs[i]));
      const std::optional<double> number = NumberOf(*inputs[i].node);
      if (!number) continue;
      stays[i] = !Fits(*number, low_) && original_[graph_.IndexOf(inputs[i].node)][0] == DType::kFloat32;
      follows[i] = !stays[i];
      if (stays[i]) actual[i] = DType::kFloat32;
    }
    const Precision precision = PrecisionOf(node);
    std::optional<Inferred> found;
    if (precision == Precision::kLow) found = Lowered(node, actual, stays);
    if (precision == Precision::kFollow || (precision == Precision::kLow && !found)) {
      Types given = actual;
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (follows[i]) given[i].reset();
      }
      found = Complete(node, given);
    }
    if (found) return *found;
    Types raised = actual;
    for (size_t i = 0; i < raised.size(); ++i) {
      if (MayCast(node, i, raised[i])) raised[i] = DType::kFloat32;
    }
    if (std::optional<Inferred> inferred = InferNode(node, raised)) return *inferred;
    const std::optional<Inferred> as_is = InferNode(node, actual);  // an error is the binding's to tell
    return as_is.value_or(Inferred{actual, Types(node.num_outputs())});
  }

  bool MayCast(const Node& node, size_t i, const std::optional<DType>& type) const {
    if (type != DType::kFloat32 && type != low_) return false;
    return !node.op().inputs.has_auxiliary() || !IsAuxiliary(node.op(), InputNames(node)[i]);
  }

  // Every input in the low type that the rule takes in it, but for those that stay.
  std::optional<Inferred> Lowered(const Node& node, const Types& actual, const std::vector<bool>& stays) const {
    Types types = actual;
    std::vector<size_t> open;
    for (size_t i = 0; i < types.size(); ++i) {
      if (stays[i] || !MayCast(node, i, types[i])) continue;
      types[i].reset();
      open.push_back(i);
    }
    for (const size_t i : open) {
      const std::optional<Inferred> known = InferNode(node, types);
      if (!known) return std::nullopt;
      types[i] = known->inputs[i].value_or(low_);
      if (types[i] != low_ && types[i] != DType::kFloat32) return std::nullopt;
      if (known->inputs[i]) continue;
      // What says nothing about any other type is no operand, but indices or lengths, which must stay exact.
      const std::optional<Inferred> lowered = InferNode(node, types);
      if (!lowered) {
        types[i] = DType::kFloat32;
      } else if (KnownTypes(*lowered) == KnownTypes(*known) + 1) {
        types[i] = actual[i];
      }
    }
    return Complete(node, types);
  }

  // Nothing, too, if the types of what it gives are still open.
  static std::optional<Inferred> Complete(const Node& node, const Types& inputs) {
    std::optional<Inferred> inferred = InferNode(node, inputs);
    if (inferred && !inputs.empty() && !std::ranges::all_of(inferred->outputs, IsKnown)) inferred.reset();
    return inferred;
  }

  std::optional<DType> TypeOf(const Entry& entry) const {
    if (entry.node->is_variable()) return original_[graph_.IndexOf(entry.node)][0];
    return types_.at(entry.node.get())[entry.output];
  }

  // The value in this type.
  Entry As(const Entry& value, DType dtype) {
    const std::optional<DType> type = TypeOf(value);
    const Node& node = *value.node;
    if (type == dtype || (!type && dtype != low_)) return value;
    if (type == DType::kFloat32 && dtype == low_) {
      if (const std::optional<Entry> from = CastFrom(node); from && TypeOf(*from) == low_) return *from;
    }
    Entry& cast = casts_[{&node, value.output, dtype}];
    if (cast.node) return cast;
    if (!type) {  // a number of open type, which others may want in float32
      cast = {WithInputs(node, {}), 0};
    } else if (made_heads_.contains(&node) && dtype == DType::kFloat32) {
      const AttrScope annotations(node.annotations(), false);
      cast = Cast(Symbol(value), {.dtype = dtype}, node.name()).entry();
    } else {
      const AttrScope annotations(Inherited(node.annotations()), false);
      const std::string name = fmt::format("{}_{}", node.OutputName(value.output), dtype);
      cast = Cast(Symbol(value), {.dtype = dtype}, name).entry();
    }
    types_[cast.node.get()] = {dtype};
    return cast;
  }

  const Graph graph_;
  const std::vector<std::vector<DType>> original_;  // per node and output of graph_
  const DType low_;
  OperatorPrecisions operators_;
  std::unordered_set<const Node*> heads_, kept_;  // of graph_
  std::unordered_set<const Node*> made_heads_;    // what was made of heads
  std::unordered_map<const Node*, Types> types_;  // of what was made
  std::map<Key, Entry> casts_;
};

}  // namespace

const OperatorPrecisions& DefaultPrecisions() {
  static const OperatorPrecisions precisions = [] {
    OperatorPrecisions result;
    for (const char* name :
         {"Attention", "Convolution", "ConvolutionGradData", "ConvolutionGradWeight", "Dot", "FullyConnected",
          "FullyConnectedGradData", "FullyConnectedGradWeight", "MatMul", "PRelu", "Recurrent"}) {
      result[name] = Precision::kLow;
    }
    for (const char* name : {// losses, and what devices combine
                             "CTCLoss", "CrossEntropy", "LinearRegressionOutput", "LogisticRegressionOutput",
                             "MAERegressionOutput", "MakeLoss", "SVMOutput", "SoftmaxOutput", "SumOverDevices",
                             // softmax, norms, sums
                             "CumProd", "CumSum", "L1Norm", "L2Norm", "LRN", "LogSoftmax", "LogSumExp", "Mean",
                             "Normalize", "Prod", "Softmax", "Sum", "SumSquare",
                             // places, which 16 bits tell too coarsely
                             "AffineGrid", "AffineGridBy", "GridSample",
                             // powers
                             "Acos", "Acosh", "Asin", "Atanh", "Cosh", "Exp", "Expm1", "Log", "Log1p", "Power",
                             "Reciprocal", "Sinh", "Sqrt", "Square", "Tan"}) {
      result[name] = Precision::kFloat32;
    }
    return result;
  }();
  return precisions;
}

void CheckMixedPrecision(const MixedPrecisionOptions& options) {
  if (options.dtype != DType::kBFloat16 && options.dtype != DType::kFloat16) {
    Throw("mixed precision is of bfloat16 or float16, got {}", options.dtype);
  }
  for (const auto& [name, precision] : options.operators) {
    const OpDef& op = FindOp(name);
    if (precision == Precision::kLow && op.is_loss && !op.blocks_gradient) {
      Throw("{} is a loss: it cannot run in {}", name, options.dtype);
    }
  }
}

Symbol MixedPrecision(const Symbol& symbol, const MixedPrecisionOptions& options, const DTypeMap& dtypes) {
  return Mixer(symbol, options, dtypes).Run();
}

}  // namespace bindery
