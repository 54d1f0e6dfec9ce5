#include "executor/compile/join_chains.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "executor/compile/memory_plan.h"
#include "executor/compile/plan_memory.h"
#include "executor/kernel_table.h"
#include "executor/kernels/chain.h"
#include "symbol/op_def.h"

namespace bindery {
namespace {

class Joiner {
 public:
  // `careful`: only what keeps no more alive, at any time.
  Joiner(Program* program, const ChainOptions& options, const ChainKernels& chains, bool careful)
      : program_(*program), plan_(program->plan), options_(options), kernels_(chains), careful_(careful),
        links_(plan_.calls.size()), segments_(plan_.calls.size(), -1), readers_(plan_.values.size()),
        last_uses_(plan_.values.size(), -1), views_(plan_.values.size(), 0), chains_(plan_.calls.size()) {}

  // Was anything joined?
  bool Run() {
    FindNodes();
    for (size_t s = 0; s < plan_.segments.size(); ++s) {
      for (int i = plan_.segments[s].begin; i < plan_.segments[s].end; ++i) {
        segments_[i] = static_cast<int>(s);
        links_[i] = LinkOf(plan_.calls[i]);
      }
    }
    FindReaders();
    for (size_t i = 0; i < links_.size(); ++i) {
      if (links_[i]) Grow(static_cast<int>(i));
    }
    std::vector<bool> done_by_others(links_.size(), false);
    for (size_t i = links_.size(); i-- > 0;) {
      if (done_by_others[i] || chains_[i].size() < 2 || !Join(static_cast<int>(i))) continue;
      for (const int link : chains_[i]) done_by_others[link] = link != static_cast<int>(i);
    }
    return Drop(done_by_others);
  }

 private:
  static constexpr int kOthers = -1;  // who read a value besides calls

  int RootOf(int value) const { return options_.root[value]; }

  // Null where two nodes of one operator and name differ.
  void FindNodes() {
    for (const NodePtr& node : options_.graph.nodes) {
      if (node->is_variable()) continue;
      const auto [found, is_new] = nodes_.try_emplace({node->op().name, node->name()}, node.get());
      if (!is_new && found->second && !(found->second->attrs() == node->attrs())) found->second = nullptr;
    }
  }

  std::optional<KernelSpec> LinkOf(const PlanCall& call) const {
    const auto node = nodes_.find({call.op, call.node});
    if (node == nodes_.end() || !node->second || call.scratch >= 0 || call.outputs.size() != 1) return std::nullopt;
    KernelSpec spec{.device = options_.compile.device,
                    .op = &node->second->op(),
                    .attrs = node->second->attrs(),
                    .node_name = call.node,
                    .who = call.who,
                    .mode = options_.compile.mode,
                    .threads = options_.compile.threads};
    const auto add = [&](int value, std::vector<ValueType>* types) {
      if (value < 0 || !plan_.values[value].format.is_plain()) return false;
      types->push_back(plan_.values[value].type);
      return true;
    };
    for (const int input : call.inputs) {
      if (!add(input, &spec.inputs)) return std::nullopt;
      spec.input_formats.push_back(Format::Plain());
    }
    if (!add(call.outputs[0], &spec.outputs)) return std::nullopt;
    spec.output_used = {true};
    return kernels_.is_link(spec) ? std::optional(std::move(spec)) : std::nullopt;
  }

  void FindReaders() {
    const auto use = [&](int value, size_t at) {
      int& last = last_uses_[RootOf(value)];
      last = std::max(last, static_cast<int>(at));
    };
    const auto read = [&](int value, int by, size_t at) {
      readers_[RootOf(value)].push_back(by);
      use(value, at);
    };
    for (size_t v = 0; v < plan_.values.size(); ++v) ++views_[RootOf(static_cast<int>(v))];
    for (size_t i = 0; i < plan_.calls.size(); ++i) {
      for (const int value : plan_.calls[i].inputs) {
        if (value >= 0) read(value, static_cast<int>(i), i);
      }
      for (const int value : plan_.calls[i].outputs) {
        if (value >= 0) use(value, i);
      }
    }
    for (const PlanSegment& segment : plan_.segments) {
      for (const PlanExchange& e : segment.exchanges) {
        read(e.input, kOthers, static_cast<size_t>(segment.end));
        use(e.output, static_cast<size_t>(segment.end));
      }
    }
    for (const int value : options_.kept) read(value, kOthers, plan_.calls.size());
  }

