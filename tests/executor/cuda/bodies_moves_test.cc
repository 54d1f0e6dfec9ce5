// Bodies of kernels that move elements, find them by index and arrange them (bodies_fixture.h).
#include <numeric>

#include "executor/kernels/cuda/arrange_body.h"
#include "executor/kernels/cuda/layout_body.h"
#include "symbol/ops/grid.h"
#include "symbol/ops/indexing.h"
#include "symbol/ops/order.h"
#include "symbol/ops/quantize.h"
#include "symbol/ops/resize.h"
#include "symbol/ops/sequence.h"
#include "symbol/ops/shape_ops.h"
#include "tests/engine/cuda/cpu_block.h"
#include "tests/executor/cuda/bodies_fixture.h"

namespace bindery::cuda {
namespace {

// Of units of 1 to 8 bytes.
constexpr DType kSizes[] = {DType::kInt8, DType::kBFloat16, DType::kFloat32, DType::kFloat64};
const Shape kShape = {4, 5, 3};

int32_t UnitOf(const HostTensor& tensor) { return static_cast<int32_t>(SizeOf(tensor.dtype())); }

// The same of kernels whose output is an address.
template <class Args>
void ExpectAddressed(Args args, const HostTensor& expected) {
  ExpectWrites({expected}, 1, [&](const std::vector<Target>& out, int blocks, int threads) {
    args.out = static_cast<decltype(args.out)>(out[0].data);
    RunOnCpu(args, blocks, threads);
  });
}

TEST(CudaLayoutBodiesTest, Moves) {
  const Strides from{.of = {1, 3, 15}};  // of the transpose
  for (const DType dtype : kSizes) {
    const HostTensor x = Integers(kShape, -99, 99).Cast(dtype);
    ExpectAddressed(MoveArgs{.unit = UnitOf(x),
                             .grid = GridOver({3, 5, 4}),
                             .in = x.raw(),
                             .from = from,
                             .to = StridesIn({3, 5, 4}, {3, 5, 4})},
                    Reference(TransposeOp(), TransposeAttrs{}, {x})[0]);
  }
  const HostTensor pairs = Integers({4, 5, 3, 2}, -99, 99);  // of 16 bytes
  ExpectAddressed(MoveArgs{.unit = 16,
                           .grid = GridOver({3, 5, 4}),
                           .in = pairs.raw(),
                           .from = from,
                           .to = StridesIn({3, 5, 4}, {3, 5, 4})},
                  Reference(TransposeOp(), TransposeAttrs{{2, 1, 0, 3}}, {pairs})[0]);
}

// By tiles that the axes do not fill, of the first and the last axis of three.
TEST(CudaLayoutBodiesTest, Transposes) {
  for (const DType dtype : kSizes) {
    const HostTensor x = Integers({70, 3, 37}, -99, 99).Cast(dtype);
    ExpectAddressed(TransposeArgs{.unit = UnitOf(x),
                                  .rows = 37,
                                  .columns = 70,
                                  .in_stride = 3 * 37,
                                  .out_stride = 3 * 70,
                                  .grid = GridOver({3}),
                                  .in = x.raw(),
                                  .from = {.of = {37}},
                                  .to = {.of = {70}}},
                    Reference(TransposeOp(), TransposeAttrs{}, {x})[0]);
  }
}

TEST(CudaLayoutBodiesTest, Ranges) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt64, DType::kUInt8}) {
    HostTensor expected(dtype, {43});
    for (int64_t i = 0; i < 43; ++i) expected.Set(i, -5 + 7 * static_cast<double>(i));  // of uint8 saturated
    ExpectOut(RangeArgs{.n = 43, .begin = -5, .step = 7}, expected);
  }
}

// Of kShape along its middle axis, by these indices: one above, one below, one between, one that is no number.
const HostTensor& Indices() {
  static const HostTensor indices = Values({7}, {0, 4, 5, -1, 2.5, NAN, 2}).Cast(DType::kFloat32);
  return indices;
}
Indexing RowsByIndices(IndexMode mode) {
  return {.indices = From(Indices()),
          .mode = static_cast<int32_t>(mode),
          .padding = 2,
          .outer = 4,
          .extent = 5,
          .count = 7,
          .run = 3,
          .extents = {5}};
}
constexpr IndexMode kForgiving[] = {IndexMode::kClip, IndexMode::kWrap, IndexMode::kSkip, IndexMode::kZero};

