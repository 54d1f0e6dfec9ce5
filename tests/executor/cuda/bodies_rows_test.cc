// Bodies of softmax, losses, reductions and measures (bodies_fixture.h).
#include <array>

#include "executor/kernels/cuda/reduce_body.h"
#include "executor/kernels/cuda/softmax_body.h"
#include "symbol/ops/cross_entropy.h"
#include "symbol/ops/loss.h"
#include "symbol/ops/measure.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/softmax.h"
#include "tests/engine/cuda/cpu_block.h"
#include "tests/executor/cuda/bodies_fixture.h"

namespace bindery::cuda {
namespace {

// (outer, axis, inner)
constexpr int64_t kOuter = 2, kAxis = 150, kInner = 3, kRows = kOuter * kInner;
const Shape kShape = {kOuter, kAxis, kInner};
const Shape kRowsShape = {kOuter, kInner};

// A row with NaN, one with infinity, one of nothing else than -infinity, and three others.
HostTensor Special(DType dtype) {
  HostTensor x = Uniform(kShape, -4, 4);
  x.Set(7 * kInner, NAN);
  x.Set(100 * kInner + 1, INFINITY);
  for (int64_t k = 0; k < kAxis; ++k) x.Set(k * kInner + 2, -INFINITY);
  return x.Cast(dtype);
}

// By three parts of each row, the last of which is shorter: run(args) of both stages.
template <class Args, class Give>
void ExpectParts(Args args, const HostTensor& expected, double terms, const Give& give) {
  alignas(16) std::array<std::byte, kRows * 3 * Args::kPartial> partial;
  args.parts = 3;
  args.length = 64;
  args.partial = partial.data();
  for (const int by_block : {0, 1}) {
    args.rows = {kRows * args.parts, by_block};
    ExpectWrites({expected}, terms, [&](const std::vector<Target>& out, int blocks, int threads) {
      give(out[0], &args);
      partial.fill(std::byte{0x7B});
      for (const Stage stage : {Stage::kParts, Stage::kEnd}) {
        args.stage = stage;
        RunOnCpu(args, blocks, threads);
      }
    });
  }
}
template <class Args>
void ExpectPartsOut(const Args& args, const HostTensor& expected, double terms) {
  ExpectParts(args, expected, terms, [](const Target& out, Args* to) { to->out = out; });
}

TEST(CudaSoftmaxBodiesTest, Rows) {
  struct Case {
    RowKind what;
    const OpDef& op;
    AnyAttrs attrs;
    int inputs;
    double temperature = 1;
  };
  const LogSoftmaxAttrs attrs{.axis = 1};
  const Case cases[] = {{RowKind::kSoftmax, SoftmaxOp(), SoftmaxAttrs{1, 0.7}, 1, 0.7},
                        {RowKind::kSoftmaxGrad, SoftmaxGradOp(), SoftmaxAttrs{1, 0.7}, 2, 0.7},
                        {RowKind::kLogSoftmax, LogSoftmaxOp(), attrs, 1},
                        {RowKind::kLogSoftmaxGrad, LogSoftmaxGradOp(), attrs, 2},
                        {RowKind::kHardmax, HardmaxOp(), attrs, 1}};
  for (const DType dtype : kFloats) {
    for (const Case& c : cases) {
      SCOPED_TRACE(c.op.name);
      std::vector<HostTensor> in = {Special(dtype), Uniform(kShape, -3, 0).Cast(dtype)};
      in.resize(static_cast<size_t>(c.inputs));
      SoftmaxArgs args{.what = c.what, .rows = {kRows}, .axis = kAxis, .inner = kInner, .temperature = c.temperature};
      for (size_t i = 0; i < in.size(); ++i) args.in[i] = From(in[i]);
      const HostTensor expected = Reference(c.op, c.attrs, in)[0];
      ExpectRowsOut(args, expected, kAxis);
      ExpectPartsOut(args, expected, kAxis);
    }
  }
}

// A label that is ignored, and weights of classes.
TEST(CudaSoftmaxBodiesTest, CrossEntropy) {
  for (const DType dtype : kFloats) {
    for (const bool log_input : {false, true}) {
      const HostTensor data = Uniform(kShape, -4, log_input ? 0 : 4).Cast(dtype);
      const HostTensor label = Values(kRowsShape, {0, kAxis - 1, 5, 77, 5, 64}).Cast(DType::kInt32);
      const HostTensor weights = Uniform({kAxis}, 0.5, 2).Cast(dtype);
      const HostTensor dy = Uniform(kRowsShape).Cast(ComputedWith(dtype));
      for (const double smoothing : {0.0, 0.1}) {
        const CrossEntropyAttrs attrs{.axis = 1,
                                      .use_ignore = true,
                                      .ignore_label = 77,
                                      .use_weight = true,
                                      .label_smoothing = smoothing,
                                      .log_input = log_input};
        CrossEntropyArgs args{.use_ignore = 1,
                              .log_input = log_input,
                              .ignore_label = 77,
                              .smoothing = smoothing,
                              .rows = {kRows},
                              .axis = kAxis,
                              .inner = kInner,
                              .dy = From(dy),
                              .data = From(data),
                              .label = From(label),
                              .weights = From(weights)};
        const auto forward = Reference(CrossEntropyOp(), attrs, {data, label, weights}, log_input ? 2 : 4);
        std::vector<HostTensor> inputs = {dy, data, label, weights};
        if (!log_input) {
          inputs.insert(inputs.end(), {forward[2], forward[3]});
          args.maximum = From(forward[2]);
          args.log_sum = From(forward[3]);
        }
        const auto backward = Reference(CrossEntropyGradOp(), attrs, inputs);
        for (const int by_block : {0, 1}) {
          args.rows.by_block = by_block;
          for (const int gradient : {0, 1}) {
            args.backward = gradient;
            ExpectWrites(gradient ? backward : forward, kAxis,
                         [&](const std::vector<Target>& out, int blocks, int threads) {
                           std::ranges::copy(out, args.out);
                           RunOnCpu(args, blocks, threads);
                         });
          }
        }
      }
    }
  }
}

constexpr StepBlock kStep = {.batch_size = 6, .loss_scale = 1024};

// A label that names no class loses NaN, and is reported.
TEST(CudaSoftmaxBodiesTest, LabelsOutside) {
  const HostTensor data = Uniform({3, 5}).Cast(DType::kFloat32);
  const uint64_t piece = 5;
  for (const double bad : {5.0, -1.0, 3.5, -0.5, static_cast<double>(NAN)}) {
    SCOPED_TRACE(bad);
    const HostTensor label = Values({3}, {4, bad, bad}).Cast(DType::kFloat32);
    // run(result, where faults go): row 0 is good, the others are not; `axis` results each.
    const auto expect = [&](int64_t axis, const auto& run) {
      std::vector<Fault> faults(FaultRing::kSize);
      uint64_t heard = 0;
      HostTensor result(DType::kFloat32, {3, axis});
      run(To(&result), FaultRing{faults.data(), &piece, &heard});
      for (int64_t i = 0; i < result.elements(); ++i) EXPECT_EQ(std::isnan(result.At(i)), i >= axis) << i;
      EXPECT_EQ(faults[piece].piece, piece);
      EXPECT_TRUE(faults[piece].at == 1 || faults[piece].at == 2) << faults[piece].at;
      EXPECT_TRUE(faults[piece].value == bad || std::isnan(bad));
      EXPECT_EQ(faults[piece].low, 0);
      EXPECT_EQ(faults[piece].high, 4);
    };
    for (const int by_block : {0, 1}) {
      expect(1, [&](const Target& out, const FaultRing& faults) {
        RunOnCpu(CrossEntropyArgs{.rows = {3, by_block},
                                  .axis = 5,
                                  .data = From(data),
                                  .label = From(label),
                                  .out = {out},
                                  .faults = faults},
                 2, 7);
      });
    }
    for (const int svm : {0, 1}) {
      if (svm == 1 && bad == std::floor(bad)) continue;  // which has all classes against it
      expect(5, [&](const Target& out, const FaultRing& faults) {
        RunOnCpu(OutputGradArgs{.svm = svm,
                                .n = data.elements(),
                                .axis = 5,
                                .p = From(data),
                                .label = From(label),
                                .out = out,
                                .step = &kStep,
                                .faults = faults},
                 2, 7);
      });
    }
  }
}

TEST(CudaSoftmaxBodiesTest, GradientsOfOutputs) {
  for (const DType dtype : kFloats) {
    const HostTensor p = Uniform(kShape, 0, 1).Cast(dtype), head = Uniform(kShape).Cast(dtype);
    const HostTensor label = Values(kRowsShape, {0, kAxis - 1, 5, 77, 5, 64}).Cast(dtype);
    const HostTensor valid = HostTensor::Full(DType::kFloat32, {1}, 4);
    const SoftmaxOutputAttrs attrs{.grad_scale = 3,
                                   .normalization = Normalization::kValid,
                                   .use_ignore = true,
                                   .ignore_label = 77,
                                   .smooth_alpha = 0.2,
                                   .multi_output = true,
                                   .out_grad = true};
    ExpectOut(OutputGradArgs{.use_ignore = 1,
                             .ignore_label = 77,
                             .smooth = 0.2,
                             .scale = 3,
                             .n = p.elements(),
                             .axis = kAxis,
                             .inner = kInner,
                             .p = From(p),
                             .label = From(label),
                             .valid = From(valid),
                             .head = From(head),
                             .step = &kStep},
              Reference(SoftmaxOutputGradOp(), attrs, {p, label, valid, head})[0]);
    ExpectOut(OutputGradArgs{.distribution = 1,
                             .by_batch = 1,
                             .positions = kInner,
                             .n = p.elements(),
                             .axis = kAxis,
                             .inner = kInner,
                             .p = From(p),
                             .label = From(head),
                             .step = &kStep},
              Reference(SoftmaxOutputGradOp(),
                        SoftmaxOutputAttrs{.normalization = Normalization::kBatch, .multi_output = true}, {p, head}, 1,
                        {.step = kStep})[0]);
    const HostTensor scores = Uniform({6, 11}, -2, 2).Cast(dtype), classes = Integers({6}, 0, 10).Cast(dtype);
    for (const bool linear : {false, true}) {
      ExpectOut(OutputGradArgs{.svm = 1,
                               .use_linear = linear,
                               .scale = 0.5,
                               .margin = 0.75,
                               .n = scores.elements(),
                               .axis = 11,
                               .p = From(scores),
                               .label = From(classes),
                               .step = &kStep},
                Reference(SVMOutputGradOp(), SVMOutputAttrs{0.75, 0.5, linear}, {scores, classes})[0]);
    }
  }
}

TEST(CudaSoftmaxBodiesTest, NumbersOfTheStep) {
  const HostTensor valid = HostTensor::Full(DType::kInt64, {}, 7);
  for (const DType dtype : kFloats) {
    ExpectOut(StepNumberArgs{.loss_scale = 1, .step = &kStep}, HostTensor::Full(dtype, {}, 1024));
    ExpectOut(StepNumberArgs{.by_batch = 1, .scale = 3, .step = &kStep}, HostTensor::Full(dtype, {}, 3.0 / 6));
    ExpectOut(StepNumberArgs{.scale = 3, .valid = From(valid), .step = &kStep}, HostTensor::Full(dtype, {}, 3.0 / 7));
  }
}

// ---- reductions ----

// Whose products along the axis are small.
HostTensor WithProducts(DType dtype) {
  HostTensor x = HostTensor::Full(dtype, kShape, 1);
  for (int64_t i = 0; i < x.elements(); i += 67) x.Set(i, 3);
  return x;
}

// The middle axis of three, whole and by parts, the last of which is shorter.
TEST(CudaReduceBodiesTest, Reductions) {
  const OpDef* const ops[] = {&SumOp(),    &MeanOp(),   &MaxOp(),       &MinOp(),      &ProdOp(),
                              &L1NormOp(), &L2NormOp(), &SumSquareOp(), &LogSumExpOp()};
  alignas(16) std::array<std::byte, kRows * 3 * ReduceArgs::kPartial> partial;
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16, DType::kInt16, DType::kUInt64}) {
    for (int what = 0; what <= static_cast<int>(Reduction::kLogSumExp); ++what) {
      const OpDef& op = *ops[what];
      SCOPED_TRACE(op.name);
      const auto reduction = static_cast<Reduction>(what);
      if (!IsFloat(dtype) && reduction == Reduction::kLogSumExp) continue;
      const HostTensor x = IsFloat(dtype) && reduction != Reduction::kProd ? Special(dtype)
                           : IsFloat(dtype)                                ? Uniform(kShape, 0.9, 1.1).Cast(dtype)
                           : reduction == Reduction::kProd
                               ? WithProducts(dtype)
                               : Integers(kShape, dtype == DType::kUInt64 ? 1 : -11, 11).Cast(dtype);
      ReduceArgs args{.what = reduction,
                      .rows = {kRows},
                      .in = From(x),
                      .row = GridOver(kRowsShape),
                      .each = GridOver({kAxis}),
                      .row_strides = {.of = {kAxis * kInner, 1}},
                      .each_strides = {.of = {kInner}},
                      .parts = 3,
                      .length = 64,
                      .partial = partial.data()};
      args.in_double = !IsFloat(dtype) && (reduction == Reduction::kMean || reduction == Reduction::kL2Norm);
      const HostTensor expected = Reference(op, ReduceAttrs{.axes = {1}}, {x})[0];
      ExpectRowsOut(args, expected, kAxis);
      for (const int by_block : {0, 1}) {
        ExpectWrites({expected}, kAxis, [&](const std::vector<Target>& out, int blocks, int threads) {
          ReduceArgs parts = args, end = args;
          parts.stage = Stage::kParts;
          parts.rows = {kRows * args.parts, by_block};
          end.stage = Stage::kEnd;
          end.rows.by_block = by_block;
          end.out = out[0];
          RunOnCpu(parts, blocks, threads);
          RunOnCpu(end, blocks, threads);
        });
      }
    }
  }
}

