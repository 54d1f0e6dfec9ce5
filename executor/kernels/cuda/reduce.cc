// Reductions and metrics' measures.
#include "symbol/ops/reduce.h"

#include "executor/kernel_table.h"
#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/cuda/reduction.h"
#include "executor/kernels/rules.h"
#include "symbol/ops/measure.h"

namespace bindery::cuda {
namespace {

constexpr int64_t kOneBlock = 256;

// Output 0 from input 0, of which the axes in the mask are reduced.
Kernel Reduce(const KernelSpec& spec, Reduction what, uint32_t reduced) {
  const Shape& data = spec.inputs[0].shape;
  const Strides plain = PlainStrides(data);
  ReduceArgs args{.what = what};
  for (int axis = 0; axis < data.rank(); ++axis) {
    Grid& grid = reduced >> axis & 1u ? args.each : args.row;
    Strides& strides = reduced >> axis & 1u ? args.each_strides : args.row_strides;
    grid.extents[grid.rank] = data[axis];
    strides.of[grid.rank++] = plain.of[axis];
    grid.n *= data[axis];
  }
  JoinAxes(&args.row, {&args.row_strides});
  JoinAxes(&args.each, {&args.each_strides});
  const int last = args.each.rank - 1;
  args.rows = RowsOf(args.row.n, args.each.n, last < 0 ? 1 : args.each_strides.of[last]);
  const DType dtype = spec.inputs[0].dtype;
  args.in_double = !IsFloat(dtype) && (what == Reduction::kMean || what == Reduction::kL2Norm);
  SplitRows(&args);
  Kernel kernel = OwnKernel(spec, [args](Launches& launches) mutable {
    args.in = launches.in(0);
    args.out = launches.out(0);
    AddReduction(launches, args, launches.scratch());
  });
  kernel.scratch_bytes = ScratchOf(args);
  return kernel;
}

template <Reduction kWhat>
MaybeKernel MakeReduce(const KernelSpec& spec) {
  if (kWhat == Reduction::kLogSumExp && !IsFloat(spec.inputs[0].dtype)) return std::nullopt;
  return Reduce(spec, kWhat, ReducedAxes(spec.attributes<ReduceAttrs>(), spec.inputs[0].shape));
}

// The elements that were repeated when the output's shape was stretched to data's are added.
MaybeKernel MakeSumTo(const KernelSpec& spec) {
  const Shape& data = spec.inputs[0].shape;
  const Strides kept = StretchedStrides(spec.outputs[0].shape, data);
  uint32_t reduced = 0;
  for (int axis = 0; axis < data.rank(); ++axis) {
    const int own = axis - data.rank() + spec.outputs[0].shape.rank();
    if (own < 0 || (kept.of[axis] == 0 && data[axis] != 1)) reduced |= 1u << axis;
  }
  return Reduce(spec, Reduction::kSum, reduced);
}

Kernel Along(const KernelSpec& spec, Measure what, int64_t axis, bool last) {
  const AxisView view = ViewAlong(spec.inputs[0].shape, static_cast<int>(axis));
  MeasureArgs args{.what = what, .last = last, .axis = view.axis, .inner = view.inner};
  args.rows = RowsOf(view.outer * view.inner, view.axis, view.inner);
  SplitRows(&args, view.axis);
  Kernel kernel = OwnKernel(spec, [args, has_place = spec.inputs.size() > 1](Launches& launches) mutable {
    args.in = launches.in(0);
    if (has_place) args.place = launches.in(1);
    args.out = static_cast<int64_t*>(launches.out(0).data);
    AddParts(launches, args);
  });
  kernel.scratch_bytes = ScratchOfParts(args);
  return kernel;
}
template <Measure kWhat>
MaybeKernel MakeArg(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ArgAttrs>();
  return Along(spec, kWhat, attrs.axis, attrs.select_last_index);
}
MaybeKernel MakeRankOf(const KernelSpec& spec) {
  return Along(spec, Measure::kRankOf, spec.attributes<PlaceAttrs>().axis, false);
}

MaybeKernel MakeSumExactly(const KernelSpec& spec) {
  return OwnKernel(spec, [n = spec.inputs[0].shape.Elements()](Launches& launches) {
    launches.Add(SumExactlyArgs{.in = launches.in(0), .n = n, .out = static_cast<double*>(launches.out(0).data)},
                 kOneBlock);
  });
}

MaybeKernel MakeFirstOutside(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<FirstOutsideAttrs>();
  FirstOutsideArgs args{.n = spec.inputs[0].shape.Elements(),
                        .low = attrs.low,
                        .high = attrs.high,
                        .ignore = attrs.ignore,
                        .whole = attrs.whole,
                        .use_ignore = attrs.use_ignore};
  return OwnKernel(spec, [args](Launches& launches) mutable {
    args.in = launches.in(0);
    args.out = static_cast<double*>(launches.out(0).data);
    launches.Add(args, kOneBlock);
  });
}

constexpr KernelEntry kEntries[] = {
    {"Sum", MakeReduce<Reduction::kSum>},
    {"Mean", MakeReduce<Reduction::kMean>},
    {"Max", MakeReduce<Reduction::kMax>},
    {"Min", MakeReduce<Reduction::kMin>},
    {"Prod", MakeReduce<Reduction::kProd>},
    {"L1Norm", MakeReduce<Reduction::kL1Norm>},
    {"L2Norm", MakeReduce<Reduction::kL2Norm>},
    {"SumSquare", MakeReduce<Reduction::kSumSquare>},
    {"LogSumExp", MakeReduce<Reduction::kLogSumExp>},
    {"SumTo", MakeSumTo},
    {"ArgMax", MakeArg<Measure::kArgMax>},
    {"ArgMin", MakeArg<Measure::kArgMin>},
    {"RankOf", MakeRankOf},
    {"SumExactly", MakeSumExactly},
    {"FirstOutside", MakeFirstOutside},
};

}  // namespace

void SplitRows(ReduceArgs* args) {
  if (!args->rows.by_block) return;
  const RowParts parts = PartsOf(args->row.n, args->each.n);
  args->parts = parts.count;
  args->length = parts.length;
}

int64_t ScratchOf(const ReduceArgs& args) {
  return args.parts > 1 ? args.row.n * args.parts * ReduceArgs::kPartial : 0;
}

void AddReduction(Launches& launches, ReduceArgs args, void* scratch) {
  if (args.parts == 1) return launches.AddRows(args);
  const Rows rows = args.rows;
  args.partial = scratch;
  args.stage = Stage::kParts;
  args.rows.count *= args.parts;
  launches.AddRows(args);
  args.stage = Stage::kEnd;
  args.rows = rows;
  launches.AddRows(args);
}

KernelRows ReduceKernels() { return kEntries; }

}  // namespace bindery::cuda