  // Is the value, which the call `before` gives, read by the chain that ends with `last` alone, so that this may do what
  // the call does?
  bool IsInner(int value, int before, const std::vector<int>& chain, int last) const {
    const PlanValue& v = plan_.values[value];
    const PlanCall &a = plan_.calls[before], &b = plan_.calls[last];
    // Later a state may have moved on.
    const bool reads_state =
        std::ranges::any_of(a.inputs, [&](int in) { return plan_.values[RootOf(in)].place == Place::kAuxiliary; });
    const bool is_own = std::ranges::all_of(
        readers_[value], [&](int reader) { return std::ranges::find(chain, reader) != chain.end(); });
    return v.place == Place::kArena && RootOf(value) == value && views_[value] == 1 && is_own &&
           segments_[before] == segments_[last] && a.again == b.again && !reads_state &&
           v.type.shape == plan_.values[b.outputs[0]].type.shape;
  }

  // The chain that ends with this call, with those that end with what it reads as far as it is not too long.
  void Grow(int i) {
    chains_[i] = {i};
    while (Absorb(i)) {
    }
    writers_[plan_.calls[i].outputs[0]] = i;
  }
  bool Absorb(int i) {
    std::vector<int>& chain = chains_[i];
    for (const int input : InputsOf(chain)) {
      const auto before = writers_.find(input);
      if (before == writers_.end() || !IsInner(input, before->second, chain, i)) continue;
      std::vector<int> all = chain;
      all.insert(all.end(), chains_[before->second].begin(), chains_[before->second].end());
      std::ranges::sort(all);
      if (all.size() > kMaxChainLinks || InputsOf(all).size() > kMaxChainInputs) continue;
      if (careful_ && !KeepsNoMore(all)) continue;
      chain = std::move(all);
      return true;
    }
    return false;
  }

