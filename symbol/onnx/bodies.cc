// Names and their frames; graphs within nodes, which are run as often as their nodes ask for; functions of the file, in
// whose place are the nodes that they stand for.
#include <algorithm>

#include "base/checked.h"
#include "symbol/model/source.h"
#include "symbol/onnx/importer.h"

namespace bindery::onnx {

constexpr int kOften = 2;  // what is run several times, or may have been read outside: how often is not known

void CountUses(const google::protobuf::RepeatedPtrField<NodeProto>& nodes, int weight, Uses* uses) {
  for (const NodeProto& node : nodes) {
    for (const std::string& input : node.input()) (*uses)[input] += weight;
    for (const AttributeProto& attribute : node.attribute()) {
      CountUses(attribute.g().node(), kOften, uses);
      for (const ValueInfoProto& output : attribute.g().output()) (*uses)[output.name()] += kOften;
    }
  }
}

const ValuePtr* Importer::Lookup(const std::string& name) const {
  for (const Frame* frame = frame_; frame != nullptr; frame = frame->outer) {
    if (const auto found = frame->values.find(name); found != frame->values.end()) return &found->second;
  }
  return nullptr;
}

int Importer::ReadersOf(const std::string& name) const {
  const auto found = frame_->uses->find(name);
  return found == frame_->uses->end() ? 0 : found->second;
}

void Importer::ReadInitializers(const GraphProto& graph) {
  if (graph.sparse_initializer_size() > 0) Throw<ModelError>("sparse initializers cannot be read");
  for (const TensorProto& tensor : graph.initializer()) {
    try {
      ValuePtr& value = constants_[&tensor];  // one, however often its graph is met
      if (value == nullptr) {
        auto constant = std::make_shared<const HostTensor>(tensors_->Read(tensor));
        value = std::make_shared<Value>(
            Value{.constant = std::move(constant), .is_initializer = true, .bits = PackedBits(tensor)});
      }
      Define(tensor.name(), value);
    } catch (const Error& error) {
      Throw<ModelError>("initializer {}: {}", QuotedName(tensor.name()), error.message());
    }
  }
}

// A file of any size may ask for any number of steps, and of functions that call others: what that makes is limited.
void Importer::Charge(int64_t more) {
  if (more > kMaxUnrolled - unrolled_ || unrolled_bytes_ > kMaxUnrolledBytes) {
    Throw<ModelError>(
        "its graphs within nodes and its functions make more than {} nodes and values, or {} bytes of them",
        kMaxUnrolled, kMaxUnrolledBytes);
  }
  unrolled_ += more;
}

void Importer::RunNodes(Frame* frame, const std::string& suffix, int64_t opset, const Nodes& nodes) {
  if (depth_ == kMaxDepth) Throw<ModelError>("more than {} graphs within graphs", kMaxDepth);
  for (const NodeProto& node : nodes) {
    unrolled_bytes_ += static_cast<int64_t>(node.ByteSizeLong() + name_.size());
  }
  Charge(nodes.size() + 1);
  const auto outer = std::tuple(frame_, node_, name_, prefix_, asked_, opset_);
  frame_ = frame;
  prefix_ = name_ + suffix + "_";
  opset_ = opset;
  ++depth_;
  ImportNodes(nodes);
  --depth_;
  std::tie(frame_, node_, name_, prefix_, asked_, opset_) = outer;
}

std::unique_ptr<Body> Importer::OpenBody(const char* key) {
  const AttributeProto* attribute = FindOf(key, ATTRIBUTE_GRAPH, "a graph");
  if (attribute == nullptr) Throw<ModelError>("attribute \"{}\" is missing", key);
  auto body = std::make_unique<Body>(&attribute->g());
  Charge(body->graph->initializer_size());
  Uses& uses = uses_of_[body->graph];
  if (uses.empty()) {
    CountUses(body->graph->node(), 1, &uses);
    for (const ValueInfoProto& output : body->graph->output()) ++uses[output.name()];
    for (const ValueInfoProto& input : body->graph->input()) uses[input.name()] += kOften;
    for (const TensorProto& tensor : body->graph->initializer()) uses[tensor.name()] += kOften;
  }
  body->frame.outer = frame_;
  body->frame.uses = &uses;
  body->frame.attributes = frame_->attributes;
  Frame* const outer = std::exchange(frame_, &body->frame);
  ReadInitializers(*body->graph);
  frame_ = outer;
  return body;
}

std::vector<ValuePtr> Importer::Run(const Body& body, const std::vector<ValuePtr>& inputs, const std::string& step,
                                    const std::string& suffix) {
  const GraphProto& graph = *body.graph;
  if (std::ssize(inputs) != graph.input_size()) {
    Throw<ModelError>("its graph has {} inputs, expected {}", graph.input_size(), inputs.size());
  }
  Charge(int64_t{graph.input_size()} + graph.output_size() + std::ssize(body.frame.attributes));
  Frame frame{.outer = &body.frame, .uses = body.frame.uses, .attributes = body.frame.attributes};
  for (int i = 0; i < graph.input_size(); ++i) {
    if (!frame.values.emplace(graph.input(i).name(), inputs[static_cast<size_t>(i)]).second) {
      Throw<ModelError>("its graph has two inputs {}", QuotedName(graph.input(i).name()));
    }
  }
  try {
    RunNodes(&frame, suffix, opset_, graph.node());
    Frame* const outer = std::exchange(frame_, &frame);
    std::vector<ValuePtr> outputs;
    for (const ValueInfoProto& output : graph.output()) {
      const ValuePtr* value = Lookup(output.name());
      if (value == nullptr || *value == nullptr) {
        Throw<ModelError>("nothing in it is called {}, its output", QuotedName(output.name()));
      }
      outputs.push_back(*value);
    }
    frame_ = outer;
    return outputs;
  } catch (const Error& error) {
    Throw<ModelError>("{}: {}", step, error.message());
  }
}

// --- Functions.

const FunctionProto* Importer::FindFunction(const NodeProto& node) const {
  const auto found = functions_.find({node.domain(), node.op_type(), node.overload()});
  return found == functions_.end() ? nullptr : found->second;
}

int64_t Importer::OpsetOf(const FunctionProto& function) const {
  const int64_t own = OwnOpset(function.opset_import());
  return own == 0 ? OwnOpset(model_.opset_import()) : own;
}

void Importer::Call(const FunctionProto& function) {
  Uses& uses = uses_of_[&function];
  if (uses.empty()) {
    CountUses(function.node(), 1, &uses);
    for (const std::string& output : function.output()) ++uses[output];
    for (const std::string& input : function.input()) uses[input] += kOften;
  }
  if (num_inputs() > function.input_size()) {
    Throw<ModelError>("{} inputs of a function with {}", num_inputs(), function.input_size());
  }
  Charge(int64_t{function.input_size()} + function.output_size() + function.attribute_size() +
         function.attribute_proto_size());
  Frame frame{.uses = &uses};
  for (int i = 0; i < function.input_size(); ++i) {
    frame.values.emplace(function.input(i), Has(i) ? ValueOf(i) : nullptr);
  }
  for (const AttributeProto& attribute : function.attribute_proto()) {
    const AttributeProto* given = Find(attribute.name().c_str());
    frame.attributes[attribute.name()] = given == nullptr ? &attribute : given;
  }
  for (const std::string& name : function.attribute()) {
    if (const AttributeProto* given = Find(name.c_str())) frame.attributes[name] = given;
  }
  RunNodes(&frame, "", OpsetOf(function), function.node());
  for (int i = 0; i < std::min(num_outputs(), function.output_size()); ++i) {
    const auto found = frame.values.find(function.output(i));
    if (found == frame.values.end() || found->second == nullptr) {
      Throw<ModelError>("nothing in the function is called {}, its output", QuotedName(function.output(i)));
    }
    OutValue(i, found->second);
  }
}

}  // namespace bindery::onnx