uint64_t BitsOfNan(DType dtype) {
  uint64_t bits = 0;
  if (IsFloat(dtype)) std::memcpy(&bits, HostTensor::Full(dtype, {}, NAN).raw(), static_cast<size_t>(SizeOf(dtype)));
  return bits;
}

TEST(CudaLayoutBodiesTest, Gathers) {
  for (const DType dtype : kSizes) {
    const HostTensor x = Integers(kShape, -99, 99).Cast(dtype);
    for (const IndexMode mode : kForgiving) {
      ExpectAddressed(GatherArgs{.unit = UnitOf(x),
                                 .at = RowsByIndices(mode),
                                 .n = 4 * 7,
                                 .in = x.raw(),
                                 .nothing = mode == IndexMode::kSkip ? BitsOfNan(dtype) : 0},
                      Reference(TakeOp(), TakeAttrs{.axis = 1, .mode = mode, .padding = 2}, {x, Indices()})[0]);
    }
  }
}

// Of fewer rows and columns than data has.
const Shape kFewer = {3, 9, 2};
Indexing ByElements(const HostTensor& indices) {
  return {.indices = From(indices),
          .mode = static_cast<int32_t>(IndexMode::kRaise),
          .by_elements = 1,
          .padding = kNoIndex,
          .grid = GridOver(kFewer),
          .others = {.of = {15, 0, 1}},
          .axis_extent = 5,
          .axis_stride = 3};
}

TEST(CudaLayoutBodiesTest, GathersElements) {
  const HostTensor indices = Integers(kFewer, -5, 4).Cast(DType::kInt8);
  for (const DType dtype : kSizes) {
    const HostTensor x = Integers(kShape, -99, 99).Cast(dtype);
    ExpectAddressed(GatherArgs{.unit = UnitOf(x), .at = ByElements(indices), .n = kFewer.Elements(), .in = x.raw()},
                    Reference(GatherElementsOp(), GatherElementsAttrs{.axis = 1}, {x, indices})[0]);
  }
}

// Into a copy of `data`: by blocks that look at all indices; and by places that are found and sorted first.
void ExpectScattered(ScatterArgs args, const HostTensor& data, const HostTensor& expected) {
  const auto n = static_cast<size_t>(args.n);
  ExpectWrites({expected, expected}, 4, [&](const std::vector<Target>& out, int blocks, int threads) {
    for (const Target& y : out) std::memcpy(y.data, data.raw(), static_cast<size_t>(data.bytes()));
    args.stage = ScatterStage::kWhole;
    args.out = out[0];
    RunOnCpu(args, blocks, threads);

    std::vector<int64_t> places(n);
    std::vector<int32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    args.places = places.data();
    args.order = order.data();
    args.out = out[1];
    args.stage = ScatterStage::kFind;
    RunOnCpu(args, blocks, threads);
    std::ranges::stable_sort(order, {}, [&](int32_t u) { return places[static_cast<size_t>(u)]; });
    args.stage = ScatterStage::kSorted;
    RunOnCpu(args, blocks, threads);
  });
}

TEST(CudaLayoutBodiesTest, Scatters) {
  const HostTensor tuples = Reference(ReshapeOp(), ReshapeAttrs{.shape = {7, 1}}, {Indices()})[0];
  HostTensor elements = Integers(kFewer, -5, 4).Cast(DType::kInt16);
  for (const int64_t i : {0, 2, 4}) elements.Set(i, 0);  // the first place of all more than once
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kUInt64}) {
    const HostTensor data = Integers(kShape, 0, 9).Cast(dtype), updates = Integers({4, 7, 3}, 1, 5).Cast(dtype);
    const HostTensor of_elements = Integers(kFewer, 1, 5).Cast(dtype);
    for (int reduction = 0; reduction <= static_cast<int>(ScatterReduction::kMin); ++reduction) {
      for (const IndexMode mode : kForgiving) {
        const ScatterAttrs attrs{
            .axis = 1, .mode = mode, .reduction = static_cast<ScatterReduction>(reduction), .padding = 2};
        ExpectScattered({.at = RowsByIndices(mode), .n = 4 * 7, .reduction = reduction, .updates = From(updates)}, data,
                        Reference(ScatterNDOp(), attrs, {data, tuples, updates})[0]);
      }
      const ScatterAttrs attrs{.axis = 1, .reduction = static_cast<ScatterReduction>(reduction)};
      ExpectScattered(
          {.at = ByElements(elements), .n = kFewer.Elements(), .reduction = reduction, .updates = From(of_elements)},
          data, Reference(ScatterElementsOp(), attrs, {data, elements, of_elements})[0]);
    }
  }
}

