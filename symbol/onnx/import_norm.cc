// Normalisations, softmax and curves.
#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "symbol/onnx/importer.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

// --- Curves. ONNX' defaults, by attribute.

ImportFn CurveOf(CurveType type, double alpha = 1, double beta = 1) {
  return [=](Importer& im) {
    im.Ignore({"consumed_inputs"});
    im.Out(Curve(im.In(0), {type, im.Float("alpha", alpha), im.Float("beta", beta)}, im.name()));
  };
}

void ImportElu(Importer& im) {
  im.Ignore({"consumed_inputs"});
  im.Out(Elu(im.In(0), im.Float("alpha", 1), im.name()));
}

void ImportSelu(Importer& im) {
  im.Ignore({"consumed_inputs"});
  im.Out(Selu(im.In(0), im.Float("alpha", 1.67326319217681884765625), im.Float("gamma", 1.05070102214813232421875),
              im.name()));
}

void ImportGelu(Importer& im) {
  const std::string by = im.String("approximate", "none");
  if (by != "none" && by != "tanh") {
    Throw<ModelError>("attribute \"approximate\": expected none or tanh, got \"{}\"", by);
  }
  im.Out(by == "tanh" ? GeluTanh(im.In(0), im.name()) : Gelu(im.In(0), im.name()));
}

void ImportSwish(Importer& im) { im.Out(Swish(im.In(0), im.Float("alpha", 1), im.name())); }

void ImportShrink(Importer& im) { im.Out(Shrink(im.In(0), im.Float("lambd", 0.5), im.Float("bias", 0), im.name())); }

void ImportPRelu(Importer& im) { im.Out(PRelu(im.In(0), im.WeightIn(1), im.name())); }

// Up to version 6 the slope was of channels.
void ImportPReluOfChannels(Importer& im) {
  im.Ignore({"consumed_inputs"});
  PartialExtents slope = im.ExtentsOf(im.WeightIn(1));
  const int rank = im.RankOf(im.In(0));
  if (slope.size() == 1) slope.resize(static_cast<size_t>(std::max(rank - 1, 1)), Extent{1, 0});
  im.Out(PRelu(im.In(0), ReshapeTo(im.WeightIn(1), slope), im.name()));
}

// --- Softmax and its kin.

using AlongAxis = std::function<Symbol(const Symbol& x, int64_t axis, const std::string& name)>;

ImportFn Along(const AlongAxis& f) {
  return [f](Importer& im) { im.Out(f(im.In(0), im.Int("axis", -1), im.name())); };
}

// Before version 13 the axes from `axis` on counted as one.
ImportFn AlongRest(const AlongAxis& f) {
  return [f](Importer& im) {
    const Symbol x = im.In(0);
    const PartialExtents extents = im.ExtentsOf(x);
    const int axis = im.AxisOf(x, im.Int("axis", 1));
    if (axis == static_cast<int>(extents.size()) - 1) return im.Out(f(x, -1, im.name()));
    const std::span<const std::optional<Extent>> all(extents);
    const auto before = static_cast<size_t>(axis);
    const Symbol rows = ReshapeTo(x, {Product(all.first(before)), Product(all.subspan(before))});
    im.Out(ReshapeTo(f(rows, -1, im.name()), extents));
  };
}

Symbol SoftmaxAlong(const Symbol& x, int64_t axis, const std::string& name) { return Softmax(x, {.axis = axis}, name); }
Symbol LogSoftmaxAlong(const Symbol& x, int64_t axis, const std::string& name) {
  return LogSoftmax(x, {.axis = axis}, name);
}
Symbol HardmaxAlong(const Symbol& x, int64_t axis, const std::string& name) { return Hardmax(x, {.axis = axis}, name); }

// --- Normalisations.

// Ours are of float32 where the data has 16 bits.
Symbol ChannelValues(Importer& im, int input, DType data) {
  const HostTensor* weight = im.Weight(input);
  const DType wanted = data == DType::kFloat64 ? data : DType::kFloat32;
  if (weight == nullptr || weight->dtype() == wanted) return im.WeightIn(input);
  return im.Parameter(input, ToString(wanted), [&](const HostTensor& value) { return value.Cast(wanted); });
}

