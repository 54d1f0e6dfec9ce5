// Attention against the same made of products of matrices and a softmax.
#include <gtest/gtest.h>

#include <cmath>

#include "symbol/gradient.h"
#include "symbol/ops.h"
#include "tests/executor/cases/operator_cases.h"
#include "tests/executor/graph_runner.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

TEST(Operators, Attention) { CheckOperators(AttentionCases()); }
TEST(Operators, MatMul) { CheckOperators(MatMulCases()); }

Symbol Composed(const Symbol& q, const Symbol& k, const Symbol& v, const Symbol& mask, double scale) {
  const Symbol scores = MatMul(q, k, {.transpose_b = true}) * scale + mask;
  return MatMul(Softmax(scores, {.axis = -1}), v);
}

// Outputs and the gradients of q, k, v and mask of the sum of squares.
std::vector<HostTensor> Evaluated(const Symbol& y, const HostTensorMap& inputs, DType dtype) {
  HostTensorMap typed;
  for (const auto& [name, value] : inputs) typed[name] = value.Cast(dtype);
  const std::vector<std::string> wrt = {"q", "k", "v", "mask"};
  std::vector<Symbol> all = {y};
  GivenTypes given;
  for (const auto& [name, value] : inputs) {
    given.shapes[name] = value.shape();
    given.dtypes[name] = dtype;
  }
  for (const Symbol& gradient : Gradient(MakeLoss(Sum(Square(y))), wrt, given).gradients) all.push_back(gradient);
  return RunGraph(Group(all), typed, {.threads = 2}).outputs;
}

TEST(Attention, IsProductsAndASoftmax) {
  const Symbol q = Variable("q"), k = Variable("k"), v = Variable("v"), mask = Variable("mask");
  struct Sizes {
    int64_t samples, queries, keys;
  };
  // One sample of one head is shared by threads.
  for (const auto& [samples, queries, keys] :
       {Sizes{2, 130, 197}, {2, 64, 64}, {2, 1, 300}, {2, 150, 1}, {1, 130, 197}}) {
    const int64_t heads = samples == 1 ? 1 : 3;
    HostTensorMap inputs = {{"q", Uniform({samples, heads, queries, 40}, -2, 2)},
                            {"k", Uniform({samples, heads, keys, 40}, -2, 2)},
                            {"v", Uniform({samples, heads, keys, 70}, -2, 2)},
                            {"mask", Uniform({samples, 1, queries, keys}, -3, 3)}};
    for (auto& [name, value] : inputs) value = value.Cast(DType::kBFloat16).Cast(DType::kFloat64);
    const std::vector<HostTensor> expected = Evaluated(Composed(q, k, v, mask, 0.25), inputs, DType::kFloat64);
    // In bfloat16 outputs are rounded to 2^-9 of themselves, and with them what backward takes from them: gradients are
    // up to 0.011 of the greatest off, with units for products as without.
    for (const auto& [dtype, tolerance] :
         {std::pair{DType::kFloat64, 1e-10}, {DType::kFloat32, 1e-3}, {DType::kBFloat16, 1.5e-2}}) {
      const std::vector<HostTensor> actual = Evaluated(Attention(q, k, v, mask, {.scale = 0.25}, "y"), inputs, dtype);
      for (size_t i = 0; i < expected.size(); ++i) {
        ExpectNear(actual[i].Cast(DType::kFloat64), expected[i], tolerance * std::max(1.0, MaxAbs(expected[i])),
                   fmt::format("{} queries, {} keys, output {}", queries, keys, i));
      }
    }
  }
}

