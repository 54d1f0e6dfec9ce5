#include "symbol/print/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/graph.h"
#include "symbol/model/source.h"
#include "symbol/op_def.h"
#include "symbol/ops/cast.h"

namespace bindery {
namespace {

using Shapes = std::vector<std::vector<std::optional<Shape>>>;  // per node and visible output, as far as known

Shapes InferVisible(const Graph& graph, const ShapeMap& known) {
  std::vector<Entry> entries;
  std::vector<int> owners;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = *graph.nodes[n];
    const int visible = node.is_variable() ? 1 : NumVisibleOutputs(node.op(), node.attrs());
    for (int i = 0; i < visible; ++i) {
      entries.push_back({graph.nodes[n], i});
      owners.push_back(static_cast<int>(n));
    }
  }
  const InferredShapes inferred = InferShapesPartial(Symbol(std::move(entries)), known);
  Shapes shapes(graph.nodes.size());
  for (size_t i = 0; i < owners.size(); ++i) shapes[owners[i]].push_back(inferred.outputs[i]);
  return shapes;
}

constexpr size_t kMaxOutputs = 8;  // of a node, that are shown

// Element types are told where they are others than float32; `types` has hidden outputs, too.
std::string Text(const std::vector<std::optional<Shape>>& shapes, const std::vector<PartialType>& types) {
  std::string text;
  for (size_t o = 0; o < std::min(shapes.size(), kMaxOutputs); ++o) {
    text += (o == 0 ? "" : ", ") + (shapes[o] ? ToString(*shapes[o]) : "?");
    if (types[o].dtype && types[o].dtype != DType::kFloat32) text += fmt::format(" {}", *types[o].dtype);
  }
  if (shapes.size() > kMaxOutputs) text += fmt::format(" and {} more", shapes.size() - kMaxOutputs);
  return text;
}

// What of a graph counts as a parameter: variables that are not given; and Casts of these, which belong to who reads
// them, as the variables do then.
struct Parameters {
  Parameters(const Graph& graph, const std::set<std::string>& given) {
    for (const NodePtr& node : graph.nodes) {
      if (node->is_variable()) continue;
      const std::vector<std::string> names = InputNames(*node);
      for (size_t i = 0; i < node->inputs().size(); ++i) {
        const Node* input = node->inputs()[i].node.get();
        const auto from = CastFrom(*input);
        if (input->is_variable() ? given.contains(input->name()) : !from || !Contain(from->node.get())) continue;
        if (IsAuxiliary(node->op(), names[i])) auxiliary.insert(input);
        reader.try_emplace(input, node.get());  // a shared one counts for the first layer that uses it
      }
    }
  }
  bool Contain(const Node* node) const { return reader.contains(node); }
  const Node* LayerOf(const Node* parameter) const {
    const Node* layer = reader.at(parameter);
    while (Contain(layer)) layer = reader.at(layer);
    return layer;
  }

  std::unordered_map<const Node*, const Node*> reader;
  std::unordered_set<const Node*> auxiliary;
};

struct Counts {
  Counts(const Graph& graph, const Shapes& shapes, const Parameters& parameters) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node* node = graph.nodes[n].get();
      if (!node->is_variable() || !parameters.Contain(node)) continue;
      const Node* layer = parameters.LayerOf(node);
      const std::optional<Shape>& shape = shapes[n][0];
      if (!shape || !shape->IsKnown()) {
        unknown.insert(layer);
        if (first_unknown == nullptr) first_unknown = node;
        continue;
      }
      const auto add = [&](int64_t& sum) { sum = CheckedAdd(sum, shape->Elements(), "number of parameters"); };
      add(of_layer[layer]);
      add(parameters.auxiliary.contains(node) ? total.auxiliary : total.arguments);
    }
  }
  std::unordered_map<const Node*, int64_t> of_layer;
  std::unordered_set<const Node*> unknown;  // layers with a parameter of unknown shape
  const Node* first_unknown = nullptr;      // such a parameter
  ParameterCount total;
};

