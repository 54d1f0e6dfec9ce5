// The graph that is exported.
#include "symbol/compose.h"
#include "symbol/infer/forward_types.h"
#include "symbol/onnx/exporter.h"
#include "symbol/ops.h"
#include "symbol/passes/passes.h"

namespace bindery::onnx {
namespace {

// Inputs declared as training had them, where the graph leaves that open: their types, and extents if they are wanted.
Symbol WithTypes(const Model& model, bool with_extents) {
  std::map<std::string, Symbol> declared;
  const auto trained = TrainedInputs(model);
  for (const NodePtr& node : Graph::Of(model.symbol).nodes) {
    const auto input = trained.find(node->name());
    if (!node->is_variable() || input == trained.end() || ValueOf(model, node->name()) != nullptr) continue;
    VariableOptions options{
        .shape = node->declared_shape, .dtype = node->declared_dtype, .annotations = node->annotations()};
    const Shape& extents = input->second.shape;
    if (!options.shape && with_extents) options.shape = extents;
    if (with_extents && options.shape->rank() == extents.rank()) {
      for (int axis = 0; axis < extents.rank(); ++axis) {
        if ((*options.shape)[axis] == kUnknownDim) options.shape->Set(axis, extents[axis]);
      }
    }
    if (!options.dtype) options.dtype = input->second.dtype;
    declared.emplace(node->name(), Variable(node->name(), options));
  }
  return declared.empty() ? model.symbol : model.symbol.Compose(declared);
}

// A head that is trained by one cross-entropy, or CTC, of labels that are fed predicts what that is of: probabilities.
Symbol WithPredictions(const Symbol& symbol, const Model& model) {
  std::vector<Entry> heads = symbol.entries();
  for (Entry& head : heads) {
    if (head.node->is_variable() || &head.node->op() != &MakeLossOp()) continue;
    std::vector<NodePtr> losses = PostOrder({&head, 1});
    std::erase_if(losses, [](const NodePtr& node) {
      return node->is_variable() || (&node->op() != &CrossEntropyOp() && &node->op() != &CTCLossOp());
    });
    if (losses.size() != 1) continue;
    const std::vector<Entry>& inputs = losses[0]->inputs();
    if (!inputs[1].node->is_variable() || ValueOf(model, inputs[1].node->name()) != nullptr) continue;
    if (&losses[0]->op() == &CTCLossOp()) {  // the classes are the last axis
      head = {Remake(*head.node, SoftmaxOp(), SoftmaxAttrs(), {inputs[0]}), 0};
      continue;
    }
    const auto& attrs = losses[0]->attrs().get<CrossEntropyAttrs>();
    const OpDef& op = attrs.log_input ? Exp.op() : SoftmaxOp();
    const AnyAttrs own = attrs.log_input ? AnyAttrs() : AnyAttrs(SoftmaxAttrs{.axis = attrs.axis});
    head = {Remake(*head.node, op, own, {inputs[0]}), 0};
  }
  return Symbol(std::move(heads));
}

// As inference has it: losses predict, nothing is dropped, and labels, which only losses read, are not asked for.
Symbol WithoutTraining(const Symbol& trained, const Model& model) {
  const Symbol predicting = WithPredictions(trained, model);
  // Where no variable has a value, only the labels are known to be no parameters.
  const bool has_values = !model.params.empty() || !model.aux.empty();
  const std::set<std::string> labels = ListLabels(predicting);
  const Symbol symbol = WithoutTargets(predicting, [&](const std::string& name) {
    return has_values ? ValueOf(model, name) != nullptr : !labels.contains(name);
  });
  const Graph graph = Graph::Of(symbol);
  const PartialTypes types = InferPartial(graph, TypesOfValues(symbol, model).shapes, nullptr, std::nullopt);
  return Rewrite(symbol, [&](const NodePtr& node, const std::vector<Entry>& inputs) -> std::vector<Entry> {
    const OpDef* op = &node->op();
    const auto remake = [&](const OpDef& by, AnyAttrs attrs) {
      std::vector<Entry> outputs = OutputsOf(Remake(*node, by, std::move(attrs), {inputs[0]}));
      outputs.resize(static_cast<size_t>(node->num_outputs()), outputs[0]);
      return outputs;
    };
    if (op == &SoftmaxOutputOp()) {
      const auto& attrs = node->attrs().get<SoftmaxOutputAttrs>();
      const std::optional<Shape>& shape = types[static_cast<size_t>(graph.IndexOf(node))][0].shape;
      if (shape && shape->rank() > 2 && !attrs.multi_output && !attrs.preserve_shape) {
        Throw<ModelError>("{}: it cannot be exported: a softmax over several axes, of {}", Describe(*node), *shape);
      }
      return remake(SoftmaxOp(), SoftmaxAttrs{.axis = attrs.multi_output ? 1 : -1});
    }
    if (op == &LogisticRegressionOutputOp()) return remake(ActivationOp(), ActivationAttrs{ActivationType::kSigmoid});
    if (op == &DropoutOp() && node->attrs().get<DropoutAttrs>().mode == DropoutMode::kAlways) {
      Throw<ModelError>("{}: it cannot be exported: it drops in inference, too", Describe(*node));
    }
    for (const OpDef* same : {&DropoutOp(), &LinearRegressionOutputOp(), &MAERegressionOutputOp(), &SVMOutputOp(),
                              &MakeLossOp(), &BlockGradOp(), &ScaleLossOp(), &SumOverDevicesOp()}) {
      if (op == same) return remake(IdentityOp(), {});
    }
    return {};
  });
}

// What is made of others, as far as it is not exported as it is, and shapes are known for every batch.
Symbol Composed(Symbol symbol, const Model& model) {
  constexpr int kMaxDepth = 16;                   // parts of parts
  const auto has_no_row = [](const Node& node) {  // or says more where extents are known: which of them are 1
    return !IsExported(node) || (&node.op() == &SqueezeOp() && node.attrs().get<AxesAttrs>().axes.empty());
  };
  for (int depth = 0; depth < kMaxDepth; ++depth) {
    const Graph graph = Graph::Of(symbol);
    GivenTypes given = TypesOfValues(symbol, model);
    bool batched = false, is_needed = false;
    for (const NodePtr& node : graph.nodes) {
      if (!node->is_variable()) {
        is_needed = is_needed || (node->op().compose && has_no_row(*node));
      } else if (ValueOf(model, node->name()) == nullptr && node->declared_shape && node->declared_shape->rank() > 0) {
        const int axis = std::max(AxisOfLayout(*node, *node->declared_shape), 0);
        if ((*node->declared_shape)[axis] != kUnknownDim) continue;
        given.batch_axes.emplace(node->name(), axis);
        batched = true;
      }
    }
    const GivenForwardTypes types(graph, given);
    if (!is_needed || (batched && !types.OfEveryBatch())) break;
    Symbol next = bindery::Compose(graph, types, "", has_no_row);
    if (next.entries() == symbol.entries()) break;
    symbol = std::move(next);
  }
  return symbol;
}

}  // namespace

const HostTensor* ValueOf(const Model& model, const std::string& name) {
  for (const HostTensorMap* values : {&model.params, &model.aux}) {
    if (const auto found = values->find(name); found != values->end()) return &found->second;
  }
  return nullptr;
}

GivenTypes TypesOfValues(const Symbol& symbol, const Model& model) {
  GivenTypes types;
  for (const std::string& name : symbol.ListInputs()) {
    if (const HostTensor* value = ValueOf(model, name)) {
      types.shapes.emplace(name, value->shape());
      types.dtypes.emplace(name, value->dtype());
    }
  }
  return types;
}

Symbol InferenceForm(const Model& model, bool with_extents) {
  const Symbol symbol = Composed(WithoutTraining(WithTypes(model, with_extents), model), model);
  return GiveScalarsTypes(symbol, TypesOfValues(symbol, model).dtypes);
}

}  // namespace bindery::onnx