void ImportBatchNorm(Importer& im) {
  im.Ignore({"consumed_inputs", "is_test"});
  if (!im.Flag("spatial", true)) Throw<ModelError>("attribute \"spatial\": only 1, per channel, can be had");
  const double momentum = im.Float("momentum", 0.9);
  const bool training = im.Flag("training_mode");
  const DType dtype = im.DTypeOf(im.In(0));
  std::vector<Symbol> inputs = {im.In(0)};
  for (int i = 1; i < 5; ++i) inputs.push_back(ChannelValues(im, i, dtype));
  const bool moved = training && (im.Wanted(1) || im.Wanted(2));
  const BatchNormAttrs attrs{
      .eps = im.Float("epsilon", 1e-5), .momentum = momentum, .fix_gamma = false, .output_mean_var = moved};
  const Symbol bn = Apply(BatchNormOp(), attrs, inputs, im.name());
  im.Out(bn);
  if (!moved) return im.OnlyFirst();
  for (const int i : {1, 2}) im.Out(i, inputs[static_cast<size_t>(2 + i)] * momentum + bn[i] * (1 - momentum));
}

// Normalize with the scale and the shift that are there, inputs 1 and 2.
void OutNormalized(Importer& im, NormalizeAttrs attrs) {
  attrs.scale = im.Has(1);
  attrs.shift = im.Has(2);
  attrs.output_statistics = im.Wanted(1) || im.Wanted(2);
  std::vector<Symbol> inputs = {im.In(0)};
  for (const int i : {1, 2}) {
    if (im.Has(i)) inputs.push_back(im.In(i));
  }
  const Symbol y = Apply(NormalizeOp(), attrs, inputs, im.name());
  for (int i = 0; i < y.size(); ++i) im.Out(i, y[i]);
}

void ImportLayerNorm(Importer& im) {
  im.Ignore({"stash_type"});
  OutNormalized(im, {.axis = im.Int("axis", -1), .eps = im.Float("epsilon", 1e-5)});
}

void ImportRMSNorm(Importer& im) {
  im.Ignore({"stash_type"});
  OutNormalized(im, {.axis = im.Int("axis", -1), .eps = im.Float("epsilon", 1e-5), .center = false});
}

bool IsFilled(const HostTensor* tensor, double value) {
  return tensor != nullptr && *tensor == HostTensor::Full(tensor->dtype(), tensor->shape(), value);
}

// Exporters write a group-norm as an instance-norm of groups, with factors of 1 and shifts of 0 that are no parameters.
void ImportInstanceNorm(Importer& im) {
  im.Ignore({"consumed_inputs"});
  const NormalizeAttrs attrs{.groups = -1, .eps = im.Float("epsilon", 1e-5)};
  const Node& before = *im.In(0).entry().node;
  const bool of_groups = !before.is_variable() && (&before.op() == &ReshapeOp() || &before.op() == &ReshapeBy.op());
  if (!of_groups || !IsFilled(im.Constant(1), 1) || !IsFilled(im.Constant(2), 0)) return OutNormalized(im, attrs);
  NormalizeAttrs plain = attrs;
  plain.scale = plain.shift = false;
  im.Out(Apply(NormalizeOp(), plain, {im.In(0)}, im.name()));
}

void ImportGroupNorm(Importer& im) {
  im.Ignore({"stash_type"});
  OutNormalized(im, {.groups = im.Int("num_groups", 1), .eps = im.Float("epsilon", 1e-5)});
}

// Up to version 20 the scale and the shift were of groups, not of channels.
void ImportGroupNormByGroups(Importer& im) {
  const Symbol x = im.In(0);
  const int64_t groups = im.Int("num_groups", 1), channels = im.ShapeOf(x)[im.AxisOf(x, 1)];
  if (groups < 1 || channels == kUnknownDim || channels % groups != 0) {
    Throw<ModelError>("{} groups of {} channels", groups, channels);
  }
  const auto of_channels = [&](int input) {
    const Symbol column = Reshape(im.WeightIn(input), {.shape = {groups, 1}});
    return Reshape(BroadcastTo(column, {.shape = {groups, channels / groups}}), {.shape = {channels}});
  };
  im.Out(Normalize(x, of_channels(1), of_channels(2), {.groups = groups, .eps = im.Float("epsilon", 1e-5)}, im.name()));
}

