#include "tools/pages/model_json.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "symbol/graph.h"
#include "symbol/op_def.h"
#include "symbol/print/summary.h"

namespace bindery {
namespace {

using nlohmann::json;

json ToJson(const Shape& shape) {
  json extents = json::array();
  for (const int64_t extent : shape.dims()) extents.push_back(extent);
  return extents;
}

json ToJson(const AttrValue& value) {
  return std::visit(
      [&](const auto& one) -> json {
        if constexpr (std::is_same_v<std::decay_t<decltype(one)>, std::shared_ptr<const HostTensor>>) {
          return ToString(value);
        } else {
          return one;
        }
      },
      value);
}

// Shapes and element types of what is seen of a graph's nodes.
class TypesOfValues {
 public:
  TypesOfValues(const Graph& graph, const ShapeMap& known) {
    std::vector<Entry> entries;
    const std::vector<std::vector<DType>> types = InferDTypes(graph, {});
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const NodePtr& node = graph.nodes[n];
      const int visible = node->is_variable() ? 1 : NumVisibleOutputs(node->op(), node->attrs());
      for (int i = 0; i < visible; ++i) {
        entries.push_back({node, i});
        values_[node.get()].emplace_back(std::nullopt, types[n][static_cast<size_t>(i)]);
      }
    }
    const InferredShapes inferred = InferShapesPartial(Symbol(entries), known);
    for (size_t i = 0; i < entries.size(); ++i) {
      values_[entries[i].node.get()][static_cast<size_t>(entries[i].output)].first = inferred.outputs[i];
    }
  }

  json Of(const Node& node) const {
    json all = json::array();
    for (const auto& [shape, type] : values_.at(&node)) {
      all.push_back({{"shape", shape ? ToJson(*shape) : json()}, {"type", ToString(type)}});
    }
    return all;
  }
  json Parameter(const Node& variable, bool is_auxiliary) const {
    const auto& [shape, type] = values_.at(&variable)[0];
    const int64_t count = shape->Elements();
    return {{"name", variable.name()}, {"shape", ToJson(*shape)},       {"type", ToString(type)},
            {"count", count},          {"bytes", count * SizeOf(type)}, {"auxiliary", is_auxiliary}};
  }

 private:
  std::map<const Node*, std::vector<std::pair<std::optional<Shape>, DType>>> values_;
};

json LayersOf(const Graph& graph, const TypesOfValues& values, const std::set<std::string>& given) {
  json layers = json::array();
  std::set<const Node*> seen;  // parameters: one that is shared is of the first layer that takes it
  for (const NodePtr& node : graph.nodes) {
    if (node->is_variable()) continue;
    json attributes = json::object(), taken = json::array(), parameters = json::array();
    for (const auto& [name, value] : node->attrs().ToMap()) attributes[name] = ToJson(value);
    const std::vector<std::string> names = InputNames(*node);
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      const auto& [from, output] = node->inputs()[i];
      if (from->is_variable() && !given.contains(from->name()) && seen.insert(from.get()).second) {
        parameters.push_back(values.Parameter(*from, IsAuxiliary(node->op(), names[i])));
      } else {
        taken.push_back({{"from", from->name()}, {"output", output}});
      }
    }
    layers.push_back({{"name", node->name()},
                      {"operator", node->op().name},
                      {"attributes", attributes},
                      {"inputs", taken},
                      {"outputs", values.Of(*node)},
                      {"parameters", parameters}});
  }
  return layers;
}

json ToJson(const MemoryReport& report) {
  return {{"parameters", report.parameters}, {"derived", report.derived},         {"gradients", report.gradients},
          {"auxiliary", report.auxiliary},   {"inputs", report.inputs},           {"arena", report.arena},
          {"peak_live", report.peak_live},   {"activations", report.activations}, {"workspace", report.workspace},
          {"total", report.total()}};
}

json CallsOf(const Plan& plan) {
  const std::vector<int64_t> live = LiveBytes(plan);
  json calls = json::array();
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    const PlanCall& call = plan.calls[i];
    calls.push_back({{"phase", PhaseOf(plan, static_cast<int>(i))},
                     {"operator", call.op},
                     {"node", call.node},
                     {"kernel", call.implementation},
                     {"threads", call.threads},
                     {"again", call.again},
                     {"live_bytes", live[i]}});
  }
  return calls;
}

json ArenaOf(const Plan& plan) {
  json ranges = json::array();
  for (const PlanStorage& storage : plan.storages) {
    ranges.push_back({{"offset", storage.offset},
                      {"bytes", storage.bytes},
                      {"first_call", storage.first},
                      {"last_call", storage.last},
                      {"values", json::array()}});
  }
  for (const PlanValue& value : plan.values) {
    if (value.place != Place::kArena || value.storage < 0) continue;
    ranges[static_cast<size_t>(value.storage)]["values"].push_back(value.name);
  }
  return ranges;
}

}  // namespace

json ModelJson(const Symbol& symbol, const ShapeMap& shapes, const ModelPageOptions& options) {
  const Graph graph = Graph::Of(symbol);
  const ParameterCount count = CountParameters(symbol, shapes);
  const TypesOfValues values(graph, shapes);
  const std::set<std::string> given = ListGiven(symbol, shapes);
  json inputs = json::array(), devices = json::array();
  for (const NodePtr& node : graph.nodes) {
    if (!node->is_variable() || !given.contains(node->name())) continue;
    json input = values.Of(*node)[0];
    input["name"] = node->name();
    inputs.push_back(input);
  }
  for (const auto& [device, samples, plan, memory] : options.devices) {
    devices.push_back({{"device", device},
                       {"samples", samples},
                       {"memory", ToJson(memory)},
                       {"arena", ArenaOf(*plan)},
                       {"calls", CallsOf(*plan)}});
  }
  return {{"schema", kModelSchema},
          {"model", options.name},
          {"purpose", options.purpose},
          {"parameters", count.arguments},
          {"auxiliary", count.auxiliary},
          {"arguments", symbol.ListArguments()},
          {"outputs", symbol.ListOutputs()},
          {"inputs", inputs},
          {"layers", LayersOf(graph, values, given)},
          {"devices", devices}};
}

}  // namespace bindery
