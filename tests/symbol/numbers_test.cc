// Shapes that follow from the numbers in tensors: of constants, of shapes, and of what is computed from these.
#include <gtest/gtest.h>

#include "base/error.h"
#include "symbol/gradient.h"
#include "symbol/infer.h"
#include "symbol/ops.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

Symbol Integers(std::initializer_list<float> numbers) {
  return Constant(HostTensor::From({std::ssize(numbers)}, numbers).Cast(DType::kInt64));
}
Symbol Integer(double number) { return Constant(HostTensor::Full(DType::kInt64, {}, number)); }
Symbol Part(const Symbol& numbers, int64_t begin, int64_t end) {
  return Slice(numbers, {.begin = {begin}, .end = {end}});
}

const Symbol x = Variable("x");  // batched along its first axis

ValueType TypeOf(const Symbol& symbol, const Shape& shape) {
  const Graph graph = Graph::Of(Group({symbol, x}));
  return InferTypes(graph, {{"x", shape}}, {}, {{"x", 0}})[graph.IndexOf(symbol.entry().node)][0];
}

// The numbers that a symbol holds for an x of this shape.
std::vector<double> NumbersIn(const Symbol& symbol, const Shape& shape) {
  const Graph graph = Graph::Of(Group({symbol, x}));
  NodeNumbers numbers;
  InferTypes(graph, {{"x", shape}}, {}, {{"x", 0}}, {}, &numbers);
  std::vector<double> result;
  for (const Number& number : numbers[graph.IndexOf(symbol.entry().node)][0].value_or(Numbers{})) {
    result.push_back(number.at[0]);
  }
  return result;
}
using List = std::vector<double>;

// x.view(x.size(0), -1)
Symbol View(const Symbol& x) {
  return ReshapeBy({x, Concat({Part(ShapeArray(x), 0, 1), Integers({-1})}, {.axis = 0})});
}

TEST(Numbers, AViewKeepsTheBatch) {
  for (const int64_t n : {1, 3, 12}) {  // 12: as many as a sample has elements
    EXPECT_EQ(TypeOf(View(x), {n, 3, 4}), (ValueType{DType::kFloat32, {n, 12}, 0}));
    EXPECT_EQ(TypeOf(View(View(x)), {n, 3, 4}), (ValueType{DType::kFloat32, {n, 12}, 0}));
  }
  // Seen as rows: the batch is folded, and comes back.
  const Symbol rows = ReshapeBy({x, Concat({Integers({-1}), Part(ShapeArray(x), -1, 9)}, {.axis = 0})});
  EXPECT_EQ(TypeOf(rows, {4, 4, 4}), (ValueType{DType::kFloat32, {16, 4}, 0, {1, 4}}));
  EXPECT_EQ(TypeOf(ReshapeBy({rows, ShapeArray(x)}), {4, 4, 4}), (ValueType{DType::kFloat32, {4, 4, 4}, 0}));
}

// A batch of one sample, too, has the extent 1, wherever it is known to be the batch. The sample's elements that are left
// are that batch, folded.
TEST(Numbers, SqueezeTakesABatchOfOne) {
  EXPECT_EQ(TypeOf(Squeeze(x), {1, 3, 1}), (ValueType{DType::kFloat32, {3}, 0, {1, 3}}));
  EXPECT_EQ(TypeOf(Squeeze(x), {2, 3, 1}), (ValueType{DType::kFloat32, {2, 3}, 0}));
  EXPECT_EQ(TypeOf(Squeeze(x, {{-1}}), {1, 3, 1}), (ValueType{DType::kFloat32, {1, 3}, 0}));
}

