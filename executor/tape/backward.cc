#include <algorithm>
#include <utility>

#include "base/error.h"
#include "executor/tape/backward_program.h"
#include "executor/tape/compute.h"
#include "executor/tape/tape.h"

namespace bindery {
namespace {

using namespace tape;

void CheckHeads(const std::vector<NDArray>& heads, const BackwardOptions& options) {
  if (heads.empty()) throw Error("Backward: no heads");
  if (!options.head_gradients.empty() && options.head_gradients.size() != heads.size()) {
    Throw("Backward: expected {} head gradients, one per head, got {}", heads.size(), options.head_gradients.size());
  }
  for (size_t h = 0; h < heads.size(); ++h) {
    if (!heads[h].defined()) Throw("Backward: head {} is an empty array", h);
    if (!heads[h].state()->node) {
      Throw("Backward: nothing was recorded for head {}: compute it in a RecordScope, from arrays with AttachGradient",
            h);
    }
    const std::string& name = heads[h].state()->node->unit->name;
    if (heads[h].device() != heads[0].device()) {
      Throw("Backward: heads of different devices, {} and {}; call it for each", heads[0].device(), heads[h].device());
    }
    if (options.head_gradients.empty() || !options.head_gradients[h].defined()) continue;
    const NDArray& gradient = options.head_gradients[h];
    if (gradient.shape() != heads[h].shape() || gradient.dtype() != heads[h].dtype()) {
      Throw<ShapeError>("Backward: gradient of {}, head {}: expected {} {}, got {} {}", name, h, heads[h].dtype(),
                        heads[h].shape(), gradient.dtype(), gradient.shape());
    }
    if (gradient.device() != heads[h].device()) {
      Throw("Backward: the gradient of {}, head {}, lies on {}, the head on {}", name, h, gradient.device(),
            heads[h].device());
    }
  }
}

// Values that the program reads, as they were recorded.
class Values {
 public:
  Values(const RecordedGraph& graph, const std::vector<NDArray>& heads, const BackwardOptions& options)
      : graph_(graph), heads_(heads), options_(options) {}

  Tensor Get(const BackwardSource& source) const {
    if (source.kind == BackwardSource::Kind::kHeadGradient) return HeadGradient(source.index);
    const TapeNode& node = *graph_.nodes[source.node];
    const bool is_input = source.kind == BackwardSource::Kind::kInput;
    const Recorded& value = is_input ? node.inputs[source.index].value : node.results[source.index];
    // Training forwards move states themselves, and do not compute by them.
    const bool may_change = is_input && node.unit->is_auxiliary[source.index] && node.unit->mode == Mode::kTrain;
    if (!may_change && value.has_changed()) {
      Throw(
          "Backward: {} {} of {} was changed in place after it was recorded, and its value is needed; do that after "
          "Backward, or on a copy",
          is_input ? "input" : "result", source.index, node.unit->name);
    }
    return Aligned(value.tensor);
  }

 private:
  Tensor HeadGradient(int head) const {
    if (!options_.head_gradients.empty() && options_.head_gradients[head].defined()) {
      return Aligned(options_.head_gradients[head].tensor());
    }
    const Tensor& like = heads_[head].tensor();
    const Tensor ones(like.engine(), like.device(), like.dtype(), like.shape());
    ones.Fill(1);
    return ones;
  }

  const RecordedGraph& graph_;
  const std::vector<NDArray>& heads_;
  const BackwardOptions& options_;
};

// What losses divide by that divide by the batch.
int64_t BatchSize(const RecordedGraph& graph, const BackwardOptions& options) {
  if (options.batch_size < 0) Throw("Backward: expected a batch size of 0 or more, got {}", options.batch_size);
  if (options.batch_size > 0) return options.batch_size;
  const std::vector<TapeNode::Input>& inputs = graph.nodes[graph.heads[0].first]->inputs;
  const Shape& shape = inputs[0].value.tensor.shape();  // it was recorded, so it has inputs
  return shape.rank() > 0 ? std::max<int64_t>(1, shape[0]) : 1;
}

}  // namespace

void Backward(const std::vector<NDArray>& heads, const BackwardOptions& options) {
  CheckHeads(heads, options);
  const RecordedGraph graph(heads);
  Runtime& runtime = *heads[0].state()->runtime;
  const Device device = heads[0].device();
  const int threads = runtime.ThreadsOf(device);
  const std::shared_ptr<const BackwardProgram> made = runtime.FindBackward(
      graph.Key(device.kind, threads), [&] { return MakeBackwardProgram(graph, device.kind, threads); });

  RunOptions run{.name = "Backward", .device = device, .step = {.batch_size = BatchSize(graph, options)}};
  const Values values(graph, heads, options);
  for (const BackwardSource& source : made->arguments) run.arguments.push_back(values.Get(source));
  for (const BackwardSource& source : made->auxiliary) {  // computed again: the state has moved when it was recorded
    const Tensor state = values.Get(source), copy(state.engine(), device, state.dtype(), state.shape());
    copy.CopyFrom(state);
    run.auxiliary.push_back(copy);
  }
  run.into.resize(made->program.results.size());
  for (size_t s = 0; s < graph.sources.size(); ++s) {
    const GradientSlot& slot = *graph.sources[s].slot;
    if (made->results[s] < 0 || graph.sources[s].is_added()) continue;
    const bool is_read = std::ranges::any_of(
        run.arguments, [&](const Tensor& argument) { return argument.var() == slot.gradient.var(); });
    if (!is_read) run.into[made->results[s]] = slot.gradient;
  }
  std::vector<Tensor> results;
  if (!made->program.results.empty()) results = runtime.Run(made->program, std::move(run));
  for (size_t s = 0; s < graph.sources.size(); ++s) {
    const GradientSlot& slot = *graph.sources[s].slot;
    const bool is_added = graph.sources[s].is_added();
    if (made->results[s] < 0) {
      if (!is_added) slot.gradient.Fill(0);
      continue;
    }
    const Tensor& result = results[made->results[s]];
    if (is_added) {  // not in place: what failed is to fail the gradient
      const PauseScope pause;
      slot.gradient.CopyFrom((NewArray(slot.gradient) + NewArray(result)).tensor());
    } else if (result.address() != slot.gradient.address()) {
      slot.gradient.CopyFrom(result);
    }
  }
  if (options.retain) return;
  for (const std::shared_ptr<TapeNode>& node : graph.nodes) {
    node->is_used_up = true;
    node->Release();
  }
}

}  // namespace bindery