// "1,256,080"
std::string Thousands(int64_t number) {
  std::string digits = std::to_string(number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, ",");
  return digits;
}

struct Row {
  std::string layer, output, parameters;
  std::vector<std::string> previous;
};

class Table {
 public:
  void Add(const Row& row) {
    for (size_t i = 0; i < std::max<size_t>(1, row.previous.size()); ++i) {
      const std::string previous = row.previous.empty() ? "" : row.previous[i];
      if (i == 0) {
        lines_.push_back({row.layer, row.output, row.parameters, previous});
      } else {
        lines_.push_back({"", "", "", previous});
      }
    }
    lines_.push_back({});  // a rule
  }
  std::string ToString() const {
    std::array<size_t, 4> width{};
    for (const Line& line : lines_) {
      for (size_t c = 0; c < line.size(); ++c) width[c] = std::max(width[c], line[c].size());
    }
    const size_t total = width[0] + width[1] + width[2] + width[3] + 6;
    std::string text;
    bool header = true;
    for (const Line& line : lines_) {
      if (line == Line{}) {
        text += std::string(total, header ? '=' : '-') + "\n";
        header = false;
        continue;
      }
      std::string row =
          fmt::format("{:<{}}  {:<{}}  {:>{}}  {}", line[0], width[0], line[1], width[1], line[2], width[2], line[3]);
      text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
  }

 private:
  using Line = std::array<std::string, 4>;
  std::vector<Line> lines_;
};

}  // namespace

std::set<std::string> ListGiven(const Symbol& symbol, const ShapeMap& shapes) {
  std::set<std::string> given = ListLabels(symbol);
  for (const auto& [name, shape] : shapes) given.insert(name);
  for (const NodePtr& node : PostOrder(symbol.entries())) {
    if (node->inputs().empty()) continue;
    const Node& first = *node->inputs()[0].node;
    const std::optional<Shape>& shape = first.declared_shape;
    if (!shape || shape->rank() == 0) continue;
    if ((*shape)[std::max(AxisOfLayout(first, *shape), 0)] == kUnknownDim) given.insert(first.name());
  }
  return given;
}

std::string Summary(const Symbol& symbol, const ShapeMap& shapes) {
  const Graph graph = Graph::Of(symbol);
  const Shapes inferred = InferVisible(graph, shapes);
  const PartialTypes types = InferPartial(graph, {}, nullptr, std::nullopt);
  const Parameters parameters(graph, ListGiven(symbol, shapes));
  Counts counts(graph, inferred, parameters);
  Table table;
  table.Add({"Layer (operator)", "Output shape", "Parameters", {"Previous layer"}});
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node* node = graph.nodes[n].get();
    if (parameters.Contain(node)) continue;
    Row row{fmt::format("{} ({})", ShortName(node->name()), node->is_variable() ? "input" : node->op().name),
            Text(inferred[n], types[n]),
            Thousands(counts.of_layer[node]),
            {}};
    if (counts.unknown.contains(node)) row.parameters += " + ?";
    for (const Entry& input : node->inputs()) {
      if (!parameters.Contain(input.node.get())) row.previous.push_back(ShortName(input.node->name()));
    }
    table.Add(row);
  }
  std::string text = table.ToString() + fmt::format("Parameters: {}\n", Thousands(counts.total.arguments));
  if (counts.total.auxiliary > 0) text += fmt::format("Auxiliary states: {}\n", Thousands(counts.total.auxiliary));
  if (!counts.unknown.empty()) text += "Not counted: parameters of unknown shape, marked ?\n";
  return text;
}

ParameterCount CountParameters(const Symbol& symbol, const ShapeMap& shapes) {
  const Graph graph = Graph::Of(symbol);
  const Counts counts(graph, InferVisible(graph, shapes), Parameters(graph, ListGiven(symbol, shapes)));
  if (counts.first_unknown != nullptr) {
    Throw<ShapeError>("the shape of parameter \"{}\" is not known", counts.first_unknown->name());
  }
  return counts.total;
}

}  // namespace bindery
