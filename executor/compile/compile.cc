// From the lowered graph to a program. One walk over the nodes emits calls: it asks for each node's kernel, reorders
// inputs into the formats that the kernel takes, lets views and identities share their input's memory, and puts
// gradients where they belong. Then lifetimes are known, and in-place pairs and offsets are decided.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <unordered_set>

#include "executor/compile/hoist_derived.h"
#include "executor/compile/internal_kernels.h"
#include "executor/compile/join_chains.h"
#include "executor/compile/liveness.h"
#include "executor/compile/lowering.h"
#include "executor/compile/mirrored.h"
#include "executor/compile/program_builder.h"
#include "executor/compile/random_keys.h"
#include "executor/compile/without_elements.h"
#include "executor/plan/program.h"
#include "symbol/op_def.h"

namespace bindery {
namespace {

// Adds the node to an error, unless its message names it already, without changing its type.
template <class F>
void WithNode(const Node& node, F&& f) {
  try {
    f();
  } catch (const Error&) {
    std::rethrow_exception(CurrentErrorAfter(Describe(node) + ": "));
  }
}

class Compiler : private ProgramBuilder {
 public:
  Compiler(LoweredGraph lowered, const CompileOptions& options)
      : ProgramBuilder(std::move(lowered.plan), options), lowered_(std::move(lowered)), graph_(lowered_.graph),
        has_backward_(options.with_backward && options.mode == Mode::kTrain) {}

  std::shared_ptr<const Program> Run() {
    DescribeInterface();
    read_ = NeededOutputs(graph_, [&](const Node& node, int output) { return IsObserved(node, output); });
    CheckKernels();
    values_of_.resize(graph_.nodes.size());
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (static_cast<int>(n) == lowered_.forward_nodes) EndForward();
      values_of_[n].assign(lowered_.types[n].size(), -1);
      WithNode(*graph_.nodes[n], [&] {
        EmitNode(static_cast<int>(n));
        for (size_t o = 0; o < values_of_[n].size(); ++o) PlaceGradients(static_cast<int>(n), static_cast<int>(o));
      });
    }
    if (!forward_ended_) EndForward();
    EmitWaiting();
    FinishObserved();
    CutSegment(has_backward_ ? Phase::kBackward : Phase::kForward, /*keep_empty=*/true);
    if (options_.switches.derive) {
      HoistDerived(&program(), {options_.signature, roots(), kept_, may_be_kept(), KeepsAnything(options_)});
    }
    PlanMemoryWithChains(&program(), {options_, graph_, roots(), kept_});
    VerifyPlan(plan());
    return Finish();
  }

 private:
  const ValueType& TypeOf(const Entry& entry) const { return lowered_.types[graph_.IndexOf(entry.node)][entry.output]; }
  int ValueOf(const Entry& entry) { return ValueOf(graph_.IndexOf(entry.node), entry.output); }
  int ValueOf(int n, int output) {
    if (std::ranges::find(waiting_, n, &Waiting::node) != waiting_.end()) EmitWaiting();
    return values_of_[n][output];
  }

  void DescribeInterface() {
    const std::vector<Argument>& given = options_.signature.arguments;
    for (size_t i = 0; i < plan().arguments.size(); ++i) {
      open_.push_back(plan().arguments[i].is_parameter() && !given[i].format && !options_.plain_parameters);
    }
    for (size_t g = 0; g < lowered_.gradients.size(); ++g) {
      const PlanGradient& gradient = plan().gradients[g];
      if (gradient.part != GradientPart::kWhole) open_[gradient.argument] = false;  // rows of a plain table
      if (lowered_.gradients[g] < 0) continue;
      const Entry& entry = graph_.outputs[lowered_.gradients[g]];
      gradients_of_[{graph_.IndexOf(entry.node), entry.output}].push_back(static_cast<int>(g));
    }
    if (!options_.observe.empty()) observe_ = std::regex(options_.observe);
  }

  // Where several operators have no kernel on the device, the error names all of them.
  void CheckKernels() const {
    std::set<std::string> missing;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = *graph_.nodes[n];
      if (node.is_variable() || node.op().across_devices != AcrossDevices::kNothing || IsView(static_cast<int>(n))) {
        continue;
      }
      if (!HasKernel(node.op().name, options_.device)) missing.insert(node.op().name);
    }
    if (missing.size() > 1) {
      Throw("no kernels on {} for the operators {}", ToString(options_.device), fmt::join(missing, ", "));
    }
  }

  bool IsObserved(const Node& node, int output) const {
    const int n = observe_ ? graph_.index.at(&node) : 0;
    return observe_ && lowered_.FirstOf(n) == n && std::regex_search(node.OutputName(output), *observe_);
  }

