#include "symbol/ops/cross_entropy.h"

#include <cmath>

#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

// The losses and the weights, written here a second time: data (N, K, S).
std::vector<HostTensor> Formula(const CrossEntropyAttrs& attrs, int64_t k, int64_t s, const HostTensorMap& in) {
  const HostTensor &x = in.at("x"), &label = in.at("label");
  HostTensor loss(DType::kFloat64, label.shape()), weight = loss;
  const auto w = [&](int64_t i) { return attrs.use_weight ? in.at("w").At(i) : 1; };
  for (int64_t i = 0; i < label.elements(); ++i) {
    if (attrs.use_ignore && label.At(i) == attrs.ignore_label) continue;
    const auto at = [&](int64_t c) { return x.At((i / s * k + c) * s + i % s); };
    double sum = 0, smooth = 0;
    for (int64_t c = 0; c < k; ++c) sum += std::exp(at(c));
    const double log_sum = attrs.log_input ? 0 : std::log(sum);
    for (int64_t c = 0; c < k; ++c) smooth += w(c) * (log_sum - at(c)) / static_cast<double>(k);
    const auto own = static_cast<int64_t>(label.At(i));
    weight.Set(i, w(own));
    loss.Set(i, (1 - attrs.label_smoothing) * w(own) * (log_sum - at(own)) + attrs.label_smoothing * smooth);
  }
  return {loss, weight};
}

}  // namespace

std::vector<OperatorCase> CrossEntropyCases() {
  std::vector<OperatorCase> cases;
  const Symbol x = Variable("x"), label = Variable("label"), w = Variable("w");
  const auto add = [&](const std::string& name, const Shape& shape, const CrossEntropyAttrs& attrs, DType dtype) {
    const int axis = static_cast<int>(attrs.axis < 0 ? attrs.axis + shape.rank() : attrs.axis);
    const int64_t k = shape[axis], s = shape.CountFrom(axis + 1);
    OperatorCase c{.name = "cross entropy, " + name,
                   .symbol = Apply(CrossEntropyOp(), attrs, {x, label, attrs.use_weight ? w : Symbol()}, "y"),
                   .inputs = {{"x", Uniform(shape, -3, attrs.log_input ? -0.1 : 3)},
                              {"label", Integers(shape.Erase(axis), 0, k - 1)}},
                   .dtypes = {{"label", dtype}},
                   .tolerance = 4,
                   .magnitude = 4,
                   .wrt = std::vector<std::string>{"x"},
                   .forward = [=](const HostTensorMap& in) { return Formula(attrs, k, s, in); }};
    if (attrs.use_weight) c.inputs["w"] = Uniform({k}, 0.5, 2);
    if (axis != 0) c.batch_axes = {{"x", 0}, {"label", 0}};
    cases.push_back(std::move(c));
  };
  for (const bool log_input : {false, true}) {
    const std::string of = log_input ? " of logarithms" : "";
    add("rows" + of, {6, 5}, {.log_input = log_input}, DType::kInt64);
    cases.back().wrong_shapes = {{{"x", {6, 5}}, {"label", {5}}}, {{"x", {6, 0}}}};
    add("long rows" + of, {3, 40}, {.use_ignore = true, .ignore_label = 7, .log_input = log_input}, DType::kInt64);
    add("many rows" + of, {70, 3}, {.label_smoothing = 0.1, .log_input = log_input}, DType::kInt64);
    add("weights" + of, {6, 5}, {.use_weight = true, .log_input = log_input}, DType::kInt32);
    add("smoothing" + of, {6, 5}, {.label_smoothing = 0.2, .log_input = log_input}, DType::kFloat32);
    add("weights and smoothing" + of, {2, 5, 3},
        {.axis = 1, .use_weight = true, .label_smoothing = 0.2, .log_input = log_input}, DType::kInt64);
    add("ignored labels" + of, {2, 5, 3, 2},
        {.axis = 1, .use_ignore = true, .ignore_label = 2, .use_weight = true, .log_input = log_input}, DType::kUInt8);
    add("everything, last axis" + of, {2, 3, 7},
        {.use_ignore = true, .ignore_label = 0, .use_weight = true, .label_smoothing = 0.1, .log_input = log_input},
        DType::kInt16);
  }
  add("classes first", {5, 4}, {.axis = 0}, DType::kInt64);
  add("one class", {3, 1}, {}, DType::kInt64);
  add("rows of 700", {3, 700}, {.label_smoothing = 0.1}, DType::kInt64);
  cases.back().terms = 700;
  for (const LossReduction reduction : {LossReduction::kSum, LossReduction::kMean}) {
    cases.push_back(
        {.name = fmt::format("cross entropy, reduction {}", static_cast<int>(reduction)),
         .symbol = SoftmaxCrossEntropy(x, label, {.use_ignore = true, .ignore_label = 1}, reduction, w, "y"),
         .inputs = {{"x", Uniform({6, 5}, -3, 3)},
                    {"label", Values({6}, {0, 1, 4, 3, 1, 2})},
                    {"w", Uniform({5}, 0.5, 2)}},
         .dtypes = {{"label", DType::kInt64}},
         .test_dtypes = {DType::kFloat32, DType::kFloat64},
         .terms = 6,
         .tolerance = 4,
         .magnitude = 4,
         .wrt = std::vector<std::string>{"x"}});
  }
  return cases;
}

}  // namespace bindery