// The least and the most of its own type that there is, of bools false and true.
TEST(CudaReduceBodiesTest, OfNothing) {
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat16, DType::kInt8, DType::kUInt16, DType::kInt64, DType::kUInt64, DType::kBool}) {
    const HostTensor x(dtype, {kOuter, 0, kInner});
    for (const Reduction what : {Reduction::kSum, Reduction::kMax, Reduction::kMin, Reduction::kProd}) {
      const OpDef& op = what == Reduction::kSum   ? SumOp()
                        : what == Reduction::kMax ? MaxOp()
                        : what == Reduction::kMin ? MinOp()
                                                  : ProdOp();
      SCOPED_TRACE(op.name);
      ExpectRowsOut(ReduceArgs{.what = what,
                               .rows = {kRows},
                               .in = From(x),
                               .row = GridOver(kRowsShape),
                               .each = GridOver({0}),
                               .row_strides = {.of = {0, 1}},
                               .each_strides = {.of = {kInner}}},
                    Reference(op, ReduceAttrs{.axes = {1}}, {x})[0], 1);
    }
  }
}

// With equal elements, and NaN in one row.
TEST(CudaReduceBodiesTest, Measures) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt16, DType::kUInt64}) {
    HostTensor x = Integers(kShape, 0, 40).Cast(dtype);
    if (IsFloat(dtype)) x.Set(7 * kInner, NAN);
    const HostTensor place = Values(kRowsShape, {3, 149, 150, 0, -1, 80}).Cast(DType::kInt64);
    const auto check = [&](Measure what, bool last, const HostTensor& expected) {
      MeasureArgs args{.what = what, .last = last, .in = From(x), .place = From(place), .axis = kAxis, .inner = kInner};
      const auto give = [](const Target& out, MeasureArgs* to) { to->out = static_cast<int64_t*>(out.data); };
      for (const int by_block : {0, 1}) {
        args.rows = {kRows, by_block};
        ExpectWrites({expected}, 1, [&](const std::vector<Target>& out, int blocks, int threads) {
          give(out[0], &args);
          RunOnCpu(args, blocks, threads);
        });
      }
      ExpectParts(args, expected, 1, give);
    };
    for (const bool last : {false, true}) {
      const ArgAttrs attrs{.axis = 1, .select_last_index = last};
      check(Measure::kArgMax, last, Reference(ArgMaxOp(), attrs, {x})[0]);
      check(Measure::kArgMin, last, Reference(ArgMinOp(), attrs, {x})[0]);
    }
    check(Measure::kRankOf, false, Reference(RankOfOp(), PlaceAttrs{.axis = 1}, {x, place})[0]);
  }
}

