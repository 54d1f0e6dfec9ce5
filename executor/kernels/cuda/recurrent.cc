// Recurrent layers.
#include "symbol/ops/recurrent.h"

#include <algorithm>

#include "executor/kernel_table.h"
#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/cuda/recurrent_args.h"

namespace bindery::cuda {
namespace {

constexpr int64_t kThreads = 256;

RecurrentShape ShapeOf(const KernelSpec& spec, const Shape& data) {
  const auto& attrs = spec.attributes<RecurrentAttrs>();
  const RecurrentForm form = FormOf(attrs, data);
  RecurrentShape shape{.steps = form.steps,
                       .samples = form.samples,
                       .hidden = form.hidden,
                       .gates = form.gates,
                       .saved = form.saved,
                       .next_step = form.next_step,
                       .next_sample = form.next_sample,
                       .lstm = attrs.cell == RecurrentCell::kLstm,
                       .gru = attrs.cell == RecurrentCell::kGru,
                       .tanh = attrs.cell == RecurrentCell::kTanh,
                       .reverse = attrs.reverse,
                       .reset_after = attrs.reset_after,
                       .coupled = attrs.coupled,
                       .clip = attrs.clip};
  std::ranges::copy(form.place, shape.place);
  std::ranges::copy(form.peephole, shape.peephole_place);
  return shape;
}

// Where the slots of an operator are among the inputs, or outputs, of a node; -1: it has none.
std::vector<int> PlacesOf(const Slots& slots, const AnyAttrs& attrs, int count) {
  std::vector<int> places;
  for (int i = 0; i < count; ++i) places.push_back(slots.Place(attrs, i));
  return places;
}
std::function<Source(int)> InputsOf(const Launches& launches, std::vector<int> places) {
  return [&launches, places = std::move(places)](int slot) {
    const int place = places[static_cast<size_t>(slot)];
    return place < 0 ? Source() : launches.in(static_cast<size_t>(place));
  };
}
std::function<Target(int)> OutputsOf(const Launches& launches, std::vector<int> places) {
  return [&launches, places = std::move(places)](int slot) {
    const int place = places[static_cast<size_t>(slot)];
    return place < 0 ? Target() : launches.out(static_cast<size_t>(place));
  };
}
int64_t SizeOfValue(DType dtype) { return dtype == DType::kFloat64 ? 8 : 4; }

// data, weight [, bias] [, peephole] [, initial state] [, initial cell] [, lengths]
MaybeKernel MakeRecurrent(const KernelSpec& spec) {
  const RecurrentShape shape = ShapeOf(spec, spec.inputs[0].shape);
  Kernel kernel = OwnKernel(spec, [shape, ins = PlacesOf(spec.op->inputs, spec.attrs, 7),
                                   outs = PlacesOf(spec.op->outputs, spec.attrs, 6)](Launches& launches) {
    const auto in = InputsOf(launches, ins);
    const auto out = OutputsOf(launches, outs);
    launches.Add(RecurrentArgs{.shape = shape,
                               .data = in(0),
                               .weight = in(1),
                               .bias = in(2),
                               .peephole = in(3),
                               .state = in(4),
                               .cell = in(5),
                               .lengths = in(6),
                               .y = out(0),
                               .last = out(1),
                               .last_cell = out(2),
                               .previous = out(3),
                               .saved = out(4),
                               .previous_cell = out(5),
                               .scratch = launches.scratch()},
                 shape.samples * kThreads);
  });
  kernel.scratch_bytes = shape.samples * 4 * shape.hidden * SizeOfValue(spec.inputs[0].dtype);
  return kernel;
}

// dy, d state [, d cell], weight [, peephole] [, lengths], previous, saved [, previous cell]
MaybeKernel MakeRecurrentGrad(const KernelSpec& spec) {
  const RecurrentShape shape = ShapeOf(spec, spec.outputs[0].shape);
  Kernel kernel = OwnKernel(spec, [shape, ins = PlacesOf(spec.op->inputs, spec.attrs, 9),
                                   outs = PlacesOf(spec.op->outputs, spec.attrs, 4)](Launches& launches) {
    const auto in = InputsOf(launches, ins);
    const auto out = OutputsOf(launches, outs);
    launches.Add(RecurrentGradArgs{.shape = shape,
                                   .dy = in(0),
                                   .d_last = in(1),
                                   .d_last_cell = in(2),
                                   .weight = in(3),
                                   .peephole = in(4),
                                   .lengths = in(5),
                                   .previous = in(6),
                                   .saved = in(7),
                                   .previous_cell = in(8),
                                   .dx = out(0),
                                   .d_state = out(1),
                                   .d_cell = out(2),
                                   .d_product = out(3),
                                   .scratch = launches.scratch()},
                 shape.samples * kThreads);
  });
  kernel.scratch_bytes = shape.samples * (4 + shape.gates) * shape.hidden * SizeOfValue(spec.inputs[0].dtype);
  return kernel;
}

constexpr KernelEntry kEntries[] = {
    {"Recurrent", MakeRecurrent},
    {"RecurrentGrad", MakeRecurrentGrad},
};

}  // namespace

KernelRows RecurrentKernels() { return kEntries; }

}  // namespace bindery::cuda
