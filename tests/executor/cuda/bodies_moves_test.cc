// Bodies of kernels that move elements and find them by index (bodies_fixture.h).
#include <numeric>

#include "executor/kernels/cuda/layout_body.h"
#include "symbol/ops/indexing.h"
#include "symbol/ops/order.h"
#include "symbol/ops/shape_ops.h"
#include "tests/engine/cuda/cpu_block.h"
#include "tests/executor/cuda/bodies_fixture.h"

namespace bindery::cuda {
namespace {

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

}  // namespace
}  // namespace bindery::cuda
