// Loss heads: their gradients are checked against formulas, written here a second time, element by element.
#include "symbol/ops/loss.h"

#include <cmath>

#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

constexpr double kBatchSize = 4;  // of the whole step, in the step block; not the extent of the data

// Data (N, K, S): softmax over K at each of the S positions.
struct Extents {
  int64_t n, k, s;
};

// (p - target) grad_scale / divisor, element by element.
HostTensor SoftmaxOutputFormula(const SoftmaxOutputAttrs& attrs, const Extents& e, const HostTensor& p,
                                const HostTensor& label, const HostTensor* head) {
  const bool distribution = label.shape() == p.shape();
  double valid = 0;
  for (int64_t i = 0; i < label.elements(); ++i) valid += !(attrs.use_ignore && label.At(i) == attrs.ignore_label);
  double divisor = 1;
  if (attrs.normalization == Normalization::kBatch) divisor = kBatchSize;
  if (attrs.normalization == Normalization::kValid) divisor = valid > 1 ? valid : 1;
  if (attrs.normalization != Normalization::kValid && attrs.multi_output) divisor *= static_cast<double>(e.s);
  HostTensor dx(DType::kFloat64, p.shape());
  for (int64_t i = 0; i < p.elements(); ++i) {
    const int64_t s = i % e.s, k = i / e.s % e.k, n = i / e.s / e.k;
    double target;
    if (distribution) {
      target = label.At(i);
    } else {
      const double l = label.At(n * e.s + s);
      if (attrs.use_ignore && l == attrs.ignore_label) continue;
      target = l == static_cast<double>(k) ? 1 - attrs.smooth_alpha : attrs.smooth_alpha / static_cast<double>(e.k - 1);
    }
    dx.Set(i, (p.At(i) - target) * attrs.grad_scale / divisor * (head ? head->At(i) : 1));
  }
  return dx;
}

OperatorCase SoftmaxOutputCase(const std::string& name, const Shape& data, const Extents& e, const HostTensor& label,
                               const SoftmaxOutputAttrs& attrs, DType label_dtype = DType::kFloat32) {
  return {.name = "SoftmaxOutput " + name,
          .symbol = SoftmaxOutput(Variable("x"), Variable("label"), attrs, "y"),
          .inputs = {{"x", Uniform(data, -3, 3)}, {"label", label.Cast(label_dtype).Cast(DType::kFloat64)}},
          .dtypes = {{"label", label_dtype}},
          .batch_axes = {{"x", 0}, {"label", 0}},
          .step = {.batch_size = static_cast<int64_t>(kBatchSize)},
          .tolerance = 4,
          .magnitude = attrs.grad_scale,
          .wrt = std::vector<std::string>{"x"},
          .gradient = [=](const HostTensorMap& in, const std::vector<HostTensor>& outputs) -> HostTensorMap {
            const HostTensor* head = attrs.out_grad ? &in.at("y_output_grad") : nullptr;
            return {{"x", SoftmaxOutputFormula(attrs, e, outputs[0], in.at("label"), head)}};
          }};
}

