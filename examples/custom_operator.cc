// An operator of the program's own: described, differentiated, computed twice (plainly and fast), and trained.
//
//   tools/bazel run //examples:custom_operator
//
// The operator is a layer of radial basis functions. Rings around one point cannot be told apart by lines; a few bumps
// with trained centres tell them apart.
//
// Expected: its two kernels agree to 1e-6, its gradient and differences to 1e-6; test accuracy of the last epoch above
// 0.95, on two devices.
#include "executor/custom_operator.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/philox.h"
#include "executor/evaluate.h"
#include "executor/executor.h"
#include "symbol/ops.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"

using namespace bindery;

namespace {

// --- What it takes, besides its inputs. Files, printing and errors know these fields from the list.
struct RadialAttrs {
  int64_t num_centers = 1;
  double width = 1;
  static FieldList Fields() {
    return {{"num_centers", &RadialAttrs::num_centers, "functions"},
            {"width", &RadialAttrs::width, "how far each reaches"}};
  }
};

void CheckAttrs(const AnyAttrs& any) {
  const auto& attrs = any.get<RadialAttrs>();
  rule::CheckAtLeast("num_centers", attrs.num_centers, 1);
  if (!(attrs.width > 0)) Throw<ModelError>("width must be above 0, got {}", attrs.width);
}

// --- data (N, D), centers (K, D) -> (N, K), in whichever order they become known; the batch stays along axis 0.
void Infer(InferContext& c) {
  const rule::Value data = c.in(0), centers = c.in(1), output = c.out(0);
  rule::SameDType({data, centers, output});
  rule::ExpectFloat(data);
  const int64_t k = c.attrs<RadialAttrs>().num_centers;
  output.Set({kUnknownDim, k});
  if (data.shape()) {
    rule::ExpectRank(*data.shape(), 2, "(N, D)");
    centers.Set({k, (*data.shape())[1]});
    output.Set({(*data.shape())[0], k});
  }
  if (centers.shape()) {
    rule::ExpectRank(*centers.shape(), 2, "(K, D)");
    data.Set({(*output.shape())[0], (*centers.shape())[1]});
  }
  data.Carry(output, [](int axis) { return axis == 0 ? 0 : -1; });
}

// --- Its gradient, in symbols. With g[n, k] = dy[n, k] y[n, k] / width^2,
//   dx[n] = sum_k g[n, k] (center[k] - x[n]),   dcenter[k] = sum_n g[n, k] (x[n] - center[k])
std::vector<Symbol> Gradient(const GradientContext& c) {
  const double width = c.attrs<RadialAttrs>().width;
  const Symbol x = c.input(0), centers = c.input(1);
  const Symbol g = c.output_grad(0) * c.output(0) * (1 / (width * width));
  const Symbol by_center = ExpandDims(Sum(g, {.axes = {0}}), {.axes = {1}});
  return {MatMul(g, centers) - x * Sum(g, {.axes = {1}, .keepdims = true}),
          MatMul(g, x, {.transpose_a = true}) - centers * by_center};
}

// --- The formula as a loop over doubles. It serves every element type, and is what the fast one is compared with.
MaybeKernel MakeReference(const KernelSpec& spec) {
  const double width = spec.attributes<RadialAttrs>().width;
  const int64_t n = spec.outputs[0].shape[0], k = spec.outputs[0].shape[1], d = spec.inputs[0].shape[1];
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t i = 0; i < n * k; ++i) {
      double squares = 0;
      for (int64_t j = 0; j < d; ++j) {
        const double difference = t.in[0][i / k * d + j] - t.in[1][i % k * d + j];
        squares += difference * difference;
      }
      t.out[0][i] = std::exp(-squares / (2 * width * width));
    }
  });
}

// --- The same in float32, by all threads; other types are left to the one above.
MaybeKernel MakeFast(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::kFloat32) return std::nullopt;
  const auto width = static_cast<float>(spec.attributes<RadialAttrs>().width);
  const int64_t n = spec.outputs[0].shape[0], k = spec.outputs[0].shape[1], d = spec.inputs[0].shape[1];
  return WithLoop(PlainKernel(spec, "radial loop"), [=, scale = -1 / (2 * width * width)](const Arguments& a) {
    ParallelFor(n, 1, kSerialElements / (k * (d + 8)), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const float* x = a.in(0) + i * d;
        float* y = a.out(0) + i * k;
        for (int64_t c = 0; c < k; ++c) {
          const float* center = a.in(1) + c * d;
          float squares = 0;
          for (int64_t j = 0; j < d; ++j) squares += (x[j] - center[j]) * (x[j] - center[j]);
          y[c] = std::exp(scale * squares);
        }
      }
    });
  });
}

