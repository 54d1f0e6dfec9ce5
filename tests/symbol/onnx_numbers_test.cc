// Shape sub-graphs of ONNX files: numbers that are computed while a file is read, or when its model is bound.
#include <gtest/gtest.h>

#include "symbol/infer.h"
#include "symbol/onnx/onnx.h"
#include "tests/symbol/onnx_models.h"

namespace bindery {
namespace {

Model Import(const std::string& graph) { return ParseOnnx(OnnxBytes(graph), "m.onnx"); }

Shape OutputShape(const Model& model, const std::string& input, const Shape& shape) {
  return *InferShapes(model.symbol, {{input, shape}}).outputs.at(0);
}

// As TensorFlow's attention has it: of two batches the larger. What a factor is multiplied by has its own shape.
TEST(OnnxNumbers, TheLargestExtentMayFollowTheBatch) {
  const auto result = [](const std::string& most, const std::string& scale) {
    return Import(OnnxInput("x", "N, 4, 6") + OnnxInt64s("two", "2", "0, 1") + OnnxInt64s("ends", "2", "2, 3") +
                  OnnxInt64s("one", "1", "1") + OnnxFloats("half", scale, "0.5") + OnnxNode("Shape", "x", "s") +
                  OnnxNode("Gather", "s two", "n") + most + OnnxNode("Concat", "m ends", "to", OnnxInt("axis", 0)) +
                  OnnxNode("Reshape", "x to", "r") + OnnxNode("Mul", "r half", "h") +
                  OnnxNode("Softmax", "h", "y", OnnxInt("axis", -1)) + OnnxOutput("y"));
  };
  const std::string largest[] = {OnnxNode("Max", "n n", "m"), OnnxNode("Max", "one n", "m"),
                                 OnnxNode("Min", "n n", "m")};
  for (const std::string& most : largest) {
    EXPECT_EQ(OutputShape(result(most, ""), "x", {5, 4, 6}), (Shape{5, 4, 2, 3}));
  }
  // Where it is computed when the model is bound, nothing is known of the result before.
  const std::string computed = OnnxNode("Cast", "n", "f", OnnxInt("to", 1)) + OnnxNode("Max", "f f", "l") +
                               OnnxNode("Cast", "l", "m", OnnxInt("to", 7));
  for (const char* scale : {"", "1"}) {
    const Model model = result(computed, scale);
    const std::optional<Shape> before = InferShapesPartial(model.symbol, {}).outputs[0];
    EXPECT_TRUE(!before || before->rank() == 4);
    EXPECT_EQ(OutputShape(model, "x", {5, 4, 6}), (Shape{5, 4, 2, 3}));
  }
}

}  // namespace
}  // namespace bindery