void AddSoftmaxOutput(std::vector<OperatorCase>& cases) {
  const HostTensor labels = Values({6}, {1, 0, 4, 2, 2, 3}), with_ignored = Values({6}, {1, 0, 4, 2, 0, 3});
  const auto add = [&](const std::string& name, const SoftmaxOutputAttrs& attrs, DType dtype = DType::kFloat32) {
    cases.push_back(SoftmaxOutputCase(name, {6, 5}, {6, 5, 1}, attrs.use_ignore ? with_ignored : labels, attrs, dtype));
  };
  add("null", {});
  cases.back().wrong_shapes = {{{"x", {6, 5}}, {"label", {5}}}};
  add("scale", {.grad_scale = 2.5});
  for (Normalization n : {Normalization::kNull, Normalization::kBatch, Normalization::kValid}) {
    const std::string name = EnumNames(&n)[static_cast<int>(n)].name;
    add(name + ", int32 labels", {.normalization = n}, DType::kInt32);
    add(name + ", ignore 0", {.normalization = n, .use_ignore = true, .ignore_label = 0}, DType::kUInt8);
    add(name + ", smoothing", {.grad_scale = 0.5, .normalization = n, .smooth_alpha = 0.2});
    cases.push_back(SoftmaxOutputCase(name + ", all ignored", {2, 3}, {2, 3, 1}, Values({2}, {-1, -1}),
                                      {.normalization = n, .use_ignore = true}));
    const HostTensor map = Integers({2, 3, 2}, 0, 3);
    cases.push_back(
        SoftmaxOutputCase(name + ", map", {2, 4, 3, 2}, {2, 4, 6}, map, {.normalization = n, .multi_output = true}));
    cases.push_back(
        SoftmaxOutputCase(name + ", map, ignore 2", {2, 4, 3, 2}, {2, 4, 6}, map,
                          {.normalization = n, .use_ignore = true, .ignore_label = 2, .multi_output = true}));
    cases.push_back(SoftmaxOutputCase(name + ", map of 20 channels, smoothing", {2, 20, 2, 2}, {2, 20, 4},
                                      Integers({2, 2, 2}, 0, 19),
                                      {.normalization = n, .smooth_alpha = 0.1, .multi_output = true}));
    cases.push_back(SoftmaxOutputCase(name + ", last axis", {2, 3, 4}, {6, 4, 1}, Integers({2, 3}, 0, 3),
                                      {.normalization = n, .preserve_shape = true}));
    if (n != Normalization::kValid) {  // which counts class numbers
      cases.push_back(
          SoftmaxOutputCase(name + ", probabilities", {4, 5}, {4, 5, 1}, Uniform({4, 5}, 0, 1), {.normalization = n}));
    }
    add(name + ", head gradient", {.normalization = n, .out_grad = true});
  }
  add("int64 labels", {}, DType::kInt64);
  add("bfloat16 labels", {}, DType::kBFloat16);
  cases.push_back(SoftmaxOutputCase("of images", {3, 2, 1, 2}, {3, 4, 1}, Values({3}, {3, 0, 2}), {}));
  cases.push_back(SoftmaxOutputCase("of one class", {3, 1}, {3, 1, 1}, Values({3}, {0, 0, 0}), {}));
}

