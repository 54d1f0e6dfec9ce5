#include "executor/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "executor/compile/memory_plan.h"

namespace bindery {
namespace {

const char* ToString(Place place) {
  switch (place) {
    case Place::kNone: return "none";
    case Place::kArena: return "arena";
    case Place::kArgument: return "argument";
    case Place::kGradient: return "gradient";
    case Place::kAuxiliary: return "auxiliary";
    case Place::kDerived: return "derived";
  }
  return "?";
}

std::string Where(const Plan& plan, const PlanValue& v) {
  if (v.place == Place::kArena) {
    const PlanStorage& s = plan.storages[v.storage];
    return fmt::format("arena[{}+{}] calls {}-{}", s.offset, s.bytes, s.first, s.last);
  }
  return v.slot < 0 ? ToString(v.place) : fmt::format("{} {}", ToString(v.place), v.slot);
}

std::string Names(const Plan& plan, const std::vector<int>& values) {
  std::string text;
  for (const int v : values) text += fmt::format("{}{}", text.empty() ? "" : ", ", v < 0 ? "-" : plan.values[v].name);
  return text;
}

}  // namespace

std::string ToString(const Plan& plan) {
  fmt::memory_buffer text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "plan: {} calls, {} segments, arena {} bytes, peak live {} bytes\n", plan.calls.size(),
                 plan.segments.size(), plan.arena_bytes, plan.peak_live_bytes);
  fmt::format_to(out, "\nvalues\n");
  for (size_t i = 0; i < plan.values.size(); ++i) {
    const PlanValue& v = plan.values[i];
    fmt::format_to(out, "  {:4} {:40} {} {} {}  {}\n", i, v.name, v.type.dtype, v.type.shape, v.format, Where(plan, v));
  }
  const auto print_calls = [&](int begin, int end) {
    for (int i = begin; i < end; ++i) {
      const PlanCall& call = plan.calls[i];
      fmt::format_to(out, "  {:4} {} \"{}\"{} [{}] threads {} ({}) -> ({})\n", i, call.op, call.node,
                     call.again ? " again" : "", call.implementation, call.threads, Names(plan, call.inputs),
                     Names(plan, call.outputs));
    }
  };
  if (plan.derive_calls > 0) fmt::format_to(out, "\nwhen parameters have changed\n");
  print_calls(0, plan.derive_calls);
  for (size_t s = 0; s < plan.segments.size(); ++s) {
    const PlanSegment& segment = plan.segments[s];
    fmt::format_to(out, "\nsegment {} ({})\n", s, segment.phase == Phase::kForward ? "forward" : "backward");
    print_calls(segment.begin, segment.end);
    for (const PlanExchange& e : segment.exchanges) {
      fmt::format_to(out, "       {} ({}) -> ({})\n", ToString(e.what), plan.values[e.input].name,
                     plan.values[e.output].name);
    }
  }
  fmt::format_to(out, "\noutputs\n");
  for (const PlanOutput& o : plan.outputs) fmt::format_to(out, "  {} {}\n", o.name, plan.values[o.value].type.shape);
  return fmt::to_string(text);
}

std::vector<int> Plan::GradientCalls() const {
  std::vector<int> writers(gradients.size(), -1);
  for (size_t c = 0; c < calls.size(); ++c) {
    for (const int v : calls[c].outputs) {
      if (v >= 0 && values[v].place == Place::kGradient) writers[values[v].slot] = static_cast<int>(c);
    }
  }
  return writers;
}

int64_t Plan::GradientBytes(int gradient) const {
  if (gradients[gradient].part == GradientPart::kWhole) return ArgumentOf(gradients[gradient]).bytes();
  for (const PlanValue& v : values) {
    if (v.place == Place::kGradient && v.slot == gradient) return v.bytes();
  }
  return 0;
}

MemoryReport ReportMemory(const Plan& plan, const std::vector<const Plan*>& beside) {
  MemoryReport report{.arena = plan.arena_bytes, .peak_live = plan.peak_live_bytes};
  const auto add = [](int64_t& sum, int64_t bytes) { sum = CheckedAdd(sum, bytes, "memory"); };
  for (const PlanArgument& a : plan.arguments) {
    if (!a.is_parameter()) add(report.inputs, a.bytes());
    if (a.is_parameter() && beside.empty()) add(report.parameters, a.bytes());
  }
  for (const PlanDerived& d : plan.derived) {
    const auto has = [&d](const Plan* other) {
      return std::ranges::find(other->derived, d.name, &PlanDerived::name) != other->derived.end();
    };
    if (!d.states.empty() || std::ranges::none_of(beside, has)) add(report.derived, d.bytes);
  }
  for (size_t g = 0; g < plan.gradients.size(); ++g) add(report.gradients, plan.GradientBytes(static_cast<int>(g)));
  for (const PlanState& s : plan.auxiliary) add(report.auxiliary, StorageBytes({}, s.type.dtype, s.type.shape));

  // What is alive at the call where most is.
  std::vector<PlanStorage> scratch;
  for (const PlanCall& call : plan.calls)
    if (call.scratch >= 0) scratch.push_back(plan.storages[call.scratch]);
  const std::vector<int64_t> all = LiveBytes(plan.storages);
  std::vector<int64_t> of_scratch = LiveBytes(scratch);
  of_scratch.resize(all.size());
  const auto fullest = std::ranges::max_element(all);
  if (fullest == all.end()) return report;
  report.workspace = of_scratch[static_cast<size_t>(fullest - all.begin())];
  report.activations = *fullest - report.workspace;
  return report;
}

std::string ToString(const MemoryReport& r) {
  const auto line = [](const char* what, int64_t bytes) {
    return fmt::format("  {:<28}{:>14} bytes  {:>9.2f} MiB\n", what, bytes, static_cast<double>(bytes) / (1 << 20));
  };
  return line("parameters", r.parameters) + (r.derived > 0 ? line("  copies made of them", r.derived) : "") +
         line("gradients", r.gradients) + line("auxiliary states", r.auxiliary) + line("inputs", r.inputs) +
         line("arena", r.arena) + line("  of it at the peak: values", r.activations) +
         line("  of it at the peak: scratch", r.workspace) + line("  lower bound (peak live)", r.peak_live) +
         line("total", r.total());
}

}  // namespace bindery
