// Bodies of kernels of order and of what is accumulated (bodies_fixture.h).
#include "executor/kernels/cuda/order_body.h"
#include "symbol/ops/order.h"
#include "tests/engine/cuda/cpu_block.h"
#include "tests/executor/cuda/bodies_fixture.h"

namespace bindery::cuda {
namespace {

// (outer, axis, inner)
constexpr int64_t kOuter = 2, kAxis = 23, kInner = 3, kRows = kOuter * kInner;
const Shape kShape = {kOuter, kAxis, kInner};

// A row at once; and by chunks of 5, the last of which has 3.
TEST(CudaOrderBodiesTest, Scans) {
  std::vector<double> scratch(kRows * kAxis);
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16, DType::kInt32, DType::kUInt64}) {
    for (const int flags : {0, 1, 2, 3}) {
      const ScanAttrs attrs{.axis = 1, .exclusive = (flags & 1) != 0, .reverse = (flags & 2) != 0};
      for (const bool product : {false, true}) {
        const HostTensor x = IsFloat(dtype) ? AwayFromZero(kShape, 0.8, 1.2).Cast(dtype)
                                            : Integers(kShape, 1, product ? 2 : 99).Cast(dtype);
        ScanArgs args{.product = product,
                      .exclusive = attrs.exclusive,
                      .reverse = attrs.reverse,
                      .in = From(x),
                      .rows = kRows,
                      .axis = kAxis,
                      .inner = kInner,
                      .chunks = 5,
                      .length = 5,
                      .scratch = scratch.data()};
        const HostTensor expected = Reference(product ? CumProdOp() : CumSumOp(), attrs, {x})[0];
        ExpectOut(args, expected);
        ExpectWrites({expected}, 1, [&](const std::vector<Target>& out, int blocks, int threads) {
          args.out = out[0];
          for (const ScanStage stage : {ScanStage::kTotals, ScanStage::kBefore, ScanStage::kChunks}) {
            args.stage = stage;
            RunOnCpu(args, blocks, threads);
          }
        });
        if (!product || !IsFloat(dtype)) continue;
        const HostTensor dy = Uniform(kShape).Cast(dtype);
        args.grad = 1;
        args.stage = ScanStage::kWhole;
        args.in = From(dy);
        args.x = From(x);
        ExpectOut(args, Reference(CumProdGradOp(), attrs, {dy, x})[0]);
      }
    }
  }
}

// Few numbers, so equal ones, and NaN among them.
HostTensor WithEqual(const Shape& shape, DType dtype) {
  HostTensor x = Integers(shape, 0, 40).Cast(dtype);
  if (IsFloat(dtype)) {
    for (const int64_t i : {0, 10, 31}) x.Set(i, NAN);
    x.Set(33, -INFINITY);
  }
  return x;
}
constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kInt8, DType::kUInt64};

TEST(CudaOrderBodiesTest, OneAfterTheOther) {
  for (const DType dtype : kTypes) {
    const HostTensor x = WithEqual(kShape, dtype);
    for (const int64_t k : {int64_t{4}, kAxis}) {
      for (const bool largest : {true, false}) {
        const auto expected = Reference(TopKOp(), TopKAttrs{.k = k, .axis = 1, .largest = largest}, {x}, 2);
        for (const int by_block : {0, 1}) {
          ExpectWrites(expected, 1, [&](const std::vector<Target>& out, int blocks, int threads) {
            RunOnCpu(TopKArgs{.rows = {kRows, by_block},
                              .in = From(x),
                              .values = out[0],
                              .places = out[1],
                              .axis = kAxis,
                              .inner = kInner,
                              .k = k,
                              .largest = largest},
                     blocks, threads);
          });
        }
      }
    }
  }
}

// Two rows of `axis` elements, in columns, of which `first` are wanted.
void ExpectSorted(int64_t axis, int64_t padded, int64_t first) {
  for (const DType dtype : kTypes) {
    const HostTensor x = WithEqual({axis, 2}, dtype);
    for (const bool largest : {true, false}) {
      const auto expected = Reference(TopKOp(), TopKAttrs{.k = first, .axis = 0, .largest = largest}, {x}, 2);
      ExpectWrites(expected, 1, [&](const std::vector<Target>& out, int blocks, int threads) {
        std::vector<int32_t> places(static_cast<size_t>(2 * padded));
        SortArgs args{.of = {.rows = {.count = 2},
                             .in = From(x),
                             .values = out[0],
                             .places = out[1],
                             .axis = axis,
                             .inner = 2,
                             .k = first,
                             .largest = largest},
                      .padded = padded,
                      .places = places.data()};
        const auto run = [&](SortStage stage) {
          args.stage = stage;
          RunOnCpu(args, blocks, threads);
        };
        run(SortStage::kBegin);
        for (args.size = 2 * SortArgs::kChunk; args.size <= padded; args.size *= 2) {
          for (args.stride = args.size / 2; args.stride >= SortArgs::kChunk; args.stride /= 2) run(SortStage::kStep);
          run(SortStage::kChunks);
        }
        run(SortStage::kEnd);
      });
    }
  }
}

// Rows that are padded to four chunks: all kinds of steps. And those of which a chunk has two, or is one.
TEST(CudaOrderBodiesTest, Sorted) {
  ExpectSorted(2500, 4096, 2200);
  ExpectSorted(70, 128, 70);
  ExpectSorted(900, 1024, 30);
}

}  // namespace
}  // namespace bindery::cuda
