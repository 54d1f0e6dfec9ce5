// Hostile attributes and shapes, as in a file of somebody who means harm: every operator, every field with every odd
// value, every input with every odd shape. The result is an Error or a right answer: no crash, no overflow (run under
// the undefined-behaviour sanitizer), no huge allocation, no negative extent.
//
// The classes are those that struck TensorFlow: division by an extent of 0; element counts and sizes that overflow;
// allocation by an attribute's value; negative numbers taken as unsigned; axes out of range; empty tensors; gradient
// operators that trust that shapes agree; ranks checked but not the relations between extents.
#include <gtest/gtest.h>

#include "base/error.h"
#include "symbol/infer.h"
#include "symbol/ops.h"
#include "tests/symbol/hostile_values.h"
#include "tests/symbol/op_examples.h"
#include "tests/symbol/op_rules.h"

namespace bindery {
namespace {

int64_t errors = 0, answers = 0;

void ExpectSane(const Shapes& shapes) {
  for (const auto& shape : shapes) {
    if (!shape) continue;
    for (int64_t extent : *shape) EXPECT_GE(extent, kUnknownDim);
  }
}

// Shapes, what kernels ask for at bind, and batch axes, of one node. Everything that is thrown must be an Error.
void TryNode(const OpDef& op, const AnyAttrs& attrs, Shapes inputs, Shapes outputs = {}) {
  try {
    const NodeShapes found = InferNode(op, attrs, std::move(inputs), std::move(outputs));
    ExpectSane(found.inputs);
    ExpectSane(found.outputs);
    EXPECT_EQ(InferNode(op, attrs, found.inputs, found.outputs), found) << "inference had not come to an end";
    ++answers;

    std::vector<Shape> shapes;
    std::vector<int> axes;
    for (const auto& shape : found.inputs) {
      if (!shape || !shape->IsKnown()) return;
      shapes.push_back(*shape);
      axes.push_back(shape->rank() - 1);
    }
    for (const auto& shape : found.outputs) {
      if (!shape || !shape->IsKnown()) return;
      shape->Elements();
    }
    for (const auto& [i, numbers] : ExampleNumbers(op)) {  // which OutputBatchAxes takes
      if (shapes[static_cast<size_t>(i)] != numbers.shape()) return;
    }
    if (op.name == "Pooling") PoolWindows(attrs.get<PoolingAttrs>(), shapes[0]);
    if (op.name == "Slice") SliceRanges(attrs.get<SliceAttrs>(), shapes[0], {});
    const std::vector<int> found_axes = OutputBatchAxes(op, attrs, shapes, axes);
    for (size_t i = 0; i < found.outputs.size(); ++i) {
      EXPECT_TRUE(found_axes[i] >= -1 && found_axes[i] < found.outputs[i]->rank());
    }
  } catch (const Error&) {
    ++errors;
  }
}

// The usual shapes; all inputs odd alike; the output odd.
void TryShapes(const OpExample& example, const AnyAttrs& attrs) {
  const OpDef& op = *example.op;
  Shapes usual(example.inputs.begin(), example.inputs.end());
  usual.resize(op.inputs.Count(attrs, static_cast<int>(usual.size())));
  TryNode(op, attrs, usual);
  for (const Shape& odd : HostileShapes()) {
    TryNode(op, attrs, Shapes(usual.size(), odd));
    Shapes outputs(NumOutputs(op, attrs));
    outputs[0] = odd;
    TryNode(op, attrs, Shapes(usual.size()), outputs);
  }
}

// One input odd, the others usual or not known; the output odd and all inputs usual.
void TryEachInput(const OpExample& example) {
  const OpDef& op = *example.op;
  const Shapes usual(example.inputs.begin(), example.inputs.end());
  for (const Shape& odd : HostileShapes()) {
    for (size_t i = 0; i < usual.size(); ++i) {
      Shapes inputs = usual, alone(usual.size());
      inputs[i] = alone[i] = odd;
      TryNode(op, example.attrs, inputs);
      TryNode(op, example.attrs, alone);
    }
    Shapes outputs(NumOutputs(op, example.attrs));
    outputs[0] = odd;
    TryNode(op, example.attrs, usual, outputs);
  }
}

TEST(HostileOperators, EveryShape) {
  for (const OpExample& example : OpExamples()) {
    SCOPED_TRACE(example.label);
    TryShapes(example, example.attrs);
    TryEachInput(example);
  }
  EXPECT_GT(errors, 1200);
  EXPECT_GT(answers, 1200);
}

// Attributes come as from a file: by name, then checked.
TEST(HostileOperators, EveryAttribute) {
  errors = answers = 0;
  for (const OpExample& example : OpExamples()) {
    const AttrMap usual = example.attrs.ToFullMap();
    for (const auto& [field, value] : usual) {
      const std::vector<AttrValue> odd_values = HostileValues(value);
      for (size_t i = 0; i < odd_values.size(); ++i) {
        SCOPED_TRACE(example.label + " with " + field + " " + std::to_string(i));
        AttrMap map = usual;
        map[field] = odd_values[i];
        try {
          const AnyAttrs attrs = example.op->attrs_type->FromMap(map);
          if (example.op->check) example.op->check(attrs);
          EXPECT_LE(NumOutputs(*example.op, attrs), 1 << 16);
          TryShapes(example, attrs);
        } catch (const Error&) {
          ++errors;
        }
      }
    }
  }
  EXPECT_GT(errors, 1200);
  EXPECT_GT(answers, 1200);
}

// Every dtype at every input: an Error or dtypes for all.
TEST(HostileOperators, EveryDType) {
  for (const OpExample& example : OpExamples()) {
    SCOPED_TRACE(example.label);
    const OpDef& op = *example.op;
    for (size_t i = 0; i < example.inputs.size(); ++i) {
      for (int a = 0; a < kNumDTypes; ++a) {
        for (int b = 0; b < kNumDTypes; ++b) {
          std::vector<std::optional<DType>> inputs(example.inputs.size(), static_cast<DType>(a));
          inputs[i] = static_cast<DType>(b);
          try {
            const NodeDTypes found = InferNodeDTypes(op, example.attrs, inputs);
            for (const auto& dtype : found.outputs) EXPECT_TRUE(dtype);
            EXPECT_EQ(InferNodeDTypes(op, example.attrs, found.inputs, found.outputs), found);
          } catch (const ShapeError&) {
          }
        }
      }
    }
  }
}

// Gradient operators do not trust that shapes agree.
TEST(HostileOperators, GradientsOfOtherShapesAreRefused) {
  int refused = 0;
  for (const OpExample& example : OpExamples()) {
    SCOPED_TRACE(example.label);
    const OpDef& op = *example.op;
    if (op.name.find("Grad") == std::string::npos || op.name == "BlockGrad") continue;
    Shapes inputs(example.inputs.begin(), example.inputs.end());
    if (inputs.size() == 1) continue;
    const Shape shape = *inputs[0];
    bool refuses = false;  // the batch's extent may be in one input alone
    for (int axis = 0; axis < shape.rank(); ++axis) {
      inputs[0] = shape.With(axis, shape[axis] + 1);
      try {
        InferNode(op, example.attrs, inputs);
      } catch (const ShapeError&) {
        refuses = true;
      }
    }
    EXPECT_TRUE(refuses);
    ++refused;
  }
  EXPECT_GE(refused, 20);
}

}  // namespace
}  // namespace bindery
