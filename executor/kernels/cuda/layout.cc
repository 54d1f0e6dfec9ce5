// What moves elements, and what is made of nothing.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/cuda/layout_args.h"
#include "executor/kernels/cuda/move.h"
#include "executor/kernels/cuda/sorting.h"
#include "executor/kernels/rules.h"
#include "symbol/ops/indexing.h"
#include "symbol/ops/shape_ops.h"

namespace bindery::cuda {
namespace {

const char* AtElement(const void* memory, int64_t element, int64_t size) {
  return static_cast<const char*>(memory) + element * size;
}

MaybeKernel MakeCopy(const KernelSpec& spec) {
  const int64_t bytes = StorageBytes(Format::Plain(), spec.outputs[0].dtype, spec.outputs[0].shape);
  Kernel kernel =
      OwnKernel(spec, [bytes](Launches& launches) { launches.Copy(launches.in(0).data, launches.out(0).data, bytes); });
  kernel.inplace = {{0, 0}};
  return kernel;
}

// Output 0 = input 0 at these strides from an element on.
Kernel TakeBox(const KernelSpec& spec, const Strides& from, int64_t first = 0) {
  const Shape& shape = spec.outputs[0].shape;
  const MoveArgs args{.grid = GridOf(shape), .from = from, .to = PlainStrides(shape)};
  return OwnKernel(spec, [args, first, size = SizeOf(spec.outputs[0].dtype)](Launches& launches) {
    AddMove(launches, AtElement(launches.in(0).data, first, size), launches.out(0).data, size, args);
  });
}

MaybeKernel MakeTranspose(const KernelSpec& spec) {
  const auto& axes = spec.attributes<TransposeAttrs>().axes;
  const Shape& in = spec.inputs[0].shape;
  const Strides plain = PlainStrides(in);
  Strides from;
  for (int i = 0; i < in.rank(); ++i) {
    from.of[i] = plain.of[axes.empty() ? in.rank() - 1 - i : in.Axis(static_cast<int>(axes[static_cast<size_t>(i)]))];
  }
  return TakeBox(spec, from);
}

MaybeKernel MakeBroadcastTo(const KernelSpec& spec) {
  return TakeBox(spec, StretchedStrides(spec.inputs[0].shape, spec.outputs[0].shape));
}

// Where the elements of a box lie in a tensor: from which on, and how far from each other.
struct Box {
  int64_t first = 0;
  Strides strides;
  Box(const std::vector<SliceRange>& ranges, const Shape& around) : strides(PlainStrides(around)) {
    for (int axis = 0; axis < around.rank(); ++axis) {
      first += ranges[static_cast<size_t>(axis)].begin * strides.of[axis];
      strides.of[axis] *= ranges[static_cast<size_t>(axis)].step;
    }
  }
};

MaybeKernel MakeSlice(const KernelSpec& spec) {
  const Shape& in = spec.inputs[0].shape;
  const Box box(SliceRanges(spec.attributes<SliceAttrs>(), in, spec.batch), in);
  return TakeBox(spec, box.strides, box.first);
}

MaybeKernel MakePad(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<PadAttrs>();
  const ValueType &in = spec.inputs[0], &out = spec.outputs[0];
  const Box box(PadRanges(attrs, in.shape, spec.batch), out.shape);
  const MoveArgs args{.grid = GridOf(in.shape), .from = PlainStrides(in.shape), .to = box.strides};
  return OwnKernel(spec, [args, dtype = out.dtype, n = out.shape.Elements(), first = box.first,
                          value = attrs.value](Launches& launches) {
    char* const to = static_cast<char*>(launches.out(0).data);
    launches.Fill(dtype, to, n, value);
    AddMove(launches, launches.in(0).data, to + first * SizeOf(dtype), SizeOf(dtype), args);
  });
}

// A part of `extent` along an axis, in the whole from `begin` on.
MoveArgs PartOf(const AxisView& whole, int64_t extent, bool to_whole) {
  MoveArgs args{.grid = GridOf({whole.outer, extent * whole.inner})};
  args.from.of[0] = (to_whole ? extent : whole.axis) * whole.inner;
  args.to.of[0] = (to_whole ? whole.axis : extent) * whole.inner;
  args.from.of[1] = args.to.of[1] = 1;
  return args;
}

MaybeKernel MakeConcat(const KernelSpec& spec) {
  const int axis = spec.outputs[0].shape.Axis(static_cast<int>(spec.attributes<ConcatAttrs>().axis));
  const AxisView whole = ViewAlong(spec.outputs[0].shape, axis);
  std::vector<int64_t> extents;
  for (const ValueType& input : spec.inputs) extents.push_back(input.shape[axis]);
  return OwnKernel(spec, [=, size = SizeOf(spec.outputs[0].dtype)](Launches& launches) {
    char* to = static_cast<char*>(launches.out(0).data);
    for (size_t i = 0; i < extents.size(); ++i) {
      AddMove(launches, launches.in(i).data, to, size, PartOf(whole, extents[i], true));
      to += extents[i] * whole.inner * size;
    }
  });
}

MaybeKernel MakeSliceChannel(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<SliceChannelAttrs>();
  const AxisView whole = ViewAlong(spec.inputs[0].shape, static_cast<int>(attrs.axis));
  return OwnKernel(spec, [=, extent = whole.axis / attrs.num_outputs, count = spec.outputs.size(),
                          size = SizeOf(spec.inputs[0].dtype)](Launches& launches) {
    for (size_t i = 0; i < count; ++i) {
      const int64_t first = static_cast<int64_t>(i) * extent * whole.inner;
      AddMove(launches, AtElement(launches.in(0).data, first, size), launches.out(i).data, size,
              PartOf(whole, extent, false));
    }
  });
}

MaybeKernel MakeConstant(const KernelSpec& spec) {
  return OwnKernel(spec, [value = ConstantOf(spec)](Launches& launches) {
    launches.Copy(launches.Constant(value->raw(), value->bytes()), launches.out(0).data, value->bytes());
  });
}
MaybeKernel MakeScalar(const KernelSpec& spec) {
  return OwnKernel(spec, [number = spec.attributes<ScalarAttrs>().scalar](Launches& launches) {
    launches.Fill(launches.out(0).dtype, launches.out(0).data, 1, number);
  });
}

MaybeKernel MakeRange(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<RangeAttrs>();
  RangeArgs args{.n = spec.outputs[0].shape.Elements(), .begin = attrs.begin, .step = attrs.step};
  return OwnKernel(spec, [args](Launches& launches) mutable {
    args.out = launches.out(0);
    launches.Add(args, args.n);
  });
}

// ---- by index ----

struct Indexed {
  Indexing at;
  int64_t updates;
};

Indexed ByRows(const TakeAttrs& attrs, bool tuples, const Shape& data, const Shape& indices) {
  const TakenRows rows = bindery::RowsOf(attrs, tuples, data, indices);
  Indexing at{.mode = static_cast<int32_t>(attrs.mode), .padding = attrs.padding};
  at.outer = rows.outer;
  at.extent = rows.extent;
  at.count = std::max<int64_t>(rows.count, 1);
  at.run = rows.inner;
  at.k = static_cast<int32_t>(rows.extents.size());
  std::ranges::copy(rows.extents, at.extents);
  return {at, rows.batches * rows.outer * rows.count};
}

Indexed ByElements(const Shape& data, const Shape& indices, int64_t along, IndexMode mode) {
  const int axis = data.Axis(static_cast<int>(along));
  Indexing at{.mode = static_cast<int32_t>(mode), .by_elements = 1, .padding = kNoIndex};
  at.grid = GridOf(indices);
  at.others = PlainStrides(data);
  at.axis_extent = data[axis];
  at.axis_stride = std::exchange(at.others.of[axis], 0);
  return {at, indices.Elements()};
}

// Of indices that must name something.
FaultRing FaultsOf(const Launches& launches, const Indexing& at) {
  return static_cast<IndexMode>(at.mode) == IndexMode::kRaise ? launches.faults() : FaultRing();
}

// (data, indices) at these inputs -> what is taken
Kernel Gather(const KernelSpec& spec, const Indexed& indexed, size_t data = 0, size_t indices = 1) {
  const DType dtype = spec.outputs[0].dtype;
  GatherArgs args{.unit = static_cast<int32_t>(SizeOf(dtype)), .at = indexed.at, .n = indexed.updates};
  if (IsFloat(dtype)) {
    uint64_t* const to = static_cast<IndexMode>(args.at.mode) == IndexMode::kSkip ? &args.nothing : &args.fault;
    std::memcpy(to, HostTensor::Full(dtype, {}, NAN).raw(), static_cast<size_t>(SizeOf(dtype)));
  }
  return OwnKernel(spec, [=](Launches& launches) mutable {
    args.at.indices = launches.in(indices);
    args.in = launches.in(data).data;
    args.out = launches.out(0).data;
    args.faults = FaultsOf(launches, args.at);
    launches.Add(args, args.n * args.at.run);
  });
}

// ([data,] indices, updates) -> data with the updates. Sums of 16-bit floats are taken in float.
Kernel Scatter(const KernelSpec& spec, const Indexed& indexed) {
  const auto& [at, updates] = indexed;
  const ValueType out = spec.outputs[0];
  const int64_t n = out.shape.Elements();
  const auto reduction = spec.attributes<ScatterAttrs>().reduction;
  const bool wide = reduction != ScatterReduction::kNone && IsFloat(out.dtype) && SizeOf(out.dtype) == 2;
  ScatterArgs args{.at = at, .n = updates, .reduction = static_cast<int32_t>(reduction)};
  constexpr int64_t kMany = 4096;
  const int64_t wide_bytes = wide ? RoundUp(n * 4, 64) : 0, places_bytes = RoundUp(updates * 8, 64);
  const int64_t sorting = updates >= kMany && n > 0 ? SortBytes(updates) : 0;
  Kernel kernel = OwnKernel(spec, [=, last = spec.inputs.size() - 1](Launches& launches) mutable {
    args.out = wide ? Target{launches.scratch(), DType::kFloat32} : launches.out(0);
    if (last < 2) {
      launches.Fill(args.out.dtype, args.out.data, n, 0);
    } else {
      launches.Cast(launches.in(0), args.out, n);
    }
    args.at.indices = launches.in(last - 1);
    args.updates = launches.in(last);
    args.faults = FaultsOf(launches, args.at);
    if (sorting == 0) {
      launches.Add(args, args.n > 0 ? std::max<int64_t>(n / 16, 1) : 0);
    } else {
      args.places = reinterpret_cast<int64_t*>(launches.scratch(wide_bytes));
      args.order = reinterpret_cast<int32_t*>(launches.scratch(wide_bytes + places_bytes));
      args.stage = ScatterStage::kFind;
      launches.Add(args, args.n);
      AddSort(launches, {args.places, DType::kInt64}, args.n, args.order);
      args.stage = ScatterStage::kSorted;
      args.faults = {};
      launches.Add(args, args.n * args.at.run);
    }
    if (wide) launches.Cast({args.out.data, args.out.dtype}, launches.out(0), n);
  });
  kernel.scratch_bytes = wide_bytes + (sorting > 0 ? places_bytes + sorting : 0);
  return kernel;
}

template <bool kTuples>
MaybeKernel MakeTake(const KernelSpec& spec) {
  return Gather(spec, ByRows(spec.attributes<TakeAttrs>(), kTuples, spec.inputs[0].shape, spec.inputs[1].shape));
}

MaybeKernel MakeEmbedding(const KernelSpec& spec) {
  const TakeAttrs take{.mode = spec.attributes<EmbeddingAttrs>().mode};
  return Gather(spec, ByRows(take, false, spec.inputs[1].shape, spec.inputs[0].shape), 1, 0);
}

MaybeKernel MakeGatherElements(const KernelSpec& spec) {
  const auto& [axis, mode] = spec.attributes<GatherElementsAttrs>();
  return Gather(spec, ByElements(spec.inputs[0].shape, spec.inputs[1].shape, axis, mode));
}

MaybeKernel MakePick(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<PickAttrs>();
  const Shape& data = spec.inputs[0].shape;
  const Shape places = data.With(data.Axis(static_cast<int>(attrs.axis)), 1);
  return Gather(spec, ByElements(data, places, attrs.axis, attrs.mode));
}

MaybeKernel MakeScatterND(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ScatterAttrs>();
  const TakeAttrs take{attrs.axis, attrs.batch_dims, attrs.mode, attrs.padding};
  return Scatter(spec, ByRows(take, true, spec.outputs[0].shape, spec.inputs[spec.inputs.size() - 2].shape));
}

MaybeKernel MakeScatterElements(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ScatterAttrs>();
  return Scatter(spec, ByElements(spec.outputs[0].shape, spec.inputs.back().shape, attrs.axis, attrs.mode));
}

MaybeKernel MakeRowNumbers(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<RowNumbersAttrs>();
  const TakeAttrs take{.mode = attrs.mode, .padding = attrs.padding};
  const auto [at, n] = ByRows(take, false, {attrs.extent}, spec.outputs[0].shape);
  RowNumbersArgs args{.at = at, .n = n};
  return OwnKernel(spec, [args](Launches& launches) mutable {
    args.at.indices = launches.in(0);
    args.out = static_cast<int64_t*>(launches.out(0).data);
    args.faults = FaultsOf(launches, args.at);
    launches.Add(args, args.n);
  });
}

MaybeKernel MakeOneHot(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<OneHotAttrs>();
  const Shape& shape = spec.outputs[0].shape;
  const AxisView view = ViewAlong(shape, static_cast<int>(attrs.axis));
  OneHotArgs args{.n = shape.Elements(),
                  .axis = view.axis,
                  .inner = view.inner,
                  .on = attrs.on_value,
                  .off = attrs.off_value,
                  .from_end = attrs.from_end};
  return OwnKernel(spec, [args](Launches& launches) mutable {
    args.indices = launches.in(0);
    args.out = launches.out(0);
    launches.Add(args, args.n);
  });
}

constexpr KernelEntry kEntries[] = {
    {"Identity", MakeCopy},
    {"BlockGrad", MakeCopy},
    {"ScaleLoss", MakeCopy},
    {"MakeLoss", MakeCopy},
    {"LinearRegressionOutput", MakeCopy},
    {"MAERegressionOutput", MakeCopy},
    {"SVMOutput", MakeCopy},
    {"Flatten", MakeCopy},
    {"Reshape", MakeCopy},
    {"SumOverDevices", MakeCopy},  // of one device
    {"Transpose", MakeTranspose},
    {"Concat", MakeConcat},
    {"Slice", MakeSlice},
    {"Pad", MakePad},
    {"BroadcastTo", MakeBroadcastTo},
    {"SliceChannel", MakeSliceChannel},
    {"Constant", MakeConstant},
    {"Scalar", MakeScalar},
    {"ShapeArray", MakeConstant},
    {"SizeArray", MakeConstant},
    {"Range", MakeRange},
    {"Take", MakeTake<false>},
    {"GatherND", MakeTake<true>},
    {"Embedding", MakeEmbedding},
    {"GatherElements", MakeGatherElements},
    {"Pick", MakePick},
    {"ScatterND", MakeScatterND},
    {"ScatterElements", MakeScatterElements},
    {"RowNumbers", MakeRowNumbers},
    {"OneHot", MakeOneHot},
};

}  // namespace

KernelRows LayoutKernels() { return kEntries; }

}  // namespace bindery::cuda