void ImportLpNorm(Importer& im) {
  const Symbol x = im.In(0);
  const ReduceAttrs attrs{.axes = {im.Int("axis", -1)}, .keepdims = true};
  const int64_t p = im.Int("p", 2);
  if (p != 1 && p != 2) Throw<ModelError>("attribute \"p\": expected 1 or 2, got {}", p);
  constexpr double kLeast = std::numeric_limits<float>::min();  // zeros stay zeros
  if (p == 2) {
    return im.Out(Standardize(x, {.axes = attrs.axes, .eps = kLeast, .center = false, .sum = true}, im.name()));
  }
  const DType dtype = im.DTypeOf(x);
  if (SizeOf(dtype) != 2) return im.Out(Div(x, Sum(Abs(x), attrs) + kLeast, im.name()));
  const Symbol wide = Cast(x, {.dtype = DType::kFloat32});  // a sum of 16 bits may be infinite
  im.Out(Cast(Div(wide, Sum(Abs(wide), attrs) + kLeast), {.dtype = dtype}, im.name()));
}

void ImportMeanVarianceNorm(Importer& im) {
  std::vector<int64_t> axes = im.Ints("axes");
  if (axes.empty()) axes = {0, 2, 3};
  im.Out(MeanVarianceNormalization(im.In(0), axes, 1e-9, im.name()));
}

void ImportLRN(Importer& im) {
  const LRNAttrs attrs{.size = im.Int("size", 1),
                       .alpha = im.Float("alpha", 1e-4),
                       .beta = im.Float("beta", 0.75),
                       .bias = im.Float("bias", 1)};
  im.Out(LRN(im.In(0), attrs, im.name()));
}

}  // namespace

std::span<const ImportRow> NormImports() {
  static const std::vector<ImportRow> rows = {
      {"BatchNormalization", 1, ImportBatchNorm},
      {"Celu", 12, CurveOf(CurveType::kCelu)},
      {"Elu", 1, ImportElu},
      {"Gelu", 20, ImportGelu},
      {"GroupNormalization", 18, ImportGroupNormByGroups},
      {"GroupNormalization", 21, ImportGroupNorm},
      {"HardSigmoid", 1, CurveOf(CurveType::kHardSigmoid, 0.2, 0.5)},
      {"HardSwish", 14, Unary(HardSwish)},
      {"Hardmax", 1, AlongRest(HardmaxAlong)},
      {"Hardmax", 13, Along(HardmaxAlong)},
      {"InstanceNormalization", 1, ImportInstanceNorm},
      {"LRN", 1, ImportLRN},
      {"LayerNormalization", 1, ImportLayerNorm},  // ONNX Runtime writes it before opset 17, too
      {"LeakyRelu", 1, CurveOf(CurveType::kLeakyRelu, 0.01)},
      {"LogSoftmax", 1, AlongRest(LogSoftmaxAlong)},
      {"LogSoftmax", 13, Along(LogSoftmaxAlong)},
      {"LpNormalization", 1, ImportLpNorm},
      {"MeanVarianceNormalization", 9, ImportMeanVarianceNorm},
      {"Mish", 18, Unary(Mish)},
      {"PRelu", 1, ImportPReluOfChannels},
      {"PRelu", 7, ImportPRelu},
      {"RMSNormalization", 23, ImportRMSNorm},
      {"Selu", 1, ImportSelu},
      {"Shrink", 9, ImportShrink},
      {"Softmax", 1, AlongRest(SoftmaxAlong)},
      {"Softmax", 13, Along(SoftmaxAlong)},
      {"SwiGLU", 28, [](Importer& im) { im.Out(Mul(Swish(im.In(0), im.Float("alpha", 1)), im.In(1), im.name())); }},
      {"Swish", 24, ImportSwish},
      {"ThresholdedRelu", 10, CurveOf(CurveType::kThresholdedRelu)},
  };
  return rows;
}

}  // namespace bindery::onnx
