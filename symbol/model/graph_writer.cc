#include <algorithm>
#include <cctype>
#include <unordered_map>
#include <unordered_set>

#include "symbol/graph.h"
#include "symbol/model/graph.h"
#include "symbol/op_def.h"

namespace bindery {
namespace {

// Would a reader take what follows the last colon for the number of an output?
bool EndsLikeOutput(const std::string& id) {
  const size_t colon = id.rfind(':');
  return colon != std::string::npos && colon + 1 < id.size() &&
         std::all_of(id.begin() + static_cast<ptrdiff_t>(colon) + 1, id.end(),
                     [](unsigned char c) { return std::isdigit(c); });
}

// What inputs call each node. Variables have their names, of which Graph::Of knows that they are unique. Operators need
// not have unique names: a second "relu1" is "relu1#2".
std::unordered_map<const Node*, std::string> ChooseIds(const Graph& graph) {
  std::unordered_map<const Node*, std::string> ids;
  std::unordered_set<std::string> taken;
  for (const NodePtr& node : graph.nodes) {
    if (!node->is_variable()) continue;
    ids.emplace(node.get(), node->name());
    taken.insert(node->name());
  }
  std::unordered_map<std::string, int> copies;  // of a name, to try none twice
  for (const NodePtr& node : graph.nodes) {
    if (node->is_variable()) continue;
    std::string id = node->name();
    int& copy = copies[node->name()];
    if (copy == 0) copy = 1;
    while (!taken.insert(id).second) id = fmt::format("{}#{}", node->name(), ++copy);
    ids.emplace(node.get(), std::move(id));
  }
  return ids;
}

void WriteAnnotations(const Annotations& annotations, google::protobuf::RepeatedPtrField<proto::Text>* messages) {
  for (const auto& [key, value] : annotations) {
    proto::Text* text = messages->Add();
    text->set_key(key);
    text->set_value(value);
  }
}

void WriteVariable(const Node& node, proto::Variable* message) {
  message->set_name(node.name());
  if (node.declared_shape) {
    proto::Dims* dims = message->mutable_shape();
    for (const int64_t extent : *node.declared_shape) dims->add_dim(extent);
  }
  if (node.declared_dtype) message->set_dtype(static_cast<proto::DType>(*node.declared_dtype));
  WriteAnnotations(node.annotations(), message->mutable_annotation());
}

void WriteAttr(const std::string& name, const AttrValue& value, TensorWriter* tensors, proto::Attr* message) {
  message->set_name(name);
  if (const auto* flag = std::get_if<bool>(&value)) {
    message->set_b(*flag);
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    message->set_i(*integer);
  } else if (const auto* number = std::get_if<double>(&value)) {
    message->set_f(*number);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    message->set_s(*text);
  } else if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    message->mutable_ints()->Add(list->begin(), list->end());
  } else if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
    message->mutable_floats()->Add(numbers->begin(), numbers->end());
  } else if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    message->mutable_strings()->Add(texts->begin(), texts->end());
  } else {
    const auto& tensor = std::get<TensorPtr>(value);
    if (tensor == nullptr) Throw<ModelError>("attribute \"{}\" is a tensor that is not there", name);
    tensors->Write(tensor, message->mutable_t());
  }
}

}  // namespace

void WriteGraph(const Symbol& symbol, TensorWriter* tensors, proto::Graph* message) {
  const Graph graph = Graph::Of(symbol);
  const auto ids = ChooseIds(graph);
  const auto reference = [&](const Entry& entry) {
    const std::string& id = ids.at(entry.node.get());
    return entry.output == 0 && !EndsLikeOutput(id) ? id : fmt::format("{}:{}", id, entry.output);
  };
  for (const NodePtr& node : graph.nodes) {
    if (node->is_variable()) {
      WriteVariable(*node, message->add_variable());
      continue;
    }
    proto::Node* written = message->add_node();
    written->set_op(node->op().name);
    written->set_name(node->name());
    for (const Entry& input : node->inputs()) written->add_input(reference(input));
    for (const auto& [name, value] : node->attrs().ToMap()) WriteAttr(name, value, tensors, written->add_attr());
    WriteAnnotations(node->annotations(), written->mutable_annotation());
    if (ids.at(node.get()) != node->name()) written->set_id(ids.at(node.get()));
  }
  for (const Entry& entry : graph.outputs) message->add_output(reference(entry));
}

}  // namespace bindery
