// What special_values_test.cc says of the first operators, of those of sequences, norms, products and reductions:
// where values are not finite, both tables of kernels give the same, forward and backward.
#include "tests/executor/operators/unusual_values.h"

#include <gtest/gtest.h>

#include "symbol/gradient.h"
#include "symbol/ops.h"
#include "tests/executor/values.h"

namespace bindery {
namespace {

const Symbol x = Variable("x"), w = Variable("w"), v = Variable("v");

// So small that no gate is at its end but by what is unusual.
HostTensor Small(const Shape& shape) {
  HostTensor tensor = WithOne(shape, 0.5f, 0);
  for (float& value : tensor.data<float>()) value *= 0.125f;
  return tensor;
}
HostTensor Usual(const Shape& shape) { return WithOne(shape, 0.5f, 0); }

// Every cell; more than a block of hidden units; steps back, lengths, initial states, and what cells may have.
TEST(UnusualValues, Recurrent) {
  using enum RecurrentCell;
  std::vector<RecurrentAttrs> forms = {{.cell = kGru, .hidden = 5, .reset_after = false},
                                       {.hidden = 5, .peepholes = true},
                                       {.hidden = 5, .coupled = true}};
  for (const RecurrentCell cell : {kRelu, kTanh, kLstm, kGru}) {
    forms.push_back({.cell = cell, .hidden = cell == kLstm ? 67 : 19});
    forms.push_back({.cell = cell, .hidden = 5, .reverse = true, .initial = true, .lengths = true});
    forms.push_back({.cell = cell, .hidden = 5, .clip = 0.75});
  }
  for (const RecurrentAttrs& attrs : forms) {
    const int64_t hidden = attrs.hidden, gates = attrs.cell == kLstm ? 4 : attrs.cell == kGru ? 3 : 1;
    std::vector<Symbol> inputs;
    HostTensorMap values;
    std::vector<std::string> wrt;
    const auto input = [&](const char* name, const Shape& shape) {
      inputs.push_back(Variable(name));
      values[name] = Small(shape);
      wrt.push_back(name);
    };
    input("x", {3, 2, gates * hidden});
    input("w", {gates * hidden, hidden});
    if (attrs.cell == kGru && attrs.reset_after) input("b", {hidden});
    if (attrs.peepholes) input("p", {3 * hidden});
    if (attrs.initial) input("h", {2, hidden});
    if (attrs.initial && attrs.cell == kLstm) input("c", {2, hidden});
    if (attrs.lengths) {
      inputs.push_back(Variable("n"));
      values["n"] = Values({2}, {3, 1});
    }
    ExpectSameBackward(Recurrent(inputs, attrs, "y"), values, wrt);
  }
}

TEST(UnusualValues, Attention) {
  struct Form {
    int64_t heads, kv_heads, queries, keys, depth;
    AttentionAttrs attrs;
  };
  for (const auto& [heads, kv_heads, queries, keys, depth, attrs] : {Form{2, 2, 3, 5, 4, {}},
                                                                     {4, 2, 5, 3, 9, {.softcap = 1.5}},
                                                                     {1, 1, 70, 67, 3, {}},
                                                                     {2, 1, 5, 5, 4, {.causal = true}},
                                                                     {2, 2, 5, 5, 4, {.left_window = 1}},
                                                                     {1, 1, 6, 4, 4, {.causal = true, .offset = -2}}}) {
    const HostTensorMap inputs = {{"x", Small({2, heads, queries, depth})},
                                  {"w", Usual({2, kv_heads, keys, depth})},
                                  {"v", Usual({2, kv_heads, keys, 3})}};
    ExpectSameBackward(Attention(x, w, v, attrs, "y"), inputs, {"x", "w", "v"});
    HostTensorMap masked = inputs;
    masked["m"] = Usual({queries, keys});
    ExpectSameBackward(Attention(x, w, v, Variable("m"), attrs, "y"), masked, {"x", "w", "v", "m"});
  }
}

// Groups by position and by channel, with and without what they may have.
TEST(UnusualValues, Norms) {
  for (const Shape& shape : {Shape{3, 8, 5, 5}, {2, 20, 3, 7}, {2, 4, 150}}) {
    const HostTensorMap data = {{"x", Usual(shape)}};
    for (const NormalizeAttrs& attrs : std::vector<NormalizeAttrs>{{.axis = -1},
                                                                   {.axis = 1},
                                                                   {.axis = -1, .center = false, .shift = false},
                                                                   {.groups = 2},
                                                                   {.groups = -1},
                                                                   {.groups = 1, .scale = false, .shift = false},
                                                                   {.groups = 4, .center = false, .sum = true}}) {
      HostTensorMap inputs = data;
      std::vector<std::string> wrt = {"x"}, of = {"x"};
      std::vector<int64_t> extents = {shape[1]};
      if (attrs.groups == 0) extents.assign(shape.begin() + (attrs.axis < 0 ? shape.rank() - 1 : 1), shape.end());
      for (const std::string name : {"y_gamma", "y_beta"}) {
        if (!(name == "y_gamma" ? attrs.scale : attrs.shift)) continue;
        inputs[name] = Usual(Shape(extents));
        wrt.push_back(name);
        if (name == "y_beta") of.push_back(name);
      }
      const Symbol y = Normalize(x, attrs, "y");
      ExpectSameBackward(y, inputs, wrt, of);
      // An infinite gamma is joined to other factors: infinity times a sum, or a sum of infinities.
      if (attrs.scale) ExpectSameBackward(y, inputs, wrt, {"y_gamma"}, {NAN});
    }
    for (const L2Mode mode : {L2Mode::kInstance, L2Mode::kChannel, L2Mode::kSpatial}) {
      ExpectSameBackward(L2Normalization(x, mode, 1e-10, "y"), data);
    }
    for (const int64_t size : {1, 4, 5}) ExpectSameBackward(LRN(x, {.size = size, .alpha = 0.5}, "y"), data);
  }
}

// Products of matrices and of batches of them, one of which may serve all; vectors; either way round.
TEST(UnusualValues, Products) {
  for (const auto& [left, right] : {std::pair<Shape, Shape>{{2, 3, 4, 5}, {2, 3, 5, 6}},
                                    {{3, 4, 5}, {5, 6}},
                                    {{4, 5}, {3, 5, 6}},
                                    {{2, 1, 4, 5}, {3, 5, 6}},
                                    {{3, 4, 5}, {5}},
                                    {{5}, {3, 5, 6}},
                                    {{2, 70, 80}, {2, 80, 66}}}) {
    ExpectSameBackward(MatMul(x, w, {}, "y"), {{"x", Usual(left)}, {"w", Usual(right)}}, {"x", "w"});
  }
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      const MatMulAttrs attrs{.transpose_a = a, .transpose_b = b};
      const HostTensorMap matrices = {{"x", Usual(a ? Shape{33, 7} : Shape{7, 33})},
                                      {"w", Usual(b ? Shape{20, 33} : Shape{33, 20})}};
      ExpectSameBackward(Dot(x, w, attrs, "y"), matrices, {"x", "w"});
      ExpectSameBackward(
          MatMul(x, w, attrs, "y"),
          {{"x", Usual(a ? Shape{2, 9, 5} : Shape{2, 5, 9})}, {"w", Usual(b ? Shape{2, 7, 9} : Shape{2, 9, 7})}},
          {"x", "w"});
    }
  }
  ExpectSameBackward(Dot(x, w, {}, "y"), {{"x", Usual({37})}, {"w", Usual({37})}}, {"x", "w"});
}