// Many of one place, some of others before and behind it.
TEST(CudaLayoutBodiesTest, ScattersManyToOnePlace) {
  const HostTensor data = Integers({6, 3}, 0, 9).Cast(DType::kFloat32);
  for (const int64_t n : {1, 2, 3, 4, 5, 8, 9, 300}) {
    HostTensor indices = HostTensor::Full(DType::kInt64, {n, 1}, 2);
    for (int64_t i = 0; i < n; i += 7) indices.Set(i, static_cast<double>(i % 6));
    const HostTensor updates = Integers({n, 3}, 1, 5).Cast(DType::kFloat32);
    ExpectScattered(
        {.at = {.indices = From(indices), .padding = kNoIndex, .extent = 6, .count = n, .run = 3, .extents = {6}},
         .n = n,
         .reduction = static_cast<int32_t>(ScatterReduction::kAdd),
         .updates = From(updates)},
        data, Reference(ScatterNDOp(), ScatterAttrs{.reduction = ScatterReduction::kAdd}, {data, indices, updates})[0]);
  }
}

// Rows of no elements have places all the same: an index that names none is heard of.
TEST(CudaLayoutBodiesTest, ScattersRowsOfNothing) {
  const HostTensor none(DType::kFloat32, {3, 0});
  const uint64_t piece = 5;
  for (const double index : {1.0, 3.0}) {
    const HostTensor indices = HostTensor::Full(DType::kInt64, {2, 1}, index);
    std::vector<Fault> faults(FaultRing::kSize);
    uint64_t heard = 0;
    RunOnCpu(
        ScatterArgs{
            .at = {.indices = From(indices), .padding = kNoIndex, .extent = 3, .count = 2, .run = 0, .extents = {3}},
            .n = 2,
            .updates = From(none),
            .out = {nullptr, DType::kFloat32},
            .faults = {faults.data(), &piece, &heard}},
        2, 7);
    EXPECT_EQ(faults[piece].piece, index == 3 ? piece : 0);
  }
}

TEST(CudaLayoutBodiesTest, RowNumbers) {
  for (const IndexMode mode : kForgiving) {
    Indexing at = RowsByIndices(mode);
    at.outer = at.run = 1;
    ExpectAddressed(
        RowNumbersArgs{.at = at, .n = 7},
        Reference(RowNumbersOp(), RowNumbersAttrs{.extent = 5, .mode = mode, .padding = 2}, {Indices()})[0]);
  }
}

TEST(CudaLayoutBodiesTest, OneHot) {
  const HostTensor indices = Values({4, 3}, {0, 4, 5, -1, -5, -6, 2.5, NAN, 3, 1, 1, 2}).Cast(DType::kFloat16);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt8}) {
    for (const bool from_end : {false, true}) {
      const OneHotAttrs attrs{
          .depth = 5, .axis = 1, .on_value = 3, .off_value = -2, .from_end = from_end, .dtype = dtype};
      ExpectOut(
          OneHotArgs{
              .indices = From(indices), .n = 60, .axis = 5, .inner = 3, .on = 3, .off = -2, .from_end = from_end},
          Reference(OneHotOp(), attrs, {indices})[0]);
    }
  }
}

// ---- arranged ----