  // ---- nodes ----

  void EmitNode(int n) {
    const Node& node = *graph_.nodes[n];
    if (node.is_variable()) return EmitVariable(n);
    if (node.op().across_devices != AcrossDevices::kNothing) return EmitExchange(n);
    if (IsView(n)) return EmitView(n);
    if (!EmitWithoutElements(n)) EmitKernel(n);
  }

  void EmitVariable(int n) {
    const Node& node = *graph_.nodes[n];
    const auto [place, slot] = lowered_.variables[n];
    PlanValue value{.name = node.name(), .type = lowered_.types[n][0], .place = place, .slot = slot};
    if (place == Place::kArgument) value.format = plan().arguments[slot].format;
    values_of_[n][0] = NewValue(std::move(value));
  }

  // Nobody reads these outputs.
  void EmitNothing(int n, size_t first_output) {
    const std::vector<std::string> names = graph_.nodes[n]->OutputNames();
    for (size_t o = first_output; o < names.size(); ++o) {
      values_of_[n][o] = NewValue({.name = names[o], .type = lowered_.types[n][o]});
    }
  }

  bool IsView(int n) const {
    const Node& node = *graph_.nodes[n];
    if (!node.op().is_view) return false;
    return node.op().is_view({.attrs = node.attrs(),
                              .input = TypeOf(node.inputs()[0]),
                              .output = lowered_.types[n][0],
                              .training = options_.mode == Mode::kTrain,
                              .by_products = std::ranges::count(read_[n], true) > read_[n][0]});
  }

  void EmitView(int n) {
    const Node& node = *graph_.nodes[n];
    int input = CloseFormat(ValueOf(node.inputs()[0]));
    const ValueType& type = lowered_.types[n][0];
    if (plan().values[input].type.shape != type.shape) input = InFormat(input, Format::Plain());
    values_of_[n][0] = NewAlias(input, node.OutputName(0), type);
    EmitNothing(n, 1);
  }

  // A parameter whose format is open and that somebody reads as it is stays as it is.
  int CloseFormat(int value) {
    const PlanValue& v = plan().values[value];
    if (v.place == Place::kArgument) open_[v.slot] = false;
    return value;
  }

  // What is exchanged lies in the arena, whose variable waits for it: arguments and gradients may be written meanwhile.
  void EmitExchange(int n) {
    const Node& node = *graph_.nodes[n];
    int input = InFormat(CloseFormat(ValueOf(node.inputs()[0])), Format::Plain());
    if (options_.devices == 1) {
      values_of_[n][0] = NewAlias(input, node.OutputName(0), lowered_.types[n][0]);
      return;
    }
    if (plan().values[input].place != Place::kArena) input = CopyToArena(input, plan().values[input].name);
    Waiting waiting{.node = n, .exchange = {.input = input}};
    if (node.op().across_devices == AcrossDevices::kGather) {
      ValueType all = plan().values[input].type;
      all.shape = all.shape.Insert(0, options_.devices);
      waiting.exchange.what = Collective::kAllGather;
      waiting.exchange.output = NewArenaValue(node.OutputName(0) + "@all", all, Format::Plain());
    } else {
      values_of_[n][0] = waiting.exchange.output =
          NewArenaValue(node.OutputName(0), lowered_.types[n][0], Format::Plain());
    }
    exchanged_.insert({RootOf(input), waiting.exchange.output});
    waiting_.push_back(waiting);
  }

  // Somebody wants a value of an exchange: the segment ends here, with all exchanges that are ready by now.
  void EmitWaiting() {
    const std::vector<Waiting> waiting = std::exchange(waiting_, {});
    if (waiting.empty()) return;
    const Phase phase = forward_ended_ ? Phase::kBackward : Phase::kForward;
    CutSegment(phase, false);
    if (plan().segments.empty() || plan().segments.back().phase != phase) {
      plan().segments.push_back({.phase = phase, .begin = NumCalls(), .end = NumCalls()});
    }
    for (const Waiting& w : waiting) plan().segments.back().exchanges.push_back(w.exchange);
    for (const Waiting& w : waiting) {
      if (w.exchange.what == Collective::kAllGather) EmitKernel(w.node, w.exchange.output);
    }
  }

  bool EmitWithoutElements(int n) {
    const Node& node = *graph_.nodes[n];
    std::vector<ValueType> inputs;
    for (const Entry& input : node.inputs()) inputs.push_back(TypeOf(input));
    const auto found = ResultsWithoutElements(node, inputs, lowered_.types[n], read_[n], options_.mode, lowered_.batch);
    if (!found) return false;
    EmitNothing(n, 0);
    for (size_t o = 0; o < found->size(); ++o) {
      if (!read_[n][o]) continue;
      plan().values[values_of_[n][o]].place = Place::kArena;
      if ((*found)[o].bytes() == 0) continue;
      Emit(node.op().name, node.name(), {}, {values_of_[n][o]}, MakeConstantFill((*found)[o]));
    }
    return true;
  }

