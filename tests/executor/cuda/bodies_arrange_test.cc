// Bodies of kernels that arrange elements: sequences, triangles, what is sampled between them (bodies_fixture.h).
#include "executor/kernels/cuda/arrange_body.h"
#include "symbol/ops/grid.h"
#include "symbol/ops/order.h"
#include "symbol/ops/quantize.h"
#include "symbol/ops/resize.h"
#include "symbol/ops/sequence.h"
#include "symbol/ops/shape_ops.h"
#include "tests/engine/cuda/cpu_block.h"
#include "tests/executor/cuda/bodies_fixture.h"

namespace bindery::cuda {
namespace {

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
