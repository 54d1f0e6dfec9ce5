#include "train/events/graph_def.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "symbol/attrs.h"
#include "symbol/graph.h"
#include "symbol/op_def.h"
#include "train/quoted_text.h"

namespace bindery {
namespace {

constexpr int kProducer = 22;  // of files without a version, TensorBoard expects attributes' defaults to be left out

// A name of its own for every node. A colon, a caret and a comma would be taken for an output, a control input, a list.
std::vector<std::string> NodeNames(const Graph& graph) {
  std::vector<std::string> names;
  std::set<std::string> taken;
  for (const NodePtr& node : graph.nodes) {
    std::string name = ValidUtf8(node->name());
    for (char& c : name) {
      if (c == ':' || c == '^' || c == ',') c = '_';
    }
    std::string unique = name;
    for (int n = 1; !taken.insert(unique).second; ++n) unique = fmt::format("{}_{}", name, n);
    names.push_back(std::move(unique));
  }
  return names;
}

}  // namespace

events::GraphDef ToGraphDef(const Symbol& symbol, const ShapeMap& shapes) {
  const Graph graph = Graph::Of(symbol);
  const std::vector<std::string> names = NodeNames(graph);
  std::vector<Entry> all;
  for (const NodePtr& node : graph.nodes) {
    for (const Entry& output : OutputsOf(node)) all.push_back(output);
  }
  const InferredShapes inferred = InferShapesPartial(Symbol(std::move(all)), shapes);
  events::GraphDef def;
  def.mutable_versions()->set_producer(kProducer);
  size_t value = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = *graph.nodes[n];
    events::NodeDef* to = def.add_node();
    to->set_name(names[n]);
    to->set_op(node.is_variable() ? "Variable" : ValidUtf8(node.op().name));
    for (const Entry& input : node.inputs()) {
      const std::string& from = names[static_cast<size_t>(graph.IndexOf(input.node))];
      to->add_input(input.output == 0 ? from : fmt::format("{}:{}", from, input.output));
    }
    auto& attributes = *to->mutable_attr();
    auto* output_shapes = attributes["_output_shapes"].mutable_list();
    for (int o = 0; o < node.num_outputs(); ++o) {
      events::Tensor::Shape* shape = output_shapes->add_shape();
      const std::optional<Shape>& known = inferred.outputs[value++];
      for (int axis = 0; known && axis < known->rank(); ++axis) {
        shape->add_dim()->set_size((*known)[axis]);  // -1: not known
      }
    }
    if (node.is_variable()) continue;
    for (const auto& [name, attribute] : node.attrs().ToMap()) {
      attributes[ValidUtf8(name)].set_s(ToString(attribute));
    }
  }
  return def;
}

}  // namespace bindery
