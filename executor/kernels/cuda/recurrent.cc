// Recurrent layers: by one kernel that goes through all steps; or, of many units, by a library's product of states and
// weights in each step, where it can be had, and one kernel between two of them.
#include "symbol/ops/recurrent.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "base/checked.h"
#include "engine/cuda/cublaslt_api.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/cuda/library_product.h"
#include "executor/kernels/cuda/recurrent_args.h"
#include "executor/kernels/rules.h"

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

// Not measured: with fewer units a block multiplies by the weights itself, which saves two launches in each step.
constexpr int64_t kUnitsForLibrary = 64;

// A layer whose products are a library's: what of them does not depend on the pass, and where its numbers are in scratch.
struct StepByStep {
  RecurrentShape shape;
  DType dtype, value;
  int64_t states = 0, weights = 0;                         // numbers
  int64_t place[3] = {}, products = 0, copy = 0, end = 0;  // in bytes: of states, products, weights of the value's type

  static std::optional<StepByStep> Of(const RecurrentShape& shape, DType dtype) {
    const int64_t row = CheckedMul(shape.gates, shape.hidden), most = std::numeric_limits<int32_t>::max();
    if (shape.hidden < kUnitsForLibrary || shape.steps < 1 || shape.samples < 1) return std::nullopt;
    if (std::max(row, shape.samples) > most || !IsFloat(dtype) || !CublasLt()) return std::nullopt;
    StepByStep layer{.shape = shape, .dtype = dtype, .value = ValueOf(dtype)};
    layer.states = CheckedMul(shape.samples, shape.hidden);
    layer.weights = CheckedMul(row, shape.hidden);
    const auto take = [&](int64_t numbers) {
      const int64_t at = layer.end;
      layer.end = RoundUp(CheckedAdd(at, CheckedMul(numbers, SizeOf(layer.value))), 64);
      return at;
    };
    for (int64_t& at : layer.place) at = take(layer.states);
    layer.products = take(CheckedMul(shape.samples, row));
    layer.copy = dtype == layer.value ? 0 : take(layer.weights);
    return layer;
  }

  // (samples, n) = (samples, k) by weights. Of 16 bits, products of what TF32 has of them lose nothing of weights, and of
  // states no more than their own type would.
  PlainProduct Product(int64_t n, int64_t k) const {
    return {.m = shape.samples,
            .n = n,
            .k = k,
            .dtype = value,
            .out = value,
            .tf32 = value == DType::kFloat32 && (dtype != value || Tf32IsUsed())};
  }
  bool resets_before() const { return shape.gru && !shape.reset_after; }
  int64_t row() const { return shape.gates * shape.hidden; }  // of products
  // Of the gates whose products are of states alone.
  int64_t first() const { return (resets_before() ? 2 : shape.gates) * shape.hidden; }
  int64_t At(int64_t numbers) const { return numbers * SizeOf(value); }  // bytes

  int64_t ScratchBytes() const { return CheckedAdd(end, WorkspaceBytes(Product(row(), shape.hidden))); }
  void* Workspace(const Launches& launches) const { return WorkspaceIn(launches, end); }
  // Of the type that is computed with.
  const char* Weights(Launches& launches, Source weight) const {
    if (dtype == value) return static_cast<const char*>(weight.data);
    launches.Cast(weight, {launches.scratch(copy), value}, weights);
    return launches.scratch(copy);
  }
};

// Of the products of a step: of the first gates, or all; and of the third, where it has one of its own.
struct StepPlans {
  std::shared_ptr<const LibraryProduct> first, third = {};

  // Nullopt: the library has no algorithm for one of them.
  static std::optional<StepPlans> Of(Launches& launches, const StepByStep& layer, const PlainProduct& first,
                                     const PlainProduct& third) {
    StepPlans plans{.first = PlanOf(launches, first)};
    if (layer.resets_before()) plans.third = PlanOf(launches, third);
    return plans.first && (plans.third || !layer.resets_before()) ? std::optional(plans) : std::nullopt;
  }
};

