// Shape sub-graphs of ONNX files: numbers that are computed while a file is read, or when its model is bound.
#include <gtest/gtest.h>

#include "symbol/infer.h"
#include "symbol/onnx/onnx.h"
#include "tests/message_of.h"
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

// The extents of x (batch, time, 6), each as a list of one.
std::string ExtentsOfText() {
  return OnnxInput("x", "batch, time, 6") + OnnxInt64s("zero", "1", "0") + OnnxInt64s("one", "1", "1") +
         OnnxInt64s("two", "1", "2") + OnnxNode("Shape", "x", "s") + OnnxNode("Gather", "s zero", "n") +
         OnnxNode("Gather", "s one", "t") + OnnxNode("Gather", "s two", "c");
}

// As PyTorch writes x.expand(n, -1, c): what is -1 stays as it is.
TEST(OnnxNumbers, AnExtentThatIsOpenLeavesTheOthersKnown) {
  const Model model =
      Import(ExtentsOfText() + OnnxInt64s("rest", "1", "-1") + OnnxInt64s("count", "1", "3") +
             OnnxNode("Concat", "n rest c", "asked", OnnxInt("axis", 0)) +
             OnnxNode("ConstantOfShape", "count", "ones",
                      "attribute { name: 'value' t { dims: [1] data_type: 7 int64_data: [1] } } ") +
             OnnxNode("Mul", "ones rest", "rests") + OnnxNode("Equal", "asked rests", "is_rest") +
             OnnxNode("Where", "is_rest ones asked", "to") + OnnxNode("Expand", "x to", "e") +
             // A layer of 6 inputs shows that they are known.
             OnnxFloats("w", "6, 4", "1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6") +
             OnnxNode("Concat", "n t two rest", "heads", OnnxInt("axis", 0)) + OnnxNode("MatMul", "e w", "m") +
             OnnxNode("Reshape", "m heads", "h") + OnnxNode("Shape", "h", "y") + OnnxOutput("h") + OnnxOutput("y"));
  for (const int64_t time : {1, 5}) EXPECT_EQ(OutputShape(model, "x", {3, time, 6}), (Shape{3, time, 2, 2}));
}

// Masks of what comes later, (1, 1, time, time), as numbers of places that are compared: of any length.
TEST(OnnxNumbers, ARangeAsLongAsAnOpenExtent) {
  const Model model =
      Import(ExtentsOfText() + OnnxInt64s("begin", "", "0") + OnnxInt64s("step", "", "1") +
             OnnxInt64s("front", "3", "0, 1, 2") + OnnxInt64s("both", "3", "0, 1, 3") +
             OnnxNode("Squeeze", "t zero", "end") + OnnxNode("Range", "begin end step", "places") +
             OnnxNode("Unsqueeze", "places front", "keys") + OnnxNode("Unsqueeze", "places both", "queries") +
             OnnxNode("LessOrEqual", "keys queries", "sees") + OnnxNode("Shape", "sees", "as") +
             OnnxNode("Gather", "as two", "last") + OnnxNode("Concat", "n one last last", "to", OnnxInt("axis", 0)) +
             OnnxNode("Expand", "sees to", "y") + OnnxOutput("y"));
  for (const int64_t time : {1, 5}) EXPECT_EQ(OutputShape(model, "x", {3, time, 6}), (Shape{3, 1, time, time}));
}

// Three sizes of a batch do not show what holds of every one: it may be 1.
TEST(OnnxNumbers, TheBatchIsComparedWhenItIsKnown) {
  const auto result = [](const std::string& op, const std::string& with) {
    return Import(
        ExtentsOfText() + OnnxInt64s("other", "1", with) + OnnxInt64s("three", "1", "3") +
        OnnxInt64s("rest", "1", "-1") + OnnxNode(op, "n other", "is") + OnnxNode("Where", "is three two", "rows") +
        OnnxNode("Concat", "rows rest", "to", OnnxInt("axis", 0)) + OnnxNode("Reshape", "x to", "y") + OnnxOutput("y"));
  };
  const Shape three{3, 8}, two{2, 12};
  EXPECT_EQ(OutputShape(result("Equal", "1"), "x", {1, 4, 6}), three);
  EXPECT_EQ(OutputShape(result("Equal", "-1"), "x", {1, 4, 6}), two);
  EXPECT_EQ(OutputShape(result("Less", "2"), "x", {1, 4, 6}), three);
  EXPECT_EQ(OutputShape(result("Greater", "0"), "x", {1, 4, 6}), three);
  for (const char* op : {"Less", "Equal"}) {
    EXPECT_EQ(OutputShape(result(op, "2"), "x", {4, 1, 6}), (Shape{2, 12})) << op;
  }
}

// How often something is copied may follow the batch, too.
TEST(OnnxNumbers, CopiesForEachSample) {
  const Model model = Import(ExtentsOfText() + OnnxFloats("p", "1, 2, 6", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12") +
                             OnnxNode("Concat", "n one one", "often", OnnxInt("axis", 0)) +
                             OnnxNode("Tile", "p often", "y") + OnnxOutput("y"));
  EXPECT_EQ(OutputShape(model, "x", {3, 5, 6}), (Shape{3, 2, 6}));
}

TEST(OnnxNumbers, WhatCannotStayOpenSaysWhatToState) {
  const std::string body = OnnxInput("i", "", 7) + OnnxInput("go", "", 9) + OnnxInput("v", "2") +
                           OnnxNode("Identity", "go", "again") + OnnxNode("Add", "v v", "w") + OnnxOutput("again") +
                           OnnxOutput("w");
  const std::string graph = ExtentsOfText() + OnnxFloats("start", "2", "1, 2") +
                            OnnxNode("Squeeze", "t zero", "trips") +
                            OnnxNode("Loop", "trips - start", "y", OnnxGraph("body", body)) + OnnxOutput("y");
  const std::string message = MessageOf<ModelError>([&] { Import(graph); });
  EXPECT_NE(message.find("the file leaves open axis 1 (\"time\") of input \"x\": state them"), std::string::npos)
      << message;
  const Model stated = ParseOnnx(OnnxBytes(graph), "m.onnx", "", {.shapes = {{"x", {2, 3, 6}}}});
  EXPECT_EQ(*InferShapes(stated.symbol, {}).outputs.at(0), Shape{2});
}

}  // namespace
}  // namespace bindery