// --- All of it, told the library when it is first used.
const OpDef& RadialOp() {
  static const OpDef& op = [&]() -> const OpDef& {
    AddReferenceKernel("Radial", MakeReference);
    AddKernel("Radial", MakeFast);
    return AddOp({.name = "Radial",
                  .doc = "y[n, k] = exp(-|data[n] - centers[k]|^2 / (2 width^2)).",
                  .attrs_type = &AttrsOf<RadialAttrs>(),
                  .inputs = {"data", "centers"},
                  .infer = Infer,
                  .check = CheckAttrs,
                  .gradient = Gradient});
  }();
  return op;
}
constexpr OpFunction<RadialAttrs, 2> Radial{RadialOp};

HostTensor Random(const Shape& shape, const char* name) {
  PhiloxStream random(/*seed=*/1, name);
  HostTensor values(DType::kFloat32, shape);
  for (float& value : values.data<float>()) value = random.Uniform(-2, 2);
  return values;
}

// The greatest difference between the two kernels, on random numbers.
double CompareKernels() {
  const Symbol y = Radial(Variable("x"), Variable("c"), {.num_centers = 5, .width = 0.7}, "y");
  const std::vector<HostTensor> inputs = {Random({40, 3}, "x"), Random({5, 3}, "c")};
  const auto by = [&](KernelPolicy policy) { return EvaluateNode(*y.entry().node, inputs, Mode::kPredict, policy)[0]; };
  return MaxAbsDiff(by(KernelPolicy::kFast), by(KernelPolicy::kReference));
}

// The greatest difference between the gradient of the sum of all y and what moving each element a little says.
double CompareGradients() {
  const Symbol y = Radial(Variable("x"), Variable("c"), {.num_centers = 5, .width = 0.7}, "y");
  const DType dtype = DType::kFloat64;
  Executor net(MakeLoss(Sum(y)), {.inputs = {{.name = "x", .shape = {4, 3}, .dtype = dtype}},
                                  .grad_req = std::map<std::string, GradReq>{{"x", GradReq::kWrite}}});
  HostTensorMap values = {{"x", Random({4, 3}, "x").Cast(dtype)}, {"c", Random({5, 3}, "c").Cast(dtype)}};
  const auto set = [&] {
    for (const auto& [name, value] : values) net.ArgumentArray(name).CopyFrom(value);
  };
  set();
  net.Forward();
  net.Backward();
  const HostTensorMap gradients = {{"x", net.Gradient("x")}, {"c", net.Gradient("c")}};
  double worst = 0;
  for (auto& [name, value] : values) {
    for (double& element : value.data<double>()) {
      const double before = element, step = 1e-4;
      double sums[2];
      for (int side = 0; side < 2; ++side) {
        element = before + (side == 0 ? step : -step);
        set();
        net.Forward();
        sums[side] = net.Output(0).At(0);
      }
      element = before;
      const int64_t at = &element - value.data<double>().data();
      worst = std::max(worst, std::abs((sums[0] - sums[1]) / (2 * step) - gradients.at(name).At(at)));
    }
  }
  return worst;
}

// Points of the plane; the class is the ring.
ArrayIter Rings(int64_t count, const char* name) {
  PhiloxStream random(/*seed=*/1, name);
  HostTensor points(DType::kFloat32, {count, 2}), rings(DType::kFloat32, {count});
  for (int64_t i = 0; i < count; ++i) {
    const float radius = random.Uniform(0, 3), angle = random.Uniform(0, 6.2831853f);
    points.Set(2 * i, radius * std::cos(angle));
    points.Set(2 * i + 1, radius * std::sin(angle));
    rings.Set(i, std::floor(radius));
  }
  return {std::move(points), std::move(rings), {.batch_size = 50, .shuffle = true}};
}

}  // namespace

int main() {
  std::printf("kernels differ by %.1g\n", CompareKernels());
  std::printf("gradients differ by %.1g\n", CompareGradients());

  const Symbol centers = Variable("centers", {.init = "uniform(3)"});
  Symbol x = Radial(Variable("data"), centers, {.num_centers = 32, .width = 0.6}, "radial");
  const Symbol net = SoftmaxOutput(FullyConnected(x, {.num_hidden = 3}, "fc"), {}, "softmax");

  ArrayIter train = Rings(3000, "train"), test = Rings(1000, "test");
  Trainer trainer(net, {.devices = {Cpu(0), Cpu(1)}, .optimizer = "adam(lr=0.01)"});
  trainer.Fit(train, {.epochs = 20, .validation = &test, .on_epoch = [](const EpochReport& report) {
                        std::printf("epoch %d: test accuracy %.4f\n", static_cast<int>(report.epoch + 1),
                                    report.validation[0].second);
                      }});
}