void AddOthers(std::vector<OperatorCase>& cases) {
  const Symbol x = Variable("x"), label = Variable("label");
  const auto regression = [&](const std::string& name, const Shape& shape, const Shape& labels, double scale,
                              double per_sample) {
    cases.push_back({.name = "LinearRegressionOutput " + name,
                     .symbol = LinearRegressionOutput(x, label, {.grad_scale = scale}, "y"),
                     .inputs = {{"x", Uniform(shape, -2, 2)}, {"label", Uniform(labels, -2, 2)}},
                     .batch_axes = {{"x", 0}, {"label", 0}},
                     .magnitude = 1,
                     .wrt = std::vector<std::string>{"x"},
                     .gradient = [=](const HostTensorMap& in, const std::vector<HostTensor>&) -> HostTensorMap {
                       HostTensor dx(DType::kFloat64, shape);
                       for (int64_t i = 0; i < dx.elements(); ++i) {
                         dx.Set(i, (in.at("x").At(i) - in.at("label").At(i)) * scale / per_sample);
                       }
                       return {{"x", dx}};
                     }});
  };
  regression("of numbers", {5}, {5}, 1, 1);
  regression("of vectors", {4, 3}, {4, 3}, 1, 3);
  regression("scaled", {4, 3, 2}, {4, 3, 2}, 0.5, 6);
  regression("of a column", {4, 1}, {4, 1}, 1, 1);

  const auto sign = [](double d) -> double { return (d > 0) - (d < 0); };
  for (const bool mae : {false, true}) {
    const LinearRegressionOutputAttrs attrs{.grad_scale = 0.5};
    cases.push_back({.name = mae ? "MAERegressionOutput" : "LogisticRegressionOutput",
                     .symbol = (mae ? MAERegressionOutput : LogisticRegressionOutput)(x, label, attrs, "y"),
                     .inputs = {{"x", Uniform({4, 3}, -2, 2)}, {"label", Uniform({4, 3}, -0.5, 0.5)}},
                     .batch_axes = {{"x", 0}, {"label", 0}},
                     .magnitude = 1,
                     .wrt = std::vector<std::string>{"x"},
                     .gradient = [=](const HostTensorMap& in, const std::vector<HostTensor>&) -> HostTensorMap {
                       HostTensor dx(DType::kFloat64, {4, 3});
                       for (int64_t i = 0; i < 12; ++i) {
                         const double a = in.at("x").At(i), b = in.at("label").At(i);
                         dx.Set(i, (mae ? sign(a - b) : 1 / (1 + std::exp(-a)) - b) * 0.5 / 3);
                       }
                       return {{"x", dx}};
                     }});
  }
  for (const bool linear : {false, true}) {
    cases.push_back({.name = linear ? "SVMOutput, L1" : "SVMOutput, L2",
                     .symbol = SVMOutput(x, label, {.margin = 0.75, .regularization = 2, .use_linear = linear}, "y"),
                     .inputs = {{"x", Uniform({4, 3}, -1.5, 1.5)}, {"label", Values({4}, {2, 0, 1, 2})}},
                     .dtypes = {{"label", DType::kInt32}},
                     .batch_axes = {{"x", 0}, {"label", 0}},
                     .magnitude = 1,
                     .gradient = [=](const HostTensorMap& in, const std::vector<HostTensor>&) -> HostTensorMap {
                       HostTensor dx(DType::kFloat64, {4, 3});
                       for (int64_t i = 0; i < 12; ++i) {
                         const double a = in.at("x").At(i);
                         const bool own = in.at("label").At(i / 3) == static_cast<double>(i % 3);
                         const double h = own ? std::max(0.75 - a, 0.0) : std::max(0.75 + a, 0.0);
                         dx.Set(i, (own ? -2 : 2) * (linear ? (h > 0 ? 1 : 0) : 2 * h));
                       }
                       return {{"x", dx}};
                     },
                     .wrong_shapes = {{{"x", {4, 3}}, {"label", {3}}}, {{"x", {4}}}}});
  }

  for (Normalization n : {Normalization::kNull, Normalization::kBatch, Normalization::kValid}) {
    const Shape shape{3, 4};
    cases.push_back(
        {.name = std::string("MakeLoss ") + EnumNames(&n)[static_cast<int>(n)].name,
         .symbol = MakeLoss(x, {.grad_scale = 3, .normalization = n, .valid_thresh = 0.25}, "y"),
         .inputs = {{"x", AwayFromZero(shape, 0.3, 1)}},
         .batch_axes = {{"x", 0}},
         .step = {.batch_size = static_cast<int64_t>(kBatchSize)},
         .gradient = [=](const HostTensorMap& in, const std::vector<HostTensor>&) -> HostTensorMap {
           double above = 0;
           for (int64_t i = 0; i < 12; ++i) above += in.at("x").At(i) > 0.25;
           const double divisor = n == Normalization::kNull ? 1 : n == Normalization::kBatch ? kBatchSize : above;
           return {{"x", HostTensor::Full(DType::kFloat64, shape, 3 / divisor)}};
         }});
  }

  const std::vector<std::string> none;
  cases.push_back({.name = "SumOverDevices, of one",
                   .symbol = Apply(SumOverDevicesOp(), {}, {x}, "y"),
                   .inputs = {{"x", Uniform({2, 3})}},
                   .wrt = none,
                   .forward = [](const HostTensorMap& in) -> std::vector<HostTensor> { return {in.at("x")}; }});
}

}  // namespace

std::vector<OperatorCase> LossCases() {
  std::vector<OperatorCase> cases;
  AddSoftmaxOutput(cases);
  AddOthers(cases);
  return cases;
}

}  // namespace bindery