  // `gathered`: what takes the place of input 0, if not -1.
  void EmitKernel(int n, int gathered = -1) {
    const Node& node = *graph_.nodes[n];
    const size_t num_inputs = node.inputs().size(), num_outputs = lowered_.types[n].size();
    KernelSpec spec{.device = options_.device, .op = &node.op(), .attrs = node.attrs(), .who = Describe(node)};
    spec.node_name = random_keys_.Of(lowered_, n);
    spec.mode = options_.mode;
    spec.batch = lowered_.batch;
    spec.threads = options_.threads;
    spec.tuning = options_.switches.tuning;
    std::vector<int> inputs(num_inputs);
    for (size_t i = 0; i < num_inputs; ++i) {
      inputs[i] = i == 0 && gathered >= 0 ? gathered : ValueOf(node.inputs()[i]);
      const PlanValue& value = plan().values[inputs[i]];
      spec.inputs.push_back(value.type);
      spec.input_formats.push_back(value.format);
      spec.input_is_open.push_back(value.place == Place::kArgument && open_[value.slot]);
      spec.input_is_kept.push_back(kept_so_far_.Has(RootOf(inputs[i]), plan()));
    }
    spec.outputs = lowered_.types[n];
    spec.output_wishes.resize(num_outputs);
    for (size_t o = 0; o < num_outputs; ++o) {
      spec.output_used.push_back(read_[n][o]);
      const auto gradient = gradients_of_.find({n, static_cast<int>(o)});
      if (gradient != gradients_of_.end()) {
        spec.output_wishes[o] = FormatOf(plan().gradients[gradient->second.front()]);
      }
    }
    Kernel kernel = MakeKernel(spec, options_.switches.policy);
    Check(kernel.input_formats.size() == num_inputs && kernel.output_formats.size() == num_outputs,
          "a kernel names a format for each input and output");

    for (size_t i = 0; i < num_inputs; ++i) {
      PlanValue& value = plan().values[inputs[i]];
      if (value.place == Place::kArgument && open_[value.slot]) {
        open_[value.slot] = false;
        const Format& format = kernel.input_formats[i];
        // Nothing brings it back from a format of a kernel's own.
        if (format.kind != Format::Kind::kOpaque) value.format = plan().arguments[value.slot].format = format;
      }
      inputs[i] = InFormat(inputs[i], kernel.input_formats[i]);
    }
    const std::vector<std::string> names = node.OutputNames();
    std::vector<int> outputs(num_outputs);
    for (size_t o = 0; o < num_outputs; ++o) {
      PlanValue value{.name = names[o], .type = spec.outputs[o], .format = kernel.output_formats[o]};
      value.place = read_[n][o] ? Place::kArena : Place::kNone;
      values_of_[n][o] = NewValue(std::move(value));
      outputs[o] = read_[n][o] ? values_of_[n][o] : -1;
    }
    Emit(node.op().name, node.name(), std::move(inputs), std::move(outputs), std::move(kernel));
    plan().calls.back().who = spec.who;
    plan().calls.back().again = lowered_.FirstOf(n) != n;
    if (auto attributes = IdentityOfKept(node, options_)) {
      MayBeKept(*std::move(attributes));
      const bool is_head = std::ranges::count(graph_.outputs, graph_.nodes[n], &Entry::node) > 0;
      if (!is_head) kept_so_far_.Add(spec, values_of_[n][0]);
    }
  }

  // ---- gradients, outputs, segments ----

  Format FormatOf(const PlanGradient& gradient) {
    return gradient.part == GradientPart::kWhole ? plan().arguments[gradient.argument].format : Format::Plain();
  }

