// Walks over the table of all operators: what every definition must have, whatever it computes.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "symbol/builtin_ops.h"
#include "symbol/infer.h"
#include "symbol/ops.h"
#include "tests/symbol/op_examples.h"
#include "tests/symbol/op_rules.h"
#include "tests/symbol/test_ops.h"

namespace bindery {
namespace {

using Names = std::vector<std::string>;

TEST(OperatorTable, IsFoundByName) {
  std::set<std::string> names;
  for (const OpDef& (*op)() : BuiltinOps()) {
    EXPECT_TRUE(names.insert(op().name).second) << op().name << " is there twice";
    EXPECT_EQ(FindOpOrNull(op().name), &op());
  }
  EXPECT_GE(names.size(), 72u);
  EXPECT_EQ(MessageOf<ModelError>([] { FindOp("Convolutoin"); }),
            "ModelError: unknown operator \"Convolutoin\"; did you mean \"Convolution\"?");
}

TEST(OperatorTable, EveryOperatorHasAnExample) {
  std::set<std::string> with_example;
  for (const OpExample& example : OpExamples()) with_example.insert(example.op->name);
  for (const OpDef& (*op)() : BuiltinOps()) EXPECT_TRUE(with_example.contains(op().name)) << op().name;
}

TEST(OperatorTable, EveryOperatorIsDescribed) {
  for (const OpDef& (*make)() : BuiltinOps()) {
    const OpDef& op = make();
    SCOPED_TRACE(op.name);
    EXPECT_GE(op.doc.size(), 2u);
    EXPECT_TRUE(op.infer);
    const int differentiated = (op.gradient != nullptr) + (op.compose != nullptr) + !op.not_differentiable.empty();
    EXPECT_EQ(differentiated, 1) << "a gradient, what it is made of, or a reason";
    for (const FieldInfo& field : op.attrs_type->Fields()) EXPECT_FALSE(field.doc.empty()) << field.name;
    EXPECT_TRUE(!op.updates || op.inputs.has_auxiliary());
  }
}

TEST(OperatorTable, NamesOfInputsAndOutputsAreUnique) {
  for (const OpExample& example : OpExamples()) {
    SCOPED_TRACE(example.label);
    const Names inputs = example.op->inputs.Names(example.attrs, static_cast<int>(example.inputs.size()));
    const Names outputs = example.op->outputs.Names(example.attrs);
    EXPECT_EQ(inputs.size(), example.inputs.size());
    EXPECT_EQ(std::set(inputs.begin(), inputs.end()).size(), inputs.size());
    EXPECT_EQ(std::set(outputs.begin(), outputs.end()).size(), outputs.size());
    EXPECT_GE(outputs.size(), 1u);
    const int visible = NumVisibleOutputs(*example.op, example.attrs);
    EXPECT_TRUE(visible >= 1 && visible <= static_cast<int>(outputs.size()));
    for (const InplacePair& pair : example.op->inplace) {
      EXPECT_TRUE(pair.input < static_cast<int>(inputs.size()) && pair.output < static_cast<int>(outputs.size()));
    }
  }
}

// Attributes survive a model file's form, alone and with all defaults written out; and over all examples every field
// has been something else than its default once.
TEST(OperatorAttributes, RoundTrip) {
  std::map<const AttrsType*, std::set<std::string>> changed;
  for (const OpExample& example : OpExamples()) {
    SCOPED_TRACE(example.label);
    const AttrsType& type = example.attrs.type();
    EXPECT_EQ(&type, example.op->attrs_type);
    const AttrMap map = example.attrs.ToMap();
    EXPECT_TRUE(type.FromMap(map) == example.attrs);
    EXPECT_TRUE(type.FromMap(example.attrs.ToFullMap()) == example.attrs);
    EXPECT_EQ(example.attrs.ToFullMap().size(), type.Fields().size());
    for (const auto& [name, value] : map) changed[&type].insert(name);
  }
  for (const auto& [type, names] : changed) {
    for (const FieldInfo& field : type->Fields()) {
      EXPECT_TRUE(names.contains(field.name)) << field.name << " is always its default " << field.default_value;
    }
  }
}

TEST(OperatorExamples, ShapesAreCompleteAndConsistent) {
  for (const OpExample& example : OpExamples()) {
    SCOPED_TRACE(example.label);
    if (example.op->check) example.op->check(example.attrs);
    const Shapes inputs(example.inputs.begin(), example.inputs.end());
    const NodeShapes shapes = InferNode(*example.op, example.attrs, inputs, {}, false);
    EXPECT_EQ(shapes.inputs, inputs);
    for (const auto& output : shapes.outputs) EXPECT_TRUE(output && output->IsKnown());
    // All of it at once changes nothing.
    EXPECT_EQ(InferNode(*example.op, example.attrs, shapes.inputs, shapes.outputs), shapes);
    if (!example.op->is_view) continue;
    const ValueType input{.shape = *shapes.inputs[0]}, output{.shape = *shapes.outputs[0]};
    const bool is_view = example.op->is_view({.attrs = example.attrs, .input = input, .output = output});
    EXPECT_TRUE(!is_view || input.shape.Elements() == output.shape.Elements());
  }
}

// Anything forgotten and then inferred must be what it was, or not known: inference never contradicts itself.
TEST(OperatorExamples, PartOfTheKnowledgeGivesNoOtherShapes) {
  for (const OpExample& example : OpExamples()) {
    SCOPED_TRACE(example.label);
    const Shapes inputs(example.inputs.begin(), example.inputs.end());
    const NodeShapes all = InferNode(*example.op, example.attrs, inputs);
    const size_t count = all.inputs.size() + all.outputs.size();
    for (uint32_t forgotten = 0; forgotten < (1u << std::min<size_t>(count, 9)); ++forgotten) {
      NodeShapes part = all;
      for (size_t i = 0; i < count; ++i) {
        if ((forgotten >> i & 1) == 0) continue;
        (i < part.inputs.size() ? part.inputs[i] : part.outputs[i - part.inputs.size()]).reset();
      }
      const NodeShapes found = InferNode(*example.op, example.attrs, part.inputs, part.outputs, false);
      const auto agrees = [](const std::optional<Shape>& shape, const std::optional<Shape>& truth) {
        if (!shape) return true;
        if (shape->rank() != truth->rank()) return false;
        for (int axis = 0; axis < shape->rank(); ++axis) {
          if ((*shape)[axis] != kAny && (*shape)[axis] != (*truth)[axis]) return false;
        }
        return true;
      };
      for (size_t i = 0; i < all.inputs.size(); ++i)
        EXPECT_TRUE(agrees(found.inputs[i], all.inputs[i])) << forgotten << " input " << i;
      for (size_t i = 0; i < all.outputs.size(); ++i)
        EXPECT_TRUE(agrees(found.outputs[i], all.outputs[i])) << forgotten << " output " << i;
    }
  }
}

}  // namespace
}  // namespace bindery