// A mask of zeros and minus infinity is what the windows say.
TEST(Attention, WindowsAreMasks) {
  const Symbol q = Variable("q"), k = Variable("k"), v = Variable("v"), mask = Variable("mask");
  for (const AttentionAttrs& attrs : {AttentionAttrs{.causal = true}, AttentionAttrs{.causal = true, .offset = 41},
                                      AttentionAttrs{.left_window = 70, .right_window = 3, .offset = -5}}) {
    constexpr int64_t kQueries = 131, kKeys = 140;
    HostTensor hidden = Uniform({kQueries, kKeys});
    for (int64_t t = 0; t < kQueries; ++t) {
      const KeyRange seen = SeenKeys(attrs, t, kKeys);
      for (int64_t s = 0; s < kKeys; ++s) hidden.Set(t * kKeys + s, s >= seen.first && s < seen.last ? 0 : -INFINITY);
    }
    HostTensorMap inputs = {{"q", Uniform({1, 4, kQueries, 8})},
                            {"k", Uniform({1, 2, kKeys, 8})},
                            {"v", Uniform({1, 2, kKeys, 8})},
                            {"mask", hidden}};
    for (auto& [name, value] : inputs) value = value.Cast(DType::kBFloat16).Cast(DType::kFloat64);
    const std::vector<HostTensor> expected = Evaluated(Attention(q, k, v, mask, {}, "y"), inputs, DType::kFloat64);
    inputs["mask"] = Uniform({kQueries, kKeys}, 0, 0);
    const std::vector<HostTensor> actual = Evaluated(Attention(q, k, v, mask, attrs, "y"), inputs, DType::kFloat64);
    for (size_t i = 0; i < 4; ++i) ExpectNear(actual[i], expected[i], 1e-12, fmt::format("output {}", i));
  }
}

// Of a query whose keys are all masked by a great number, each has its share of the gradient.
TEST(Attention, AllKeysMayBeMasked) {
  constexpr int64_t kKeys = 70;
  const Symbol q = Variable("q", {.shape = Shape{1, 1, 3, 4}}), k = Variable("k", {.shape = Shape{1, 1, kKeys, 4}});
  const Symbol v = Variable("v", {.shape = Shape{1, 1, kKeys, 2}}), mask = Variable("mask");
  const std::vector<std::string> wrt = {"v"};
  const Symbol grad = Gradient(MakeLoss(Sum(Attention(q, k, v, mask, {}, "y"))), wrt).gradients[0];
  for (const double number : {-1e9, -3.4e38}) {
    HostTensorMap inputs = {{"q", Uniform({1, 1, 3, 4})},
                            {"k", Uniform({1, 1, kKeys, 4})},
                            {"v", Uniform({1, 1, kKeys, 2})},
                            {"mask", HostTensor::Full(DType::kFloat32, {1, 1, 1, kKeys}, number)}};
    for (auto& [name, value] : inputs) value = value.Cast(DType::kFloat32);
    for (const KernelPolicy policy : {KernelPolicy::kFast, KernelPolicy::kReference}) {
      const HostTensor dv = RunGraph(grad, inputs, {.policy = policy}).outputs[0];
      for (int64_t e = 0; e < 2; ++e) {
        double sum = 0;
        for (int64_t key = 0; key < kKeys; ++key) sum += dv.At(key * 2 + e);
        EXPECT_NEAR(sum, 3, 1e-4) << number;
      }
    }
  }
}

TEST(Attention, HeadsAreProjected) {
  const Symbol x = Variable("x");
  const Symbol y = MultiHeadAttention(x, x, x, {}, {.width = 8, .heads = 4, .kv_heads = 2, .causal = true}, "mha");
  const std::vector<std::string> expected = {"x",
                                             "mha_query_weight",
                                             "mha_query_bias",
                                             "mha_key_weight",
                                             "mha_key_bias",
                                             "mha_value_weight",
                                             "mha_value_bias",
                                             "mha_output_weight",
                                             "mha_output_bias"};
  EXPECT_EQ(y.ListArguments(), expected);
  EXPECT_EQ(
      MessageOf<ModelError>([&] { MultiHeadAttention(x, x, x, {}, {.width = 8, .heads = 3}, "mha"); }),
      "ModelError: MultiHeadAttention \"mha\": expected width to be a multiple of heads and heads one of kv_heads, "
      "got 8, 3 and 3");
}

}  // namespace
}  // namespace bindery
