// Random numbers, and numbers that integers stand for.
#include "symbol/ops/random.h"

#include "symbol/ops/quantize.h"
#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

const Symbol kX = Variable("x"), kScale = Variable("scale"), kZero = Variable("zero");

OperatorCase Case(std::string name, const Symbol& symbol, HostTensorMap inputs) {
  return {.name = std::move(name), .symbol = symbol, .inputs = std::move(inputs)};
}

void AddDraws(std::vector<OperatorCase>& cases) {
  const auto add = [&](const std::string& name, const Symbol& symbol, const HostTensor& x, int batch_axis) {
    cases.push_back(Case(name, symbol, {{"x", x}}));
    if (batch_axis >= 0) cases.back().batch_axes = {{"x", batch_axis}};
  };
  for (const int axis : {-1, 0, 1}) {
    const std::string of = fmt::format(", samples along {}", axis);
    add("RandomUniform" + of, RandomUniformLike(kX, {{}, -1, 3}, "y"), Uniform({5, 7}), axis);
    add("RandomNormal" + of, RandomNormalLike(kX, {{}, 0.5, 2}, "y"), Uniform({5, 3, 3}), axis);
    add("RandomInt" + of, RandomIntLike(kX, {{}, -3, 1000}, "y"), Uniform({3, 5}), axis);
    add("Bernoulli" + of, Bernoulli(kX, {}, "y"), Uniform({5, 7}, 0, 1), axis);
  }
  cases.back().step = {.seed = 0x123456789abcdefull, .step = (5ull << 32) + 3, .micro_batch = 2, .sample_offset = 9};
  add("RandomInt of many", RandomIntLike(kX, {{}, -(int64_t{1} << 40), int64_t{1} << 50}, "y"), Uniform({9}), 0);
  cases.back().test_dtypes = {DType::kFloat32, DType::kFloat64};  // beyond the range of float16
  add("Bernoulli of bools", Bernoulli(kX, {.dtype = DType::kBool, .own_dtype = true}, "y"), Uniform({4, 3}, 0, 1), 0);
  cases.back().wrt.emplace();
  add("Multinomial", Multinomial(kX, {.sample_size = 5}, "y"), Uniform({3, 4}, 0, 2), 0);
  cases.back().wrt.emplace();
  add("Multinomial of logarithms", Multinomial(kX, {.sample_size = 3, .logits = true, .dtype = DType::kInt64}, "y"),
      Uniform({2, 6}, -3, 3), -1);
  cases.back().wrt.emplace();
  cases.back().wrong_shapes = {{{"x", {6}}}};
  cases.push_back(Case("numbers of a shape",
                       Group({RandomUniform({{.shape = {3, 5}}}, "u"), RandomNormal({{.shape = {7}}}, "n"),
                              RandomInt({{.shape = {2, 3}, .dtype = DType::kInt16}, 5, 9}, "i")}),
                       {}));
}

void AddQuantized(std::vector<OperatorCase>& cases) {
  const HostTensor numbers = Values({2, 3}, {-2, 0.5, 1.5, 300, -300, 2.6});
  const auto add = [&](const std::string& name, const QuantizeAttrs& attrs, const HostTensor& scale,
                       const HostTensor& zero, const HostTensor& expected) {
    HostTensorMap inputs = {{"x", numbers}, {"scale", scale}};
    if (!attrs.no_zero_point) inputs["zero"] = zero;
    const Symbol zeros = attrs.no_zero_point ? Symbol() : kZero;
    cases.push_back(Case(name, Apply(QuantizeLinearOp(), attrs, {kX, kScale, zeros}, "y"), inputs));
    if (!attrs.no_zero_point) cases.back().dtypes = {{"zero", attrs.dtype}};
    cases.back().forward = [expected](const HostTensorMap&) { return std::vector<HostTensor>{expected}; };
    cases.back().wrt.emplace();
  };
  add("QuantizeLinear", {}, Values({}, {1}), Values({}, {128}), Values({2, 3}, {126, 128, 130, 255, 0, 131}));
  add("QuantizeLinear of columns", {.dtype = DType::kInt8}, Values({3}, {2, 0.5, 1}), Values({3}, {0, -1, 1}),
      Values({2, 3}, {-1, 0, 3, 127, -128, 4}));
  add("QuantizeLinear of rows", {.axis = -2, .no_zero_point = true, .dtype = DType::kInt16}, Values({2}, {0.25, 2}), {},
      Values({2, 3}, {-8, 2, 6, 150, -150, 1}));

  cases.push_back(Case("DequantizeLinear", DequantizeLinear(kX, kScale, kZero, {}, "y"),
                       {{"x", Integers({2, 3, 2}, 0, 255)},
                        {"scale", Values({3}, {0.5, 2, 0.25})},
                        {"zero", Values({3}, {128, 3, 0})}}));
  cases.back().dtypes = {{"x", DType::kUInt8}, {"zero", DType::kUInt8}};
  cases.back().terms = 4;
  cases.back().magnitude = 256;
  cases.back().wrong_shapes = {{{"x", {2, 4, 2}}, {"scale", {3}}}, {{"x", {2, 4}}, {"scale", {2, 1}}}};
  cases.push_back(Case("DequantizeLinear without a zero point",
                       Apply(DequantizeLinearOp(), DequantizeAttrs{.no_zero_point = true}, {kX, kScale}, "y"),
                       {{"x", Integers({4}, -100, 100)}, {"scale", Values({1}, {0.125})}}));
  cases.back().dtypes = {{"x", DType::kInt8}};
  cases.back().terms = 4;
  cases.back().magnitude = 100;
}

}  // namespace

std::vector<OperatorCase> RandomCases() {
  std::vector<OperatorCase> cases;
  AddDraws(cases);
  AddQuantized(cases);
  return cases;
}

}  // namespace bindery