TEST(UnusualValues, CTC) {
  const HostTensorMap inputs = {{"x", Usual({5, 3, 9})}, {"a", Values({3, 2}, {1, 3, 2, 2, 8, 0})}};
  for (const bool zero : {false, true}) {
    ExpectSameBackward(CTCLoss(x, Variable("a"), {.zero_infinity = zero}, "y"), inputs);
    const CTCLossAttrs attrs{.use_data_lengths = true, .use_label_lengths = true, .zero_infinity = zero};
    HostTensorMap lengths = inputs;
    lengths["n"] = Values({3}, {5, 2, 0});
    lengths["l"] = Values({3}, {2, 2, 1});
    ExpectSameBackward(Apply(CTCLossOp(), attrs, {x, Variable("a"), Variable("n"), Variable("l")}, "y"), lengths);
  }
}

// Of one, two and three spatial axes; windows that overlap, leave gaps, reach beyond the data, or hold more than 256.
TEST(UnusualValues, Pooling) {
  struct Form {
    Shape data;
    PoolingAttrs attrs;
  };
  for (const int64_t channels : {3, 16, 20}) {
    for (Form& form : std::vector<Form>{
             {{2, channels, 11}, {.kernel = {3}, .stride = {2}, .pad = {1}}},
             {{2, channels, 11}, {.global = true}},
             {{2, channels, 17, 17}, {.global = true}},
             {{2, channels, 8, 7}, {.kernel = {2, 3}, .stride = {3, 2}, .ceil_mode = true, .count_include_pad = false}},
             {{2, channels, 8, 7}, {.kernel = {3, 2}, .pad = {1, 1}, .dilate = {2, 1}, .count_include_pad = false}},
             {{2, channels, 5, 4, 3}, {.kernel = {2, 2, 2}, .pad = {1, 0, 1}}},
             {{2, channels, 5, 4, 3}, {.global = true}}}) {
      for (const PoolType type : {PoolType::kMax, PoolType::kAvg}) {
        form.attrs.type = type;
        ExpectSameBackward(Pooling(x, form.attrs, "y"), {{"x", Usual(form.data)}});
      }
    }
  }
}