  // Between any two calls: what of the arena is alive for the chain's last link alone is no more than the inner values
  // that are alive there without the chain. It is enough to look where a value ends.
  bool KeepsNoMore(const std::vector<int>& chain) const {
    const int first = chain.front(), last = chain.back();
    std::set<int> operands;  // their roots
    for (const int input : InputsOf(chain)) {
      if (plan_.values[RootOf(input)].place == Place::kArena) operands.insert(RootOf(input));
    }
    const auto bytes = [&](int value) {
      return (plan_.values[value].bytes() + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    };
    const auto keeps_no_more = [&](int call) {  // behind it
      if (call < first || call >= last) return true;
      int64_t kept = 0, saved = 0;
      for (const int root : operands) kept += last_uses_[root] <= call ? bytes(root) : 0;
      for (const int link : chain) {
        const int value = plan_.calls[link].outputs[0];
        saved += link <= call && last_uses_[value] > call ? bytes(value) : 0;
      }
      return kept <= saved;
    };
    return std::ranges::all_of(operands, [&](int root) { return keeps_no_more(last_uses_[root]); }) &&
           std::ranges::all_of(chain,
                               [&](int link) { return keeps_no_more(last_uses_[plan_.calls[link].outputs[0]]); });
  }

  // What a chain reads of others, in order.
  std::vector<int> InputsOf(const std::vector<int>& chain) const {
    std::vector<int> inputs;
    for (const int link : chain) {
      for (const int input : plan_.calls[link].inputs) {
        const bool is_own =
            std::ranges::any_of(chain, [&](int other) { return plan_.calls[other].outputs[0] == input; });
        if (!is_own && std::ranges::find(inputs, input) == inputs.end()) inputs.push_back(input);
      }
    }
    return inputs;
  }

  bool Join(int last) {
    const std::vector<int>& chain = chains_[last];
    std::vector<int> inputs = InputsOf(chain), values = inputs;
    ChainSpec spec;
    for (const int input : inputs) spec.inputs.push_back(plan_.values[input].type);
    for (const int link : chain) {
      std::vector<int> operands;
      for (const int input : plan_.calls[link].inputs) {
        operands.push_back(static_cast<int>(std::ranges::find(values, input) - values.begin()));
      }
      spec.links.push_back({*links_[link], std::move(operands)});
      values.push_back(plan_.calls[link].outputs[0]);
    }
    MaybeKernel kernel = kernels_.make(spec);
    if (!kernel) return false;
    std::string operators, nodes;
    const std::string* before = nullptr;
    for (const int link : chain) {
      const PlanCall& joined = plan_.calls[link];
      operators += (operators.empty() ? "" : "+") + joined.op;
      if (!before || *before != joined.node) nodes += (nodes.empty() ? "" : "+") + joined.node;
      before = &joined.node;
    }
    PlanCall& call = plan_.calls[last];
    call.op = std::move(operators);
    call.node = std::move(nodes);
    call.who.clear();
    call.implementation = kernel->implementation;
    call.inputs = std::move(inputs);
    call.threads = kernel->threads;
    program_.kernels[last] = *std::move(kernel);
    return true;
  }

  bool Drop(const std::vector<bool>& dropped) {
    if (std::ranges::find(dropped, true) == dropped.end()) return false;
    std::vector<int> before = {0};  // per call, and at the end: how many of those before it stay
    for (const bool drops : dropped) before.push_back(before.back() + !drops);
    for (PlanSegment& segment : plan_.segments) {
      segment.begin = before[segment.begin];
      segment.end = before[segment.end];
    }
    for (size_t i = 0; i < dropped.size(); ++i) {
      if (dropped[i]) continue;
      const int to = before[i];
      if (plan_.calls[i].scratch >= 0) {
        PlanStorage& scratch = plan_.storages[plan_.calls[i].scratch];
        scratch.first = scratch.last = to;
      }
      if (to == static_cast<int>(i)) continue;
      plan_.calls[to] = std::move(plan_.calls[i]);
      program_.kernels[to] = std::move(program_.kernels[i]);
    }
    plan_.calls.resize(before.back());
    program_.kernels.resize(before.back());
    return true;
  }

  Program& program_;
  Plan& plan_;
  const ChainOptions& options_;
  const ChainKernels& kernels_;
  const bool careful_;
  std::map<std::pair<std::string, std::string>, const Node*> nodes_;  // by operator and name
  std::vector<std::optional<KernelSpec>> links_;                      // per call that may be one
  std::vector<int> segments_;                                         // per call
  std::vector<std::vector<int>> readers_;                             // per root: the calls that read it, kOthers
  std::vector<int> last_uses_;                                        // per root: the last call that touches it
  std::vector<int> views_;                                            // per root: values in its memory
  std::map<int, int> writers_;                                        // of values, the links so far
  std::vector<std::vector<int>> chains_;                              // per link: those it ends, in order
};

}  // namespace

void PlanMemoryWithChains(Program* program, const ChainOptions& options) {
  const CompileOptions& compile = options.compile;
  const auto plan_memory = [&](Program* of) {
    PlanMemory(of, {.root = options.root,
                    .kept = options.kept,
                    .inplace = compile.switches.inplace,
                    .reuse = compile.switches.reuse_memory});
  };
  const auto tables = KernelTables(compile.device, compile.switches.policy);
  const ChainKernels* const chains = tables.empty() ? nullptr : tables.front()->chains();
  // Whoever observes values wants all of them.
  if (!compile.switches.fusion || !compile.observe.empty() || !chains || !chains->are_there())
    return plan_memory(program);
  const Program before = *program;
  plan_memory(program);
  for (const bool careful : {false, true}) {
    Program joined = before;
    if (!Joiner(&joined, options, *chains, careful).Run()) return;
    plan_memory(&joined);
    if (joined.plan.arena_bytes > program->plan.arena_bytes) continue;
    *program = std::move(joined);
    return;
  }
}

}  // namespace bindery