TEST(Numbers, AreComputed) {
  const Symbol shape = ShapeArray(x);
  const Shape of{2, 3, 7};
  EXPECT_EQ(NumbersIn(shape, of), (List{2, 3, 7}));
  EXPECT_EQ(NumbersIn(ShapeArray(x, {.begin = -2}), of), (List{3, 7}));
  EXPECT_EQ(NumbersIn(SizeArray(x), of), (List{42}));
  EXPECT_EQ(NumbersIn(shape / Integer(2), of), (List{1, 1, 3}));
  EXPECT_EQ(NumbersIn(Negative(shape) / Integer(2), of), (List{-1, -1, -3}));  // towards zero
  EXPECT_EQ(NumbersIn(Mod(shape, Integer(2)) * shape - Integer(1), of), (List{-1, 2, 6}));
  EXPECT_EQ(NumbersIn(shape / Integer(0), of), List{});
  const Symbol scaled = Floor(Cast(shape, {.dtype = DType::kFloat32}) * 2.5);
  EXPECT_EQ(NumbersIn(Cast(scaled, {.dtype = DType::kInt64}), of), (List{5, 7, 17}));
  EXPECT_EQ(NumbersIn(Part(shape, kSliceEnd, 0), of), List{});
  EXPECT_EQ(NumbersIn(Slice(shape, {.begin = {-1}, .end = {-9}, .step = {-2}}), of), (List{7, 2}));
  EXPECT_EQ(NumbersIn(SliceChannel(shape, {.num_outputs = 3, .axis = 0})[2] + Integer(1), of), (List{8}));
  EXPECT_EQ(NumbersIn(Transpose(Reshape(Concat({shape, shape}, {.axis = 0}), {.shape = {2, 3}})), of),
            (List{2, 2, 3, 3, 7, 7}));
  EXPECT_EQ(NumbersIn(BroadcastTo(Integer(4), {.shape = {3}}), of), (List{4, 4, 4}));
  EXPECT_EQ(NumbersIn(Pad(shape, {.begin = {1}, .end = {1}, .value = -1}), of), (List{-1, 2, 3, 7, -1}));
  EXPECT_EQ(NumbersIn(Take(shape, Integers({-1, 0})), of), (List{7, 2}));
  EXPECT_EQ(NumbersIn(Take(shape, Integers({-1}), {.mode = IndexMode::kClip}), of),
            List{});  // the first: not looked up
  EXPECT_EQ(NumbersIn(Cast(Constant(HostTensor::From({3}, {2.75, -2.75, 0.5})), {.dtype = DType::kInt32}), of),
            (List{2, -2, 0}));
  EXPECT_EQ(NumbersIn(Cast(Constant(HostTensor::From({2}, {0.5, 0})), {.dtype = DType::kBool}), of), (List{1, 0}));
  const Symbol asked = Integers({-1, 5, 7});
  EXPECT_EQ(NumbersIn(Where(Equal(asked, Integer(-1)), shape, asked), of), (List{2, 5, 7}));
  EXPECT_EQ(NumbersIn(RangeBy({Integer(0), SliceChannel(shape, {.num_outputs = 3, .axis = 0, .squeeze_axis = true})[1],
                               Integer(1)},
                              RangeAttrs{.dtype = DType::kInt64}),
                      of),
            (List{0, 1, 2}));
  // Float32 rounds as it does when it runs: 0.29 * 100 is 29 there.
  const Symbol hundred = Cast(Integers({100}), {.dtype = DType::kFloat32});
  EXPECT_EQ(NumbersIn(Floor(hundred * Constant(HostTensor::From({1}, {0.29f}))), of), (List{29}));
}