// Along one axis and several: short rows, long ones, strips, and all.
TEST(UnusualValues, Reductions) {
  struct Form {
    Shape data;
    std::vector<int64_t> axes;
  };
  for (const auto& [data, axes] : {Form{{2, 5, 3, 7}, {}},
                                   {{2, 5, 3, 7}, {1}},
                                   {{2, 5, 3, 7}, {2, 3}},
                                   {{2, 5, 3, 7}, {0, 2, 3}},
                                   {{2, 5, 3, 7}, {1, 3}},
                                   {{70, 5}, {1}},
                                   {{2, 150}, {1}},
                                   {{3, 70}, {0}},
                                   {{2, 9000}, {1}}}) {
    const bool many = data.Elements() > 1000;  // a product of so many is 0 on the way, or not, by their order
    for (const OpDef& (*op)() : {SumOp, MeanOp, MaxOp, MinOp, ProdOp, L1NormOp, L2NormOp, SumSquareOp, LogSumExpOp}) {
      if (many && op == ProdOp) continue;
      ExpectSameBackward(Apply(op(), ReduceAttrs{.axes = axes}, {x}, "y"), {{"x", Usual(data)}});
    }
  }
}

// The places of the largest and the smallest, and all in order; two of a kind, too.
TEST(UnusualValues, Order) {
  for (const auto& [shape, axis] : {std::pair<Shape, int64_t>{{3, 37}, 1}, {{37, 3}, 0}, {{2, 11, 6}, 1}}) {
    for (const float value : kUnusual) {
      for (const float other : kUnusual) {
        for (const int64_t place : {int64_t{0}, shape.Elements() / 2, shape.Elements() - 1}) {
          HostTensor data = WithOne(shape, value, place);
          data.Set((place + 5) % shape.Elements(), other);
          for (const bool last : {false, true}) {
            ExpectSameUnusual(ArgMax(x, {.axis = axis, .select_last_index = last}, "y"), {{"x", data}});
            ExpectSameUnusual(ArgMin(x, {.axis = axis, .select_last_index = last}, "y"), {{"x", data}});
            ExpectSameUnusual(TopK(x, {.k = 5, .axis = axis, .largest = last}, "y"), {{"x", data}});
            ExpectSameUnusual(CumSum(x, {.axis = axis, .reverse = last}, "y"), {{"x", data}});
            ExpectSameUnusual(CumProd(x, {.axis = axis, .reverse = last}, "y"), {{"x", data}});
          }
        }
      }
    }
    for (const bool exclusive : {false, true}) {
      ExpectSameBackward(CumProd(x, {.axis = axis, .exclusive = exclusive}, "y"), {{"x", Usual(shape)}}, {"x"}, {},
                         {NAN});
    }
  }
}

// Products of what is before that 16 bits cannot hold, where the gradient is 1.
TEST(UnusualValues, SmallProductsOfHalves) {
  const Symbol y = CumProd(x, {.axis = 0}, "y");
  GivenTypes given;
  given.shapes["x"] = {4};
  given.dtypes["x"] = DType::kFloat16;
  const GradientResult gradient = Gradient(y, y.ListArguments(), given);
  const RunResult result = RunGraph(gradient.gradients[0],
                                    {{"x", Values({4}, {1e-4, 1e-4, 1e4, 1e4}).Cast(DType::kFloat16)},
                                     {gradient.head_gradients[0], Values({4}, {0, 0, 0, 1e4}).Cast(DType::kFloat16)}},
                                    {});
  EXPECT_NEAR(result.outputs[0].At(2), 1, 0.01);
}

// Slopes of curves far out, where squares are infinite.
TEST(UnusualValues, Curves) {
  for (const Symbol& y : {GeluTanh(x, "y"), Gelu(x, "y"), Mish(x, "y"), HardSwish(x, "y")}) {
    ExpectSameBackward(y, {{"x", Usual({3, 37})}}, {"x"}, {}, {3e19f, -3e19f});
  }
}

}  // namespace
}  // namespace bindery