// One block's work: the others leave it alone.
TEST(CudaReduceBodiesTest, SumsExactly) {
  for (const DType dtype : {DType::kFloat64, DType::kBFloat16, DType::kInt32}) {
    HostTensor x = Uniform({300}, -1e6, 1e6).Cast(dtype);
    const auto check = [&] {
      ExpectWrites(Reference(SumExactlyOp(), {}, {x}), 1, [&](const std::vector<Target>& out, int blocks, int threads) {
        RunOnCpu(SumExactlyArgs{.in = From(x), .n = 300, .out = static_cast<double*>(out[0].data)}, blocks, threads);
      });
    };
    check();
    x.Set(299, IsFloat(dtype) ? INFINITY : 1);
    check();
  }
}

TEST(CudaReduceBodiesTest, FirstOutside) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt8}) {
    HostTensor x = Integers({300}, 0, 9).Cast(dtype);
    const FirstOutsideAttrs attrs{.low = 0, .high = 9, .whole = true, .use_ignore = true, .ignore = -1};
    x.Set(31, -1);
    for (const double bad : {5.0, 10.0, -2.0, IsFloat(dtype) ? 2.5 : 11.0, IsFloat(dtype) ? double{NAN} : 12.0}) {
      for (const int64_t at : {299, 170, 36}) x.Set(at, bad);
      ExpectWrites(Reference(FirstOutsideOp(), attrs, {x}), 1,
                   [&](const std::vector<Target>& out, int blocks, int threads) {
                     RunOnCpu(FirstOutsideArgs{.in = From(x),
                                               .n = 300,
                                               .low = 0,
                                               .high = 9,
                                               .ignore = -1,
                                               .whole = 1,
                                               .use_ignore = 1,
                                               .out = static_cast<double*>(out[0].data)},
                              blocks, threads);
                   });
    }
  }
}

}  // namespace
}  // namespace bindery::cuda
