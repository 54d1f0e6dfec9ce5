#include "tools/pages/model_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "symbol/graph.h"
#include "symbol/op_def.h"
#include "symbol/print/summary.h"
#include "tools/pages/html.h"
#include "train/quoted_text.h"

namespace bindery {
namespace {

double InMebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Shapes of all values that are seen, by node and output.
std::map<std::pair<const Node*, int>, std::string> ShapesOf(const Graph& graph, const ShapeMap& known) {
  std::vector<Entry> entries;
  for (const NodePtr& node : graph.nodes) {
    for (int i = 0; i < (node->is_variable() ? 1 : NumVisibleOutputs(node->op(), node->attrs())); ++i) {
      entries.push_back({node, i});
    }
  }
  const InferredShapes inferred = InferShapesPartial(Symbol(entries), known);
  std::map<std::pair<const Node*, int>, std::string> shapes;
  for (size_t i = 0; i < entries.size(); ++i) {
    shapes[{entries[i].node.get(), entries[i].output}] = inferred.outputs[i] ? ToString(*inferred.outputs[i]) : "?";
  }
  return shapes;
}

// A row for each node that computes: what it takes, its parameters, with their shapes.
std::string LayerTable(const Symbol& symbol, const ShapeMap& known) {
  const Graph graph = Graph::Of(symbol);
  const auto shapes = ShapesOf(graph, known);
  const std::set<std::string> given = ListGiven(symbol, known);
  std::vector<std::vector<std::string>> rows;
  for (const NodePtr& node : graph.nodes) {
    if (node->is_variable()) continue;
    std::string output, attributes, inputs, parameters;
    for (int i = 0; i < NumVisibleOutputs(node->op(), node->attrs()); ++i) {
      output += (i == 0 ? "" : ", ") + shapes.at({node.get(), i});
    }
    for (const auto& [key, value] : node->attrs().ToMap()) {
      attributes += fmt::format("{}{}={}", attributes.empty() ? "" : ", ", key, ToString(value));
    }
    for (const Entry& input : node->inputs()) {
      const Node& from = *input.node;
      const bool is_parameter = from.is_variable() && !given.contains(from.name());
      std::string& list = is_parameter ? parameters : inputs;
      list += (list.empty() ? "" : ", ") + from.name();
      if (is_parameter) list += " " + shapes.at({&from, 0});
    }
    rows.push_back({node->name(), node->op().name, output, parameters, inputs, attributes});
  }
  return HtmlTable({"layer", "operator", "output", "parameters", "of", "attributes"},
                   {false, false, false, false, false, false}, rows);
}

std::string CallTable(const Plan& plan) {
  const std::vector<int64_t> live = LiveBytes(plan);
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    const PlanCall& call = plan.calls[i];
    std::string shape;
    for (const int value : call.outputs) {
      if (value >= 0 && shape.empty()) shape = ToString(plan.values[static_cast<size_t>(value)].type.shape);
    }
    rows.push_back({std::to_string(i), PhaseOf(plan, static_cast<int>(i)), call.op, call.node, shape,
                    call.implementation, std::to_string(call.threads), fmt::format("{:.3f}", InMebibytes(live[i]))});
  }
  return HtmlTable({"call", "phase", "operator", "node", "output", "kernel", "threads", "MiB alive"},
                   {true, false, false, false, false, false, true, true}, rows);
}

std::string MemoryTable(const MemoryReport& report) {
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const char* what, int64_t bytes) {
    rows.push_back({what, Thousands(bytes), fmt::format("{:.2f}", InMebibytes(bytes))});
  };
  add("parameters", report.parameters);
  if (report.derived > 0) add("copies made of them", report.derived);
  add("gradients", report.gradients);
  add("running statistics", report.auxiliary);
  add("inputs", report.inputs);
  add("arena: values and scratch memory", report.arena);
  add("in all", report.total());
  return HtmlTable({"for", "bytes", "MiB"}, {false, true, true}, rows);
}

}  // namespace

std::vector<int64_t> LiveBytes(const Plan& plan) {
  std::vector<int64_t> live(plan.calls.size(), 0);
  for (const PlanStorage& storage : plan.storages) {
    for (int call = storage.first; call <= storage.last && call < static_cast<int>(live.size()); ++call) {
      live[static_cast<size_t>(call)] += storage.bytes;
    }
  }
  return live;
}

std::string PhaseOf(const Plan& plan, int call) {
  if (call < plan.derive_calls) return "parameters";
  for (const PlanSegment& segment : plan.segments) {
    if (call >= segment.begin && call < segment.end) return segment.phase == Phase::kForward ? "forward" : "backward";
  }
  return "";
}