  // Called when an entry's value is there: brings it into the arrays of the gradients that it is. Forward leaves these
  // alone (another step may still reduce them): a gradient that is also one of its values is copied after it.
  void PlaceGradients(int n, int o) {
    const auto found = gradients_of_.find({n, o});
    if (found == gradients_of_.end() || !forward_ended_) return;
    for (const int slot : found->second) {
      PlanGradient& gradient = plan().gradients[slot];
      const PlanArgument& argument = plan().arguments[gradient.argument];
      const int value = ValueOf(n, o);
      const bool is_whole = gradient.part == GradientPart::kWhole;
      const PlanValue array{.name = argument.name + "_gradient",
                            .type = is_whole ? argument.type : plan().values[value].type,
                            .format = FormatOf(gradient),
                            .place = Place::kGradient,
                            .slot = slot};
      if (gradient.req == GradReq::kAdd) {
        const int source = InFormat(value, argument.format);
        const int target = NewValue(array);
        Emit("AddTo", argument.name, {source}, {target},
             MakeAddTo(argument.type.dtype, StorageElements(argument.format, argument.type.shape), argument.format));
      } else if (plan().values[value].format != array.format) {
        EmitReorder(value, NewValue(array));
      } else if (IsMovable(RootOf(value))) {
        MoveToGradient(value, slot);
      } else {
        EmitCopy(value, NewValue(array));
      }
    }
  }
  // Does a call of backward write it into the arena, for nobody but this device?
  bool IsMovable(int root) {
    return root >= forward_values_ && plan().values[root].place == Place::kArena && !exchanged_.contains(root);
  }
  // A head or watched value must be plain and stay in the arena to the end of the program.
  int KeptValue(int value, const std::string& name) {
    CloseFormat(value);
    const PlanValue& v = plan().values[value];
    if (!v.format.is_plain()) {
      value = InFormat(value, Format::Plain());
    } else if (v.place != Place::kArena) {
      value = CopyToArena(value, name);
    }
    kept_.push_back(value);
    return value;
  }

  void EndForward() {
    for (size_t i = 0; i < plan().outputs.size(); ++i) {
      const Entry& head = graph_.outputs[i];
      WithNode(*head.node, [&] { plan().outputs[i].value = KeptValue(ValueOf(head), plan().outputs[i].name); });
    }
    EmitWaiting();
    for (size_t u = 0; u < lowered_.updates.size(); ++u) {
      const int slot = plan().updates[u], next = ValueOf(graph_.outputs[lowered_.updates[u]]);
      const auto& [name, type] = plan().auxiliary[slot];
      Check(plan().values[next].type.shape == type.shape && plan().values[next].type.dtype == type.dtype,
            "the next value of a state is of its type");
      EmitCopy(InFormat(CloseFormat(next), Format::Plain()),
               NewValue({.name = name, .type = type, .place = Place::kAuxiliary, .slot = slot}));
    }
    CutSegment(Phase::kForward, /*keep_empty=*/true);
    forward_ended_ = true;
    forward_values_ = static_cast<int>(plan().values.size());
    for (const auto& [entry, slots] : gradients_of_) {
      if (entry.first >= lowered_.forward_nodes) continue;
      WithNode(*graph_.nodes[entry.first], [&] { PlaceGradients(entry.first, entry.second); });
    }
  }

  void FinishObserved() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = *graph_.nodes[n];
      if (node.is_variable()) continue;
      for (int o = 0; o < node.num_outputs(); ++o) {
        const int value = values_of_[n][o];
        if (!IsObserved(node, o) || plan().values[value].place == Place::kNone ||
            plan().values[value].format.kind == Format::Kind::kOpaque) {
          continue;
        }
        plan().observed.push_back({node.OutputName(o), KeptValue(value, node.OutputName(o))});
      }
    }
  }

  // What devices combine comes when somebody needs it, so that what is ready by then is combined together.
  struct Waiting {
    int node;
    PlanExchange exchange;
  };

  LoweredGraph lowered_;
  const Graph& graph_;
  const bool has_backward_;

  std::vector<bool> open_;                                        // per argument: format not yet decided
  std::map<std::pair<int, int>, std::vector<int>> gradients_of_;  // (node, output) -> gradient slots
  std::vector<std::vector<bool>> read_;                           // per node and output: see NeededOutputs
  std::vector<std::vector<int>> values_of_;                       // per node and output
  RandomKeys random_keys_;
  std::vector<Waiting> waiting_;
  std::unordered_set<int> exchanged_;  // roots of what exchanges read, and what they write
  KeptSoFar kept_so_far_{options_};
  std::vector<int> kept_;  // values alive to the end
  std::optional<std::regex> observe_;
  bool forward_ended_ = false;
  int forward_values_ = 0;  // values of the forward phase
};

}  // namespace

std::shared_ptr<const Program> Compile(const Symbol& symbol, const CompileOptions& options) {
  const LoweredGraph lowered = Lower(symbol, options);
  const auto compile = [&](const LoweredGraph& graph) { return Compiler(graph, options).Run(); };
  const bool has_backward = lowered.forward_nodes < static_cast<int>(lowered.graph.nodes.size());
  return has_backward ? CompileMirrored(lowered, options.mirror, compile) : compile(lowered);
}

}  // namespace bindery