// (steps, samples, 3) and (samples, steps, 3): all steps, none, some, the first.
TEST(CudaArrangeBodiesTest, Sequences) {
  for (const bool steps_first : {true, false}) {
    const SequenceAttrs axes{.axis = steps_first ? 0 : 1, .batch_axis = steps_first ? 1 : 0};
    const Shape shape = steps_first ? Shape{5, 4, 3} : Shape{4, 5, 3};
    const HostTensor lengths = Values({4}, {5, 0, 2, 1}).Cast(DType::kFloat32);
    const HostTensor lasts = Values({4}, {5, 1, 2, 4}).Cast(DType::kFloat32);  // there is one
    for (const DType dtype : kSizes) {
      const HostTensor x = Integers(shape, -99, 99).Cast(dtype);
      const HostTensor value = HostTensor::Full(dtype, {}, -7);
      ArrangeArgs args{.unit = UnitOf(x),
                       .n = x.elements(),
                       .steps = 5,
                       .step_stride = steps_first ? 12 : 3,
                       .samples = 4,
                       .sample_stride = steps_first ? 3 : 15,
                       .in = x.raw(),
                       .lengths = From(lengths)};
      args.what = Arrange::kReverse;
      ExpectAddressed(args, Reference(SequenceReverseOp(), axes, {x, lengths})[0]);
      args.what = Arrange::kMask;
      std::memcpy(&args.value, value.raw(), static_cast<size_t>(value.bytes()));
      ExpectAddressed(args, Reference(SequenceMaskOp(), SequenceMaskAttrs{axes, -7}, {x, lengths})[0]);
      args.value = 0;
      args.what = Arrange::kLast;
      args.n = 12;
      args.lengths = From(lasts);
      const HostTensor last = Reference(SequenceLastOp(), axes, {x, lasts})[0];
      ExpectAddressed(args, last);
      args.what = Arrange::kLastGrad;
      args.n = x.elements();
      args.in = last.raw();
      ExpectAddressed(args, Reference(SequenceLastGradOp(), SequenceLastGradAttrs{axes, {shape[0], shape[1], shape[2]}},
                                      {last, lasts})[0]);
    }
  }
}

// A sequence whose length cannot be becomes `fault`, and is reported.
TEST(CudaArrangeBodiesTest, LengthsOutside) {
  constexpr int64_t kSteps = 3, kSamples = 2;
  const HostTensor x = HostTensor::From({kSteps, kSamples}, {1, 2, 3, 4, 5, 6});
  const float fault = -9;
  const uint64_t piece = 5;
  for (const Arrange what : {Arrange::kMask, Arrange::kReverse, Arrange::kLast, Arrange::kLastGrad}) {
    const double least = what == Arrange::kLast || what == Arrange::kLastGrad ? 1 : 0;
    for (const double bad : {least - 1, -0.5, 1.5, 4.0, 99.0, static_cast<double>(NAN)}) {
      const HostTensor lengths = Values({kSamples}, {3, bad}).Cast(DType::kFloat32);
      std::vector<Fault> faults(FaultRing::kSize);
      uint64_t heard = 0;
      HostTensor y(DType::kFloat32, {what == Arrange::kLast ? 1 : kSteps, kSamples});
      ArrangeArgs args{.what = what,
                       .unit = UnitOf(x),
                       .n = y.elements(),
                       .steps = kSteps,
                       .step_stride = kSamples,
                       .samples = kSamples,
                       .in = x.raw(),
                       .lengths = From(lengths),
                       .out = y.raw(),
                       .faults = {faults.data(), &piece, &heard}};
      std::memcpy(&args.fault, &fault, sizeof fault);
      RunOnCpu(args, 2, 7);
      for (int64_t i = 0; i < y.elements(); ++i) {
        EXPECT_EQ(y.At(i) == fault, i % kSamples == 1) << static_cast<int>(what) << ", " << bad << ", element " << i;
      }
      EXPECT_EQ(faults[piece].piece, piece);
      EXPECT_TRUE(faults[piece].value == bad || std::isnan(bad));
      EXPECT_EQ(faults[piece].low, least);
      EXPECT_EQ(faults[piece].high, kSteps);
    }
  }
}

TEST(CudaArrangeBodiesTest, Triangles) {
  for (const DType dtype : kSizes) {
    const HostTensor x = Integers(kShape, -99, 99).Cast(dtype);
    for (const int64_t diagonal : {-1, 0, 1}) {
      for (const bool upper : {false, true}) {
        ExpectAddressed(ArrangeArgs{.what = Arrange::kTrilu,
                                    .unit = UnitOf(x),
                                    .upper = upper,
                                    .n = x.elements(),
                                    .steps = 5,
                                    .samples = 3,
                                    .diagonal = diagonal,
                                    .in = x.raw()},
                        Reference(TriluOp(), TriluAttrs{diagonal, upper}, {x})[0]);
      }
    }
  }
}