std::string MemorySvg(const Plan& plan) {
  constexpr double kWidth = 900, kLeft = 70, kBox = 320, kCurve = 110, kGap = 34, kTop = 18;
  const double calls = std::max<double>(1, static_cast<double>(plan.calls.size()));
  const double bytes = std::max<double>(1, static_cast<double>(plan.arena_bytes));
  const double step = (kWidth - kLeft - 10) / calls, box_top = kTop + kCurve + kGap;
  const auto x = [&](double call) { return kLeft + call * step; };
  std::map<int, std::string> names;  // by storage
  for (const PlanValue& value : plan.values) {
    if (value.place != Place::kArena || value.storage < 0) continue;
    std::string& list = names[value.storage];
    if (list.size() < 200) list += (list.empty() ? "" : ", ") + value.name;
  }
  for (const PlanCall& call : plan.calls) {
    if (call.scratch >= 0) names[call.scratch] = fmt::format("scratch of {} {}", call.op, call.node);
  }
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"11\" role=\"img\">\n",
      kWidth, box_top + kBox + 34);
  const auto text = [&](double at_x, double at_y, const char* anchor, const std::string& what) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", at_x, at_y, anchor,
                       MarkupText(what));
  };
  const auto band = [&](double top, double height, const PlanSegment& segment) {
    if (segment.phase == Phase::kForward) return;
    svg += fmt::format("<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"#f4f4f8\"/>\n",
                       x(segment.begin), top, step * (segment.end - segment.begin), height);
  };
  for (const PlanSegment& segment : plan.segments) {
    band(kTop, kCurve, segment);
    band(box_top, kBox, segment);
  }
  const std::vector<int64_t> live = LiveBytes(plan);
  std::string outline = fmt::format("{:.2f},{:.2f} ", x(0), kTop + kCurve);
  for (size_t i = 0; i < live.size(); ++i) {
    const double y = kTop + kCurve * (1 - static_cast<double>(live[i]) / bytes);
    outline +=
        fmt::format("{:.2f},{:.2f} {:.2f},{:.2f} ", x(static_cast<double>(i)), y, x(static_cast<double>(i + 1)), y);
  }
  svg += fmt::format("<polygon points=\"{}{:.2f},{:.2f}\" fill=\"#0072b2\" fill-opacity=\"0.6\"/>\n", outline, x(calls),
                     kTop + kCurve);
  text(kLeft, kTop - 6, "start",
       fmt::format("alive at each call: {:.2f} MiB at most, in an arena of {:.2f} MiB",
                   InMebibytes(plan.peak_live_bytes), InMebibytes(plan.arena_bytes)));
  text(kLeft, box_top - 8, "start", "the arena: each box a range of its bytes, while it is in use");
  constexpr const char* kFills[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};
  for (size_t s = 0; s < plan.storages.size(); ++s) {
    const PlanStorage& storage = plan.storages[s];
    const auto name = names.find(static_cast<int>(s));
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\" fill-opacity=\"0.7\" "
        "stroke=\"#fff\" stroke-width=\"0.5\"><title>{}: {} bytes at {}, calls {} to {}</title></rect>\n",
        x(storage.first), box_top + kBox * static_cast<double>(storage.offset) / bytes,
        step * (storage.last - storage.first + 1), kBox * static_cast<double>(storage.bytes) / bytes,
        kFills[s % std::size(kFills)], MarkupText(name == names.end() ? "" : name->second), Thousands(storage.bytes),
        Thousands(storage.offset), storage.first, storage.last);
  }
  for (const double top : {kTop, box_top}) {
    const double height = top == kTop ? kCurve : kBox;
    svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"none\" stroke=\"#888\"/>\n",
                       kLeft, top, step * calls, height);
  }
  text(kLeft - 6, kTop + 10, "end", fmt::format("{:.1f} MiB", InMebibytes(plan.arena_bytes)));
  text(kLeft - 6, kTop + kCurve, "end", "0");
  text(kLeft - 6, box_top + 10, "end", "0");
  text(kLeft - 6, box_top + kBox, "end", fmt::format("{:.1f} MiB", InMebibytes(plan.arena_bytes)));
  text(kLeft, box_top + kBox + 16, "start", "call 0");
  text(x(calls), box_top + kBox + 16, "end", fmt::format("call {}", plan.calls.size()));
  for (const PlanSegment& segment : plan.segments) {
    if (segment.phase != Phase::kBackward) continue;
    text(x(segment.begin), box_top + kBox + 30, "start", "backward begins");
    break;
  }
  return svg + "</svg>\n";
}

std::string ModelPage(const Symbol& symbol, const ShapeMap& shapes, const ModelPageOptions& options) {
  const ParameterCount count = CountParameters(symbol, shapes);
  std::string body = "<p>";
  for (const auto& [name, shape] : shapes) body += fmt::format("{} {}; ", MarkupText(name), ToString(shape));
  body += fmt::format("{} parameters", Thousands(count.arguments));
  if (count.auxiliary > 0) body += fmt::format(", {} running statistics", Thousands(count.auxiliary));
  body += ".</p>\n<h2>Layers</h2>\n" + LayerTable(symbol, shapes);
  for (const auto& [device, samples, plan, memory] : options.devices) {
    body += fmt::format("<h2>{}: {} of {} samples</h2>\n", MarkupText(device), MarkupText(options.purpose), samples);
    body += MemoryTable(memory) + "<h3>Memory over the calls</h3>\n" + MemorySvg(*plan);
    body += fmt::format("<details><summary>The {} calls of the plan</summary>\n", plan->calls.size());
    body += CallTable(*plan) + "</details>\n";
  }
  return HtmlPage(options.name, body);
}

}  // namespace bindery
