// Networks of residual units.
#include "symbol/ops.h"
#include "train/zoo/models.h"

namespace bindery::zoo {
namespace {

// He, Zhang, Ren, Sun, "Deep residual learning for image recognition" (2015).
class ResNet {
 public:
  explicit ResNet(const ZooOptions& options) : options_(options) {}

  Symbol ConvNormRelu(const Symbol& x, const ConvOptions& conv, const std::string& unit,
                      const std::string& number) const {
    const std::string prefix = unit.empty() ? "" : unit + "_";
    return Relu(Norm(Conv(x, conv, prefix + "conv" + number), options_, prefix + "bn" + number),
                prefix + "relu" + number);
  }
  // x itself, or its projection where the unit changes its shape.
  Symbol Shortcut(const Symbol& x, bool project, int64_t filters, int64_t stride, const std::string& unit) const {
    if (!project) return x;
    return Norm(Conv(x, {.filters = filters, .kernel = 1, .stride = stride}, unit + "_conv1sc"), options_,
                unit + "_sc");
  }

  // 3x3, 3x3
  Symbol BasicUnit(const Symbol& x, bool project, int64_t filters, int64_t stride, const std::string& unit) const {
    Symbol y = ConvNormRelu(x, {.filters = filters, .stride = stride}, unit, "1");
    y = Norm(Conv(y, {.filters = filters}, unit + "_conv2"), options_, unit + "_bn2");
    return Relu(Add(y, Shortcut(x, project, filters, stride, unit), unit + "_plus"), unit + "_relu2");
  }
  // 1x1, 3x3 with the stride, 1x1
  Symbol BottleneckUnit(const Symbol& x, bool project, int64_t filters, int64_t stride, const std::string& unit) const {
    Symbol y = ConvNormRelu(x, {.filters = filters / 4, .kernel = 1}, unit, "1");
    y = ConvNormRelu(y, {.filters = filters / 4, .stride = stride}, unit, "2");
    y = Norm(Conv(y, {.filters = filters, .kernel = 1}, unit + "_conv3"), options_, unit + "_bn3");
    return Relu(Add(y, Shortcut(x, project, filters, stride, unit), unit + "_plus"), unit + "_relu3");
  }

  // For ImageNet: a 7x7 and a pooling, then four stages of so many units, each but the first of half the height and
  // width and twice the channels.
  Symbol ImageNet(std::initializer_list<int> stages, bool bottlenecks) const {
    Symbol x = ConvNormRelu(Input(options_), {.filters = 64, .kernel = 7, .stride = 2}, "", "0");  // (N, 64, 112, 112)
    x = Pooling(x, {.type = PoolType::kMax, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}}, "pooling0");
    int64_t filters = bottlenecks ? 256 : 64;
    int stage = 1;
    for (const int units : stages) {
      for (int unit = 1; unit <= units; ++unit) {
        const int64_t stride = stage > 1 && unit == 1 ? 2 : 1;
        const std::string name = fmt::format("stage{}_unit{}", stage, unit);
        const bool project = unit == 1 && (bottlenecks || stage > 1);
        x = bottlenecks ? BottleneckUnit(x, project, filters, stride, name)
                        : BasicUnit(x, project, filters, stride, name);
      }
      ++stage;
      filters *= 2;
    }
    return Classifier(x, options_);  // from 7x7
  }

 private:
  const ZooOptions& options_;
};

// Of torchvision: convolutions by He, the last layer uniform by its fan in.
Symbol WithTorchvisions(const Symbol& model) {
  return WithInitial(model, {{"fc1_weight", "xavier(uniform, in, 1)"}, {"_weight", kHeFanOut}});
}

}  // namespace

Symbol ResNet20(const ZooOptions& options) {
  const ResNet net(options);
  Symbol x = net.ConvNormRelu(Input(options), {.filters = 16}, "", "0");  // (N, 16, 32, 32)
  for (int stage = 1; stage <= 3; ++stage) {
    for (int unit = 1; unit <= 3; ++unit) {
      const bool narrower = stage > 1 && unit == 1;  // half the height and width, twice the channels
      x = net.BasicUnit(x, narrower, int64_t{8} << stage, narrower ? 2 : 1, fmt::format("stage{}_unit{}", stage, unit));
    }
  }
  return Classifier(x, options);  // from (N, 64, 8, 8)
}

Symbol ResNet18(const ZooOptions& options) { return WithTorchvisions(ResNet(options).ImageNet({2, 2, 2, 2}, false)); }
Symbol ResNet34(const ZooOptions& options) { return WithTorchvisions(ResNet(options).ImageNet({3, 4, 6, 3}, false)); }
Symbol ResNet50(const ZooOptions& options) { return ResNet(options).ImageNet({3, 4, 6, 3}, true); }

// Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: inverted residuals and linear bottlenecks" (2018); initial values
// as torchvision has them.
Symbol MobileNetV2(const ZooOptions& options) {
  struct Stage {
    int64_t factor, filters;
    int units;
    int64_t stride;  // of the first unit
  };
  constexpr Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                               {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  const auto conv_norm_relu6 = [&](const Symbol& x, const ConvOptions& conv, const std::string& name) {
    return Relu6(Norm(Conv(x, conv, name + "_conv"), options, name + "_bn"), name + "_relu");
  };
  int64_t channels = 32;
  Symbol x = conv_norm_relu6(Input(options), {.filters = channels, .stride = 2}, "first");  // (N, 32, 112, 112)
  int number = 0;
  for (const auto& [factor, filters, units, first_stride] : kStages) {
    for (int unit = 0; unit < units; ++unit) {
      const std::string name = fmt::format("unit{}", ++number);
      const int64_t hidden = factor * channels, stride = unit == 0 ? first_stride : 1;
      Symbol y = factor == 1 ? x : conv_norm_relu6(x, {.filters = hidden, .kernel = 1}, name + "_expand");
      y = conv_norm_relu6(y, {.filters = hidden, .stride = stride, .groups = hidden}, name + "_depthwise");
      y = Norm(Conv(y, {.filters = filters, .kernel = 1}, name + "_project_conv"), options, name + "_project_bn");
      x = stride == 1 && channels == filters ? Add(x, y, name + "_plus") : y;
      channels = filters;
    }
  }
  x = conv_norm_relu6(x, {.filters = 1280, .kernel = 1}, "last");  // (N, 1280, 7, 7)
  return WithInitial(Classifier(x, options), {{"fc1_weight", "normal(0.01)"}, {"_weight", kHeFanOut}});
}

}  // namespace bindery::zoo
