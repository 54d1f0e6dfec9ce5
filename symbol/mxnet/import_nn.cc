// Layers: windows, normalisation, activation, dropout.
#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "symbol/mxnet/importer.h"

namespace bindery::mxnet {
namespace {

// Of data, a weight, and a bias unless there is none.
void ImportLinear(Importer& im, const OpDef& op, const auto& attrs) {
  std::vector<Symbol> inputs = {im.In(0), im.In(1)};
  if (!attrs.no_bias) inputs.push_back(im.In(2));
  im.Out(Apply(op, attrs, inputs, im.name()));
}

// --- Windows.

// Channels come first; the last ones of NHWC are for others.
void CheckLayout(Importer& im) { im.Expect("layout", {"NCW", "NCHW", "NCDHW"}); }
void IgnoreTuning(Importer& im) { im.Ignore({"workspace", "cudnn_tune", "cudnn_off", "cudnn_algo_verbose"}); }

void ImportConvolution(Importer& im) {
  CheckLayout(im);
  IgnoreTuning(im);
  const ConvolutionAttrs attrs{.num_filter = im.Int("num_filter"),
                               .kernel = im.Ints("kernel"),
                               .stride = im.Ints("stride"),
                               .pad = im.Ints("pad"),
                               .dilate = im.Ints("dilate"),
                               .groups = im.Int("num_group", 1),
                               .no_bias = im.Flag("no_bias")};
  ImportLinear(im, ConvolutionOp(), attrs);
}

// Without a bias unless asked for.
void ImportDeconvolution(Importer& im) {
  CheckLayout(im);
  IgnoreTuning(im);
  DeconvolutionAttrs attrs{.num_filter = im.Int("num_filter"),
                           .kernel = im.Ints("kernel"),
                           .stride = im.Ints("stride"),
                           .pad = im.Ints("pad"),
                           .dilate = im.Ints("dilate"),
                           .output_padding = im.Ints("adj"),
                           .target_shape = im.Ints("target_shape"),
                           .groups = im.Int("num_group", 1),
                           .no_bias = im.Flag("no_bias", true)};
  if (std::ranges::all_of(attrs.target_shape, [](int64_t extent) { return extent == 0; })) attrs.target_shape.clear();
  if (!attrs.target_shape.empty()) {  // which says it all
    attrs.pad.clear();
    attrs.output_padding.clear();
  }
  const Symbol bias = attrs.no_bias ? Symbol() : im.In(2);
  im.Out(Deconvolution(im.In(0), im.In(1), bias, attrs, im.name()));
}

// How many elements a window has.
double WindowSize(const std::vector<int64_t>& kernel) {
  double size = 1;
  for (const int64_t extent : kernel) size *= static_cast<double>(extent);
  return size;
}

// Where extents are rounded up MXNet keeps a last window of nothing but padding, which ours leaves out: refused unless
// there can be none.
void CheckFull(const PoolingAttrs& attrs) {
  for (size_t i = 0; i < attrs.kernel.size(); ++i) {
    const int64_t stride = i < attrs.stride.size() ? attrs.stride[i] : 1, pad = i < attrs.pad.size() ? attrs.pad[i] : 0;
    if (CheckedAdd(stride, pad) > attrs.kernel[i]) {
      Throw<ModelError>("pooling_convention \"full\" with stride {} and pad {} for a kernel of {} cannot be imported",
                        stride, pad, attrs.kernel[i]);
    }
  }
}

// In its first form (Pooling_v1) an average was over the whole window, whatever of it lay beyond the padding.
void ImportPooling(Importer& im, bool first_form) {
  CheckLayout(im);
  IgnoreTuning(im);
  im.Expect("pool_type", {"max", "avg", "sum"});
  im.Expect("pooling_convention", {"valid", "full"});
  const std::string type = im.String("pool_type", "max");
  const bool full = im.String("pooling_convention", "valid") == "full";
  PoolingAttrs attrs{.type = type == "max" ? PoolType::kMax : PoolType::kAvg,
                     .kernel = im.Ints("kernel"),
                     .stride = im.Ints("stride"),
                     .pad = im.Ints("pad"),
                     .global = im.Flag("global_pool"),
                     .ceil_mode = full,
                     .count_include_pad = im.Flag("count_include_pad", true)};
  if (attrs.global) {
    if (type == "sum") return im.Out(Sum(im.In(0), {.axes = {0, 1}, .keepdims = true, .exclude = true}, im.name()));
    return im.Out(Pooling(im.In(0), {.type = attrs.type, .global = true}, im.name()));
  }
  if (full) CheckFull(attrs);
  if (full && type != "max" && (first_form || type == "sum")) {
    Throw<ModelError>("pooling_convention \"full\" with pool_type {} cannot be imported", type);
  }
  if (type != "sum") return im.Out(Pooling(im.In(0), attrs, im.name()));
  attrs.count_include_pad = true;
  im.Out(Mul(Pooling(im.In(0), attrs), WindowSize(attrs.kernel), im.name()));
}

// The nearest, or a Deconvolution of each channel by a weight of its own.
void ImportUpSampling(Importer& im) {
  im.Expect("sample_type", {"nearest", "bilinear"});
  im.Ignore({"multi_input_mode", "workspace"});
  const int64_t scale = im.Int("scale"), filters = im.Int("num_filter", 0);
  if (scale < 1 || scale > 1000) Throw<ModelError>("attribute \"scale\": expected 1 to 1000, got {}", scale);
  if (im.String("sample_type", "") == "bilinear") {
    im.Ignore({"num_args"});
    const int64_t kernel = 2 * scale - scale % 2, pad = scale / 2;
    im.Out(Deconvolution(im.In(0), im.In(1), {},
                         {.num_filter = filters,
                          .kernel = {kernel, kernel},
                          .stride = {scale, scale},
                          .pad = {pad, pad},
                          .groups = filters,
                          .no_bias = true},
                         im.name()));
    return;
  }
  if (im.Int("num_args", 1) != 1) Throw<ModelError>("of several inputs it cannot be imported");
  const auto factor = static_cast<double>(scale);
  im.Out(Resize(im.In(0),
                {.mode = ResizeMode::kNearest,
                 .coordinates = Coordinates::kAsymmetric,
                 .nearest = NearestMode::kFloor,
                 .scales = {factor, factor},
                 .axes = {2, 3}},
                im.name()));
}

// --- Layers.

void ImportFullyConnected(Importer& im) {
  const FullyConnectedAttrs attrs{
      .num_hidden = im.Int("num_hidden"), .no_bias = im.Flag("no_bias"), .flatten = im.Flag("flatten", true)};
  ImportLinear(im, FullyConnectedOp(), attrs);
}

void ImportActivation(Importer& im) {
  im.Expect("act_type", {"relu", "sigmoid", "softrelu", "softsign", "tanh"});
  im.Out(Activation(im.In(0), {im.Enum("act_type", ActivationType::kRelu)}, im.name()));
}

// The slope of each channel, (C), or one for all, (1), beside data (N, C, ...): as (C, 1, ...) it stretches.
Symbol ChannelPRelu(const Symbol& data, const Symbol& slope, const std::string& name) {
  const Symbol behind = ShapeArray(data, {.begin = 2});
  const Symbol ones = Add(Sub(behind, behind), Indices({1}));
  return PRelu(data, ReshapeBy({slope, Concat({Indices({-1}), ones}, {.axis = 0})}), name);
}

void ImportLeakyReLU(Importer& im) {
  im.Expect("act_type", {"leaky", "elu", "selu", "gelu", "prelu"});
  im.Ignore({"lower_bound", "upper_bound"});
  const std::string type = im.String("act_type", "leaky");
  const double slope = im.Float("slope", 0.25);
  const Symbol x = im.In(0);
  if (type == "prelu") return im.Out(ChannelPRelu(x, im.In(1, "gamma"), im.name()));
  im.Out(type == "elu"    ? Elu(x, slope, im.name())
         : type == "selu" ? Selu(x, 1.6732632423543772, 1.0507009873554805, im.name())
         : type == "gelu" ? Gelu(x, im.name())
                          : LeakyRelu(x, slope, im.name()));
}

void ImportDropout(Importer& im) {
  IgnoreTuning(im);
  im.Expect("mode", {"training", "always"});
  const bool always = im.String("mode", "training") == "always";
  im.Out(Dropout(im.In(0),
                 {.p = im.Float("p", 0.5),
                  .axes = im.Ints("axes"),
                  .mode = always ? DropoutMode::kAlways : DropoutMode::kTraining},
                 im.name()));
}

// --- Normalisation.

void ImportBatchNorm(Importer& im) {
  IgnoreTuning(im);
  im.Ignore({"ndev", "key", "min_calib_range", "max_calib_range"});
  const BatchNormAttrs attrs{.eps = im.Float("eps", 1e-3),
                             .momentum = im.Float("momentum", 0.9),
                             .fix_gamma = im.Flag("fix_gamma", true),
                             .use_global_stats = im.Flag("use_global_stats"),
                             .axis = im.Int("axis", 1),
                             .sync = im.op() == "_contrib_SyncBatchNorm"};
  if (im.Flag("output_mean_var")) {
    Throw<ModelError>("output_mean_var cannot be imported: what MXNet gives as the variance depends on the device");
  }
  im.Out(Apply(BatchNormOp(), attrs, {im.In(0), im.In(1), im.In(2), im.In(3, "moving_mean"), im.In(4, "moving_var")},
               im.name()));
}

void ImportLayerNorm(Importer& im) {
  if (im.Int("axis", -1) != -1) Throw<ModelError>("attribute \"axis\": only the last one (-1) can be imported");
  if (im.Flag("output_mean_var")) Throw<ModelError>("output_mean_var cannot be imported");
  im.Out(Normalize(im.In(0), im.In(1), im.In(2), {.axis = -1, .eps = im.Float("eps", 1e-5)}, im.name()));
}

void ImportInstanceNorm(Importer& im) {
  im.Out(Normalize(im.In(0), im.In(1), im.In(2), {.groups = -1, .eps = im.Float("eps", 1e-3)}, im.name()));
}

void ImportL2Normalization(Importer& im) {
  im.Expect("mode", {"instance", "channel", "spatial"});
  const std::string mode = im.String("mode", "instance");
  im.Out(L2Normalization(im.In(0),
                         mode == "instance"  ? L2Mode::kInstance
                         : mode == "channel" ? L2Mode::kChannel
                                             : L2Mode::kSpatial,
                         im.Float("eps", 1e-10), im.name()));
}

void ImportLRN(Importer& im) {
  im.Out(LRN(im.In(0),
             {.size = im.Int("nsize"),
              .alpha = im.Float("alpha", 1e-4),
              .beta = im.Float("beta", 0.75),
              .bias = im.Float("knorm", 2)},
             im.name()));
}

// --- Softmax.

void CheckSoftmax(Importer& im) {
  if (im.Flag("use_length")) Throw<ModelError>("use_length cannot be imported");
}
Symbol Typed(Importer& im, const Symbol& y) { return im.Has("dtype") ? Cast(y, {.dtype = im.Type("dtype")}) : y; }

void ImportSoftmax(Importer& im, bool negative) {
  CheckSoftmax(im);
  const Symbol x = negative ? Negative(im.In(0)) : im.In(0);
  im.Out(Typed(im, Softmax(x, {.axis = im.Int("axis", -1), .temperature = im.Float("temperature", 1)}, im.name())));
}

void ImportLogSoftmax(Importer& im) {
  CheckSoftmax(im);
  Symbol x = im.In(0);
  if (const double t = im.Float("temperature", 1); t != 1) x = Div(x, t);
  im.Out(Typed(im, LogSoftmax(x, {.axis = im.Int("axis", -1)}, im.name())));
}

// Over all but the samples, or over the channels at each place.
void ImportSoftmaxActivation(Importer& im) {
  im.Expect("mode", {"instance", "channel"});
  const Symbol x = im.In(0);
  if (im.String("mode", "instance") == "channel") return im.Out(Softmax(x, {.axis = 1}, im.name()));
  im.Out(ReshapeBy({Softmax(Flatten(x)), ShapeArray(x)}, im.name()));
}

}  // namespace

std::span<const ImportRow> NnImports() {
  static const std::vector<ImportRow> rows = {
      {"Activation", ImportActivation},
      {"BatchNorm", ImportBatchNorm},
      {"BatchNorm_v1", ImportBatchNorm},
      {"Convolution", ImportConvolution},
      {"Convolution_v1", ImportConvolution},
      {"CuDNNBatchNorm", ImportBatchNorm},
      {"Deconvolution", ImportDeconvolution},
      {"Dropout", ImportDropout},
      {"FullyConnected", ImportFullyConnected},
      {"InstanceNorm", ImportInstanceNorm},
      {"L2Normalization", ImportL2Normalization},
      {"LRN", ImportLRN},
      {"LayerNorm", ImportLayerNorm},
      {"LeakyReLU", ImportLeakyReLU},
      {"Pooling", [](Importer& im) { ImportPooling(im, false); }},
      {"Pooling_v1", [](Importer& im) { ImportPooling(im, true); }},
      {"SoftmaxActivation", ImportSoftmaxActivation},
      {"UpSampling", ImportUpSampling},
      {"_contrib_SyncBatchNorm", ImportBatchNorm},
      {"log_softmax", ImportLogSoftmax},
      {"softmax", [](Importer& im) { ImportSoftmax(im, false); }},
      {"softmin", [](Importer& im) { ImportSoftmax(im, true); }},
  };
  return rows;
}

}  // namespace bindery::mxnet