// Kernels wrap where a type ends, and doubles have not all of int64: there nothing is told.
TEST(Numbers, AreExactOrUnknown) {
  const auto bytes = [](std::initializer_list<float> values) {
    return Constant(HostTensor::From({std::ssize(values)}, values).Cast(DType::kUInt8));
  };
  EXPECT_EQ(NumbersIn(bytes({100}) + bytes({100}), {2}), (List{200}));
  EXPECT_EQ(NumbersIn(bytes({200}) + bytes({100}), {2}), List{});
  EXPECT_EQ(NumbersIn(bytes({1}) - bytes({2}), {2}), List{});
  EXPECT_EQ(NumbersIn(Negative(bytes({1})), {2}), List{});
  EXPECT_EQ(NumbersIn(Sum(bytes({200, 100})), {2}), List{});
  EXPECT_EQ(NumbersIn(Max(bytes({200, 100})), {2}), (List{200}));
  const Symbol nothing = Slice(Equal(bytes({1}), bytes({1})), {.begin = {0}, .end = {0}});
  EXPECT_EQ(NumbersIn(Max(nothing), {2}), (List{0}));
  EXPECT_EQ(NumbersIn(Min(nothing), {2}), (List{1}));
  EXPECT_EQ(NumbersIn(Cast(bytes({200, 100}), {.dtype = DType::kInt8}), {2}), (List{-56, 100}));  // the low bits
  EXPECT_EQ(NumbersIn(bytes({5}) + 1.0, {2}), (List{6}));
  EXPECT_EQ(NumbersIn(bytes({5}) + -1.0, {2}), List{});  // is no byte: not 5 + 0
  EXPECT_EQ(NumbersIn(Integer(4) * 0.5, {2}), List{});
  const Symbol large = Integer(0x1p53), most = Constant(HostTensor::Full(DType::kInt64, {}, HUGE_VAL));
  EXPECT_EQ(NumbersIn(large - Integer(1), {2}), List{});  // 2^53 may be 2^53 + 1
  EXPECT_EQ(NumbersIn(large * Integer(2), {2}), List{});
  EXPECT_EQ(NumbersIn(Equal(large, large), {2}), List{});
  EXPECT_EQ(NumbersIn(Minimum(most, Integer(5)), {2}), (List{5}));
  EXPECT_EQ(NumbersIn(Less(Integer(5), most), {2}), (List{1}));
}

TEST(Numbers, DataHaveNone) {
  EXPECT_EQ(NumbersIn(x + x, {2}), List{});
  const Symbol many = Constant(HostTensor(DType::kInt64, {kMaxNumbers + 1}));
  EXPECT_EQ(NumbersIn(many, {2}), List{});
  EXPECT_EQ(MessageOf<ShapeError>([&] {
              TypeOf(ReshapeBy({x, Variable("shape", {.shape = Shape{2}})}, "r"), {2, 3});
            }),
            "ShapeError: ReshapeBy \"r\": the shape of its output \"r_output\" does not follow from its inputs; the "
            "numbers in \"shape\" have to follow from constants and from shapes");
  EXPECT_EQ(MessageOf<ShapeError>([&] {
              TypeOf(ReshapeBy({x, Integers({-1, -1})}, "r"), {2, 3});
            }),
            "ShapeError: ReshapeBy \"r\": Reshape \"made\": shape may have one -1, got (-1, -1)");
}

// Rows of nothing are not counted through.
TEST(Numbers, ManyTimesNothing) {
  const Symbol nothing = Constant(HostTensor(DType::kInt64, {int64_t{1} << 40, 0}));
  EXPECT_EQ(NumbersIn(Take(nothing, Part(ShapeArray(x), 0, 0), {.axis = 1}), {2}), List{});
}

// Some extents of a shape are known while others are not.
TEST(Numbers, InPart) {
  const Symbol columns = Part(ShapeArray(x), 1, 2);
  const Symbol y = BroadcastToBy({Variable("row", {.shape = Shape{1}}), columns});
  const InferredShapes shapes = InferShapesPartial(Group({x, y}), {{"x", {kUnknownDim, 3}}});
  EXPECT_EQ(shapes.outputs[1], Shape{3});
}