// Halves, and what saturates.
TEST(CudaArrangeBodiesTest, QuantizedNumbers) {
  for (const DType dtype : kFloats) {
    HostTensor x = Uniform(kShape, -40, 40).Cast(dtype);
    const double specials[] = {NAN, INFINITY, -INFINITY, 1.25, -1.25, 0.75};
    for (size_t i = 0; i < std::size(specials); ++i) x.Set(static_cast<int64_t>(i), specials[i]);
    const HostTensor scale = Values({5}, {0.5, 0.25, 1, 2, 0.1}).Cast(dtype);
    for (const DType to : {DType::kInt8, DType::kUInt16}) {
      const HostTensor zero = Values({5}, {3, 0, 7, 1, 5}).Cast(to);
      QuantizeArgs args{.n = 60, .channels = 5, .inner = 3, .in = From(x), .scale = From(scale), .zero = From(zero)};
      const HostTensor quantized = Reference(QuantizeLinearOp(), QuantizeAttrs{.dtype = to}, {x, scale, zero})[0];
      ExpectOut(args, quantized);
      args.back = 1;
      args.in = From(quantized);
      ExpectOut(args, Reference(DequantizeLinearOp(), DequantizeAttrs{}, {quantized, scale, zero})[0]);
    }
  }
}

TEST(CudaArrangeBodiesTest, Resampled) {
  ResampleAttrs attrs{.axis = 1,
                      .extent = 5,
                      .starts = {0, 2, 2, 5, 6},
                      .indices = {0, 4, 1, 2, 3, 3},
                      .weights = {0.5, -2, 1, 3, 0.25, 1},
                      .outside = 7};
  for (const bool weighted : {true, false}) {
    if (!weighted) attrs.weights.clear();
    for (const DType dtype :
         {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16, DType::kInt16, DType::kUInt64}) {
      const HostTensor x = Integers(kShape, 0, 50).Cast(dtype);
      if (weighted && !IsFloat(dtype)) continue;
      ExpectOut(ResampleArgs{.n = 48,
                             .axis = 5,
                             .count = 4,
                             .inner = 3,
                             .outside = 7,
                             .starts = attrs.starts.data(),
                             .indices = attrs.indices.data(),
                             .weights = weighted ? attrs.weights.data() : nullptr,
                             .in = From(x)},
                Reference(ResampleOp(), attrs, {x})[0], 4);
    }
  }
}

// Images and a volume, in every way to treat what is outside.
TEST(CudaArrangeBodiesTest, Grids) {
  for (const Shape& shape : {Shape{2, 3, 4, 5}, Shape{2, 3, 4, 3, 2}}) {
    const int space = shape.rank() - 2;
    const Shape output = space == 2 ? Shape{2, 3, 6, 3} : Shape{2, 3, 2, 3, 3};
    const Shape places = output.Erase(1).Insert(space + 1, space);
    for (int way = 0; way < 18; ++way) {
      const GridSampleAttrs attrs{static_cast<ResizeMode>(way % 3), static_cast<GridPadding>(way / 3 % 3), way >= 9};
      if (space == 3 && attrs.mode == ResizeMode::kCubic) continue;
      GridArgs args{.sampling = static_cast<Sampling>(attrs.mode),
                    .space = space,
                    .samples = 2,
                    .channels = 3,
                    .plane = shape.CountFrom(2),
                    .places = 18};
      for (int axis = 0; axis < space; ++axis) {
        args.axes[axis] = {shape[2 + axis], static_cast<Outside>(attrs.padding), attrs.align_corners};
      }
      for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
        const HostTensor x = Uniform(shape).Cast(dtype), grid = Uniform(places, -1.4, 1.4).Cast(dtype),
                         dy = Uniform(output).Cast(dtype);
        args.unit = UnitOf(x);
        args.data = From(x);
        args.grid = From(grid);
        args.dy = From(dy);
        args.part = GridPart::kSample;
        ExpectOut(args, Reference(GridSampleOp(), attrs, {x, grid})[0], 64);
        args.part = GridPart::kGradGrid;
        ExpectOut(args, Reference(GridSampleGradGridOp(), attrs, {dy, x, grid})[0], 64);
        if (dtype == DType::kFloat16) continue;  // added up in float32
        args.part = GridPart::kGradData;
        const std::vector<int64_t> extents(shape.begin() + 2, shape.end());
        ExpectOut(args, Reference(GridSampleGradDataOp(), GridSampleGradAttrs{attrs, extents}, {dy, grid})[0], 64);
      }
    }
  }
}

}  // namespace
}  // namespace bindery::cuda
