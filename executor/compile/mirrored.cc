#include "executor/compile/mirrored.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>

#include "base/error.h"
#include "symbol/passes/recompute.h"

namespace bindery {
namespace {

using ProgramPtr = std::shared_ptr<const Program>;

constexpr int kLooks = 12;  // for the least, over all that can be computed again

LoweredGraph WithAgain(const LoweredGraph& lowered, std::span<const int> nodes) {
  if (nodes.empty()) return lowered;
  LoweredGraph result = lowered;
  Recomputed again = Recompute(lowered.graph, lowered.types, lowered.forward_nodes, nodes);
  result.graph = std::move(again.graph);
  result.again = std::move(again.of);
  GivenTypes given;
  result.variables.clear();
  for (const NodePtr& node : result.graph.nodes) {
    if (!node->is_variable()) {
      result.variables.emplace_back();
      continue;
    }
    const auto before = static_cast<size_t>(lowered.graph.IndexOf(node));
    const ValueType& type = lowered.types[before][0];
    given.shapes[node->name()] = type.shape;
    given.dtypes[node->name()] = type.dtype;
    given.batch_axes[node->name()] = type.batch_axis;
    result.variables.push_back(lowered.variables[before]);
  }
  result.types = InferTypes(result.graph, given.shapes, given.dtypes, given.batch_axes, lowered.batch);
  return result;
}

class Search {
 public:
  Search(const LoweredGraph& lowered, const std::function<ProgramPtr(const LoweredGraph&)>& compile)
      : lowered_(lowered), compile_(compile),
        steps_(StepsToRecompute(lowered.graph, lowered.types, lowered.forward_nodes)) {}

  int forced() const { return steps_.forced; }
  int most() const { return static_cast<int>(steps_.ends.size()); }

  // With the first `steps`.
  const ProgramPtr& With(int steps) {
    ProgramPtr& program = programs_[steps];
    if (!program) {
      const int nodes = steps == 0 ? 0 : steps_.ends[static_cast<size_t>(steps) - 1];
      program = compile_(WithAgain(lowered_, std::span(steps_.nodes).first(static_cast<size_t>(nodes))));
    }
    return program;
  }
  int64_t BytesWith(int steps) { return With(steps)->plan.arena_bytes; }

  // The fewest that keep `limit`: more may keep more alive while they are computed, so what is found by halves is the
  // fewest but for that.
  int Fewest(int enough, int64_t limit) {
    int too_few = forced();
    while (enough - too_few > 1) {
      const int middle = too_few + (enough - too_few) / 2;
      (BytesWith(middle) <= limit ? enough : too_few) = middle;
    }
    return enough;
  }

  int Least() {
    int least = forced();
    for (int i = 1; i <= kLooks; ++i) {
      const int steps = forced() + static_cast<int>(int64_t{most() - forced()} * i / kLooks);
      if (BytesWith(steps) < BytesWith(least)) least = steps;
    }
    return least;
  }

 private:
  const LoweredGraph& lowered_;
  const std::function<ProgramPtr(const LoweredGraph&)>& compile_;
  const RecomputeSteps steps_;
  std::map<int, ProgramPtr> programs_;
};

}  // namespace

ProgramPtr CompileMirrored(const LoweredGraph& lowered, const Mirror& mirror,
                           const std::function<ProgramPtr(const LoweredGraph&)>& compile) {
  CheckMirror(mirror);
  if (!mirror.IsOn() && !DemandsRecomputation(lowered.graph)) return compile(lowered);
  if (mirror.bytes == Mirror::kAutomatic) {
    Throw("mirror: how many bytes there are is found out by whoever trains (TrainerOptions, TrainedModelOptions)");
  }
  Search search(lowered, compile);
  if (mirror.least) return search.With(search.Least());
  int64_t limit = mirror.bytes > 0 ? mirror.bytes : std::numeric_limits<int64_t>::max();
  if (mirror.share < 1) {
    limit = std::min(limit, static_cast<int64_t>(mirror.share * static_cast<double>(search.BytesWith(0))));
  }
  if (search.BytesWith(search.forced()) <= limit) return search.With(search.forced());
  int enough = search.most();
  if (search.BytesWith(enough) > limit) enough = search.Least();
  if (search.BytesWith(enough) > limit) {
    Throw<DeviceError>(
        "mirror: {} bytes of working memory are too few: {} without computing anything again, {} at least with it",
        limit, search.BytesWith(0), search.BytesWith(enough));
  }
  return search.With(search.Fewest(enough, limit));
}

}  // namespace bindery