TEST(Numbers, AllAttributes) {
  const Symbol shape = ShapeArray(x);
  const auto from = [&](int64_t axis) { return Part(shape, axis, axis + 1); };
  EXPECT_EQ(TypeOf(SliceBy({x, Integers({1}), from(1) - Integer(1), Integers({1}), Integers({2})}), {5, 6}),
            (ValueType{DType::kFloat32, {5, 2}, 0}));
  EXPECT_EQ(TypeOf(PadBy({x, Integers({0, 1}), Concat({Integers({0}), from(1)}, {.axis = 0})}), {5, 6}),
            (ValueType{DType::kFloat32, {5, 13}, 0}));
  EXPECT_EQ(TypeOf(BroadcastToBy({Variable("row", {.shape = Shape{6}}), shape}), {5, 6}),
            (ValueType{DType::kFloat32, {5, 6}, 0}));
}

// A gradient that is taken for one batch fits every other: extents by numbers follow the batch.
TEST(Numbers, GradientsFollowTheBatch) {
  const Symbol n = Part(ShapeArray(x), 0, 1);
  const Symbol part =
      SliceBy({x, Integers({0, 1}), Concat({n, Integers({3})}, {.axis = 0}), Integers({0, 1}), Integers({1, 1})});
  const Symbol square = Square(part + BroadcastToBy({Variable("b", {.shape = Shape{}}), ShapeArray(part)}));
  const std::vector<std::string> wrt = {"x", "b"};
  const GradientResult gradient = Gradient(View(square), wrt, {.shapes = {{"x", {4, 4}}}, .batch_axes = {{"x", 0}}});
  for (const int64_t batch : {1, 4, 9}) {
    const Symbol all = Group({View(square), gradient.gradients[0], gradient.gradients[1]});
    const Graph graph = Graph::Of(all);
    const NodeTypes types = InferTypes(graph, {{"x", {batch, 4}}, {gradient.head_gradients[0], {batch, 2}}}, {},
                                       {{"x", 0}, {gradient.head_gradients[0], 0}});
    const auto type = [&](int output) { return types[graph.IndexOf(graph.outputs[output].node)][0]; };
    EXPECT_EQ(type(0), (ValueType{DType::kFloat32, {batch, 2}, 0}));
    EXPECT_EQ(type(1), (ValueType{DType::kFloat32, {batch, 4}, 0}));
    EXPECT_EQ(type(2).shape, Shape());
  }
  EXPECT_NE(MessageOf<ModelError>([&] { Gradient(View(square), wrt); }).find("give the shapes of arguments"),
            std::string::npos);
}

// What does not grow by the same for each sample fits no other batch: a gradient of every batch would be wrong there.
TEST(Numbers, GradientsOfWhatOnlyOneBatchHasAreRefused) {
  const Symbol odd = Mod(Part(ShapeArray(x), 0, 1), Integer(2));
  const auto columns = [](const Symbol& count) { return Concat({Integers({0}), count}, {.axis = 0}); };
  const Symbol moved = PadBy({x, columns(odd), columns(Integer(1) - odd)}, "moved");
  const Symbol cut = CenterCropPad(x, {.shape = {3, 4}}, "cut");
  for (const Symbol& symbol : {moved, cut}) {
    const std::vector<std::string> wrt = {"x"};
    EXPECT_THROW(Gradient(symbol, wrt, {.shapes = {{"x", {4, 8}}}, .batch_axes = {{"x", 0}}}), ModelError)
        << symbol.name();
    EXPECT_NO_THROW(Gradient(symbol, wrt, {.shapes = {{"x", {4, 8}}}}));
  }
}

// What only gives its shape has no gradient.
TEST(Numbers, AShapeIsNoPath) {
  const Symbol y = BroadcastToBy({Variable("b", {.shape = Shape{}}), ShapeArray(Variable("x"))});
  const std::vector<std::string> wrt = {"x", "b", "x"};
  const GradientResult gradient = Gradient(y, wrt, {.shapes = {{"x", {4, 4}}}});
  ASSERT_EQ(gradient.gradients.size(), 3u);
  EXPECT_TRUE(gradient.gradients[0].empty() && gradient.gradients[2].empty());
  EXPECT_FALSE(gradient.gradients[1].empty());
}

}  // namespace
}  // namespace bindery
