// Shapes as tensors, operators whose attributes are numbers in tensors, and what is made of others.
#include "symbol/ops.h"
#include "tests/executor/operator_cases.h"

namespace bindery {
namespace {

Symbol Ints(std::initializer_list<float> numbers) {
  return Constant(HostTensor::From({std::ssize(numbers)}, numbers).Cast(DType::kInt64));
}
Symbol ExtentOf(const Symbol& x, int64_t axis) { return ShapeArray(x, {.begin = axis, .end = axis + 1}); }
Symbol Join(const std::vector<Symbol>& numbers) { return Concat(numbers, {.axis = 0}); }

}  // namespace

std::vector<OperatorCase> ArrangeCases() {
  std::vector<OperatorCase> cases;
  const Symbol x = Variable("x");
  const auto add = [&](const std::string& name, const Symbol& symbol, const Shape& shape) {
    cases.push_back(
        {.name = name, .symbol = symbol, .inputs = {{"x", Uniform(shape)}}, .batch_axes = {{"x", 0}}, .terms = 4});
  };
  const Symbol number = SliceChannel(ShapeArray(x), {.num_outputs = 2, .axis = 0, .squeeze_axis = true})[1];
  add("its extents beside it", Group({Tanh(x), ShapeArray(x), SizeArray(x)}), {3, 4});
  add("ReshapeBy, a view of every sample", ReshapeBy({x, Join({ExtentOf(x, 0), Ints({-1})})}, "y"), {3, 2, 4});
  add("ReshapeBy, rows", ReshapeBy({x, Join({Ints({-1}), ExtentOf(x, 2)})}, "y"), {3, 2, 4});
  add("BroadcastToBy", BroadcastToBy({x, Join({Ints({2}), ShapeArray(x)})}, "y"), {3, 4});
  add("SliceBy", SliceBy({x, Ints({1, 4}), Join({ExtentOf(x, 1), Ints({0})}), Ints({1, 2}), Ints({1, -2})}, "y"),
      {3, 4, 5});
  add("PadBy", PadBy({x, Ints({0, 1}), Join({Ints({0}), ExtentOf(x, 1)})}, "y"), {3, 4});
  const Symbol zero = Constant(HostTensor(DType::kInt64, {})), one = Constant(HostTensor::Full(DType::kInt64, {}, 1));
  add("RangeBy", Group({Tanh(x), RangeBy({zero, number, one}, "y")}), {3, 4});
  add("Range", Group({Tanh(x), Range({.begin = 1.5, .end = -3, .step = -0.75}, "y")}), {3, 4});
  add("Range of integers", Group({Tanh(x), Range({.begin = -3, .end = 4, .step = 2, .dtype = DType::kInt8}, "y")}),
      {3, 4});
  return cases;
}

}  // namespace bindery