// False, and nothing is added: the library cannot do it.
bool AddSteps(Launches& launches, const StepByStep& layer, const RecurrentArgs& args) {
  const int64_t hidden = layer.shape.hidden, row = layer.row();
  PlainProduct first = layer.Product(layer.first(), hidden), third = layer.Product(hidden, hidden);
  first.transpose_b = third.transpose_b = true;
  first.c.row = third.c.row = row;
  third.b.BeginAt(2 * hidden * hidden, SizeOf(layer.value));
  third.c.BeginAt(2 * hidden, SizeOf(layer.value));
  const std::optional<StepPlans> plans = StepPlans::Of(launches, layer, first, third);
  if (!plans) return false;
  RecurrentStepArgs step{.layer = args,
                         .h = launches.scratch(layer.place[0]),
                         .c = launches.scratch(layer.place[1]),
                         .left = launches.scratch(layer.place[2]),
                         .products = launches.scratch(layer.products)};
  const char* const weight = layer.Weights(launches, args.weight);
  const auto add = [&](RecurrentPhase phase) {
    step.phase = phase;
    launches.Add(step, layer.states);
  };
  step.faults = args.faults;
  add(RecurrentPhase::kBegin);
  step.faults = {};
  for (; step.step < layer.shape.steps; ++step.step) {
    AddPlan(launches, plans->first, step.h, weight, step.products, layer.Workspace(launches));
    if (plans->third) {
      add(RecurrentPhase::kReset);
      AddPlan(launches, plans->third, step.left, weight + layer.At(2 * hidden * hidden),
              static_cast<char*>(step.products) + layer.At(2 * hidden), layer.Workspace(launches));
    }
    add(RecurrentPhase::kStep);
  }
  return true;
}
bool AddSteps(Launches& launches, const StepByStep& layer, const RecurrentGradArgs& args) {
  const int64_t hidden = layer.shape.hidden, row = layer.row();
  PlainProduct first = layer.Product(hidden, layer.first()), third = layer.Product(hidden, hidden);
  first.a.row = third.a.row = row;
  third.a.BeginAt(2 * hidden, SizeOf(layer.value));
  third.b.BeginAt(2 * hidden * hidden, SizeOf(layer.value));
  const std::optional<StepPlans> plans = StepPlans::Of(launches, layer, first, third);
  if (!plans) return false;
  RecurrentStepGradArgs step{.layer = args,
                             .dh = launches.scratch(layer.place[0]),
                             .dc = launches.scratch(layer.place[1]),
                             .through = launches.scratch(layer.place[2]),
                             .d = launches.scratch(layer.products)};
  const char* const weight = layer.Weights(launches, args.weight);
  const auto add = [&](RecurrentPhase phase) {
    step.phase = phase;
    launches.Add(step, layer.states);
  };
  add(RecurrentPhase::kBegin);
  for (step.step = layer.shape.steps - 1; step.step >= 0; --step.step) {
    add(RecurrentPhase::kStep);
    if (plans->third) {
      AddPlan(launches, plans->third, static_cast<char*>(step.d) + layer.At(2 * hidden),
              weight + layer.At(2 * hidden * hidden), step.through, layer.Workspace(launches));
      add(RecurrentPhase::kReset);
    }
    AddPlan(launches, plans->first, step.d, weight, step.through, layer.Workspace(launches));
  }
  add(RecurrentPhase::kEnd);
  return true;
}

// By the library's products, or by one kernel, whose scratch is so many numbers of each sample. `args_of` binds.
template <class ArgsOf>
Kernel Layer(const KernelSpec& spec, const RecurrentShape& shape, int64_t numbers, const ArgsOf& args_of) {
  const DType dtype = spec.inputs[0].dtype;
  const std::optional<StepByStep> steps = StepByStep::Of(shape, dtype);
  Kernel kernel = OwnKernel(
      spec,
      [=](Launches& launches) {
        const auto args = args_of(launches);
        if (!steps || !AddSteps(launches, *steps, args)) launches.Add(args, shape.samples * kThreads);
      },
      steps ? "cublaslt" : "own");
  kernel.scratch_bytes = std::max(CheckedMul(CheckedMul(shape.samples, numbers), SizeOf(ValueOf(dtype))),
                                  steps ? steps->ScratchBytes() : 0);
  return kernel;
}

// data, weight [, bias] [, peephole] [, initial state] [, initial cell] [, lengths]
MaybeKernel MakeRecurrent(const KernelSpec& spec) {
  const RecurrentShape shape = ShapeOf(spec, spec.inputs[0].shape);
  return Layer(spec, shape, 4 * shape.hidden, [shape](const Launches& launches) {
    RecurrentArgs args{.shape = shape, .scratch = launches.scratch()};
    launches.Read({&args.data, &args.weight, &args.bias, &args.peephole, &args.state, &args.cell, &args.lengths});
    launches.Write({&args.y, &args.last, &args.last_cell, &args.previous, &args.saved, &args.previous_cell});
    if (args.lengths.data) args.faults = launches.faults();
    return args;
  });
}

// dy, d state [, d cell], weight [, peephole] [, lengths], previous, saved [, previous cell]
MaybeKernel MakeRecurrentGrad(const KernelSpec& spec) {
  const RecurrentShape shape = ShapeOf(spec, spec.outputs[0].shape);
  return Layer(spec, shape, (3 + shape.gates) * shape.hidden, [shape](const Launches& launches) {
    RecurrentGradArgs args{.shape = shape, .scratch = launches.scratch()};
    launches.Read({&args.dy, &args.d_last, &args.d_last_cell, &args.weight, &args.peephole, &args.lengths,
                   &args.previous, &args.saved, &args.previous_cell});
    launches.Write({&args.dx, &args.d_state, &args.d_cell, &args.d_product});
    return args;
  });
}

constexpr KernelEntry kEntries[] = {
    {"Recurrent", OfFloats<MakeRecurrent>},
    {"RecurrentGrad", OfFloats<MakeRecurrentGrad>},
};

}  // namespace

KernelRows RecurrentKernels() { return kEntries; }

}  // namespace bindery::cuda
