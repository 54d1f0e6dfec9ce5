// Examples of shapes as tensors, of operators by numbers in tensors, and of what is made of others.
#include "symbol/ops.h"
#include "tests/symbol/example_list.h"

namespace bindery {
namespace {

void AddShapeArrays(Examples& e) {
  e.Add(ShapeArrayOp(), ShapeArrayAttrs{.begin = 1, .end = -1}, {{5, 4, 3}});
  e.Add(SizeArrayOp(), {}, {{5, 4, 3}});
  e.Add(RangeOp(), RangeAttrs{.begin = 7, .end = -1, .step = -2.5, .dtype = DType::kInt16}, {});
  e.Add(RangeOp(), RangeAttrs{.end = 4}, {});
  e.Add(ReshapeBy.op(), ReshapeAttrs{}, {{5, 4, 3}, {3}});
  e.Add(BroadcastToBy.op(), ToShapeAttrs{}, {{3, 1}, {3}}, {-1, -1});
  e.Add(SliceBy.op(), SliceAttrs{}, {{5, 7, 6}, {2}, {2}, {2}, {2}});
  e.Add(PadBy.op(), PadWithAttrs{.mode = PadMode::kEdge}, {{5, 3}, {2}, {2}});
  e.Add(RangeBy.op(), RangeAttrs{.dtype = DType::kInt64}, {{}, {}, {}});
  for (const ByNumbersFunction* by : {&ExpandDimsBy, &SqueezeBy}) e.Add(by->op(), AxesAttrs{}, {{5, 1, 3, 1}, {2}});
  e.Add(ExpandBy.op(), ToShapeAttrs{}, {{5, 1, 3}, {2}});
  e.Add(TileBy.op(), TileAttrs{}, {{5, 2, 3}, {2}});
  e.Add(TopKBy.op(), TopKAttrs{}, {{5, 4}, {1}});
  e.Add(OneHotBy.op(), OneHotAttrs{}, {{5, 4}, {}});
  e.Add(SplitBy.op(), SplitAttrs{.axis = 1, .num_outputs = 2}, {{5, 4}, {2}});
  e.Add(CenterCropPadBy.op(), CenterCropPadAttrs{.axes = {1, 2}}, {{5, 4, 4}, {2}});
  e.Add(AffineGridBy.op(), AffineGridAttrs{.align_corners = true}, {{5, 2, 3}, {2}});
  e.Add(ResizeBy.op(), ResizeAttrs{.axes = {1, 2}}, {{5, 4, 3}, {0}, {2}, {0}});
}

}  // namespace

void AddArranged(Examples& e) {
  AddShapeArrays(e);
  e.Add(ExpandDimsOp(), AxesAttrs{{-1, 1}}, {{5, 3}});
  e.Add(SqueezeOp(), AxesAttrs{{-1, 1}}, {{5, 1, 3, 1}});
  e.Add(SqueezeOp(), AxesAttrs{}, {{5, 1, 3, 1}});
  e.Add(SwapAxesOp(), SwapAxesAttrs{2, -2}, {{5, 4, 3}});
  e.Add(ExpandOp(), ToShapeAttrs{.shape = {2, 0, 3, 1}, .batches = {0, 1, 0, 0}}, {{5, 1, 4}});
  e.Add(TileOp(), TileAttrs{{2, 1, 3}}, {{5, 4}});
  e.Add(TileOp(), TileAttrs{{3}}, {{5, 4, 2}});
  e.Add(RepeatOp(), RepeatAttrs{.repeats = 2, .axis = -1}, {{5, 4, 3}});
  e.Add(RepeatOp(), RepeatAttrs{.repeats = 3, .flatten = true}, {{5, 4, 3}});
  e.Add(SplitOp(), SplitAttrs{.axis = -1, .sizes = {1, 0, 3}}, {{5, 4}});
  e.Add(SplitOp(), SplitAttrs{.axis = 1, .num_outputs = 3}, {{5, 7}});
  e.Add(CropOp(), CropAttrs{.shape = {2, 3}, .offset = {1, 0}}, {{5, 3, 4}});
  e.Add(CropOp(), CropAttrs{.shape = {2}, .center = true}, {{5, 3, 5}});
  e.Add(CenterCropPadOp(), CenterCropPadAttrs{.shape = {5, 2}, .axes = {-1, 1}}, {{5, 5, 2}});
  const PadWithAttrs pad{.begin = {2, -1}, .end = {-1, 4}, .axes = {1, -1}, .value = 0.5};
  for (const PadMode mode : {PadMode::kConstant, PadMode::kReflect, PadMode::kEdge, PadMode::kWrap}) {
    PadWithAttrs attrs = pad;
    attrs.mode = mode;
    e.Add(PadWithOp(), attrs, {{5, 3, 4}});
  }
  for (const DepthMode mode : {DepthMode::kDCR, DepthMode::kCRD}) {
    e.Add(DepthToSpaceOp(), DepthAttrs{.block = 3, .mode = mode}, {{5, 18, 2, 1}});
    e.Add(SpaceToDepthOp(), DepthAttrs{.block = 3, .mode = mode}, {{5, 2, 6, 3}});
  }
  e.Add(FullLikeOp(), FullLikeAttrs{1.5}, {{5, 4}});
  e.Add(EyeLikeOp(), EyeLikeAttrs{-1}, {{3, 4}}, {-1});
  e.Add(
      ResampleOp(),
      ResampleAttrs{
          .axis = 1, .extent = 4, .starts = {0, 2, 2, 3}, .indices = {3, 0, 1}, .weights = {0.5, -1, 2}, .outside = 3},
      {{5, 4, 2}});
  e.Add(ResizeOp(), ResizeAttrs{.scales = {1, 2, 0.6}}, {{5, 3, 7}});
  e.Add(ResizeOp(), ResizeAttrs{.mode = ResizeMode::kLinear, .scales = {1, 2, 0.6}, .antialias = true}, {{5, 3, 7}});
  e.Add(ResizeOp(),
        ResizeAttrs{.mode = ResizeMode::kCubic,
                    .coordinates = Coordinates::kCropAndResize,
                    .sizes = {5, 4},
                    .axes = {-1, 1},
                    .roi = {0.2, 0, 1.3, 1},
                    .cubic_coefficient = -0.5,
                    .exclude_outside = true,
                    .extrapolation = 3},
        {{5, 3, 7}});
  e.Add(ResizeOp(),
        ResizeAttrs{.mode = ResizeMode::kLinear,
                    .nearest = NearestMode::kCeil,
                    .sizes = {0, 2, 4},
                    .sizes_batches = {1, 0, 0},
                    .antialias = true},
        {{5, 3, 7}});
  e.Add(ResizeOp(), ResizeAttrs{.sizes = {2, 4}, .axes = {1, 2}, .aspect = AspectPolicy::kNotLarger}, {{5, 3, 7}});
  e.Add(AffineGridOp(), AffineGridAttrs{.sizes = {3, 4}, .align_corners = true}, {{5, 2, 3}});
  e.Add(AffineGridOp(), AffineGridAttrs{.sizes = {2, 3, 4}}, {{5, 3, 4}});
  e.Add(GridSampleOp(), GridSampleAttrs{}, {{5, 3, 4, 2}, {5, 2, 6, 2}});
  e.Add(GridSampleOp(), GridSampleAttrs{.mode = ResizeMode::kCubic, .align_corners = true},
        {{5, 3, 4, 2}, {5, 2, 6, 2}});
  e.Add(GridSampleOp(), GridSampleAttrs{.mode = ResizeMode::kNearest, .padding = GridPadding::kReflection},
        {{5, 3, 4, 2, 3}, {5, 2, 6, 1, 3}});
  e.Add(GridSampleGradDataOp(), GridSampleGradAttrs{{}, {4, 2}}, {{5, 3, 2, 6}, {5, 2, 6, 2}});
  e.Add(
      GridSampleGradDataOp(),
      GridSampleGradAttrs{
          {.mode = ResizeMode::kNearest, .padding = GridPadding::kBorder, .align_corners = true}, {4, 2, 3}, {0, 0, 0}},
      {{5, 3, 2, 6, 1}, {5, 2, 6, 1, 3}});
  e.Add(GridSampleGradGridOp(), GridSampleAttrs{.padding = GridPadding::kReflection},
        {{5, 3, 2, 6}, {5, 3, 4, 2}, {5, 2, 6, 2}});
}

std::map<int, HostTensor> ExampleNumbers(const OpDef& op) {
  const auto list = [](std::initializer_list<float> numbers) {
    return HostTensor::From({std::ssize(numbers)}, numbers).Cast(DType::kInt64);
  };
  const auto number = [](double value) { return HostTensor::Full(DType::kInt64, {}, value); };
  if (&op == &ReshapeBy.op()) return {{1, list({0, -1, 2})}};
  if (&op == &BroadcastToBy.op()) return {{1, list({4, 3, 2})}};
  if (&op == &SliceBy.op()) return {{1, list({1, -1})}, {2, list({9, 0})}, {3, list({2, 1})}, {4, list({2, -2})}};
  if (&op == &PadBy.op()) return {{1, list({0, 2})}, {2, list({0, 1})}};
  if (&op == &RangeBy.op()) return {{0, number(1)}, {1, number(8)}, {2, number(3)}};
  if (&op == &ExpandDimsBy.op()) return {{1, list({1, -1})}};
  if (&op == &SqueezeBy.op()) return {{1, list({1, -1})}};
  if (&op == &ExpandBy.op()) return {{1, list({4, 1})}};
  if (&op == &TopKBy.op()) return {{1, list({2})}};
  if (&op == &OneHotBy.op()) return {{1, number(4)}};
  if (&op == &TileBy.op()) return {{1, list({2, 1})}};
  if (&op == &SplitBy.op()) return {{1, list({1, 3})}};
  if (&op == &CenterCropPadBy.op()) return {{1, list({6, 3})}};
  if (&op == &AffineGridBy.op()) return {{1, list({3, 4})}};
  if (&op == &ResizeBy.op()) return {{1, list({})}, {2, list({3, 5})}, {3, list({})}};
  return {};
}

}  // namespace bindery
