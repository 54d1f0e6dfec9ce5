// Networks of layers one after the other, and the U-Net.
#include "symbol/ops.h"
#include "train/zoo/models.h"

namespace bindery::zoo {
namespace {

const PoolingAttrs kHalve = {.type = PoolType::kMax, .kernel = {2, 2}, .stride = {2, 2}};

}  // namespace

Symbol Mlp(const ZooOptions& options) {
  Symbol x = Flatten(Input(options), "flatten");  // (N, 784)
  x = Relu(FullyConnected(x, {.num_hidden = 128}, "fc1"), "relu1");
  x = MaybeDropout(x, options, "dropout1");
  x = Relu(FullyConnected(x, {.num_hidden = 64}, "fc2"), "relu2");
  x = MaybeDropout(x, options, "dropout2");
  x = FullyConnected(x, {.num_hidden = options.num_classes}, "fc3");
  return SoftmaxOutput(x, {}, "softmax");
}

Symbol LeNet(const ZooOptions& options) {
  Symbol x = Input(options);  // (N, 1, 28, 28)
  x = Tanh(Convolution(x, {.num_filter = 20, .kernel = {5, 5}}, "conv1"), "tanh1");
  x = Pooling(x, kHalve, "pool1");  // (N, 20, 12, 12)
  x = Tanh(Convolution(x, {.num_filter = 50, .kernel = {5, 5}}, "conv2"), "tanh2");
  x = Pooling(x, kHalve, "pool2");  // (N, 50, 4, 4)
  x = Tanh(FullyConnected(Flatten(x, "flatten"), {.num_hidden = 500}, "fc1"), "tanh3");
  x = MaybeDropout(x, options, "dropout1");
  x = FullyConnected(x, {.num_hidden = options.num_classes}, "fc2");
  return SoftmaxOutput(x, {}, "softmax");
}

// Simonyan, Zisserman, "Very deep convolutional networks for large-scale image recognition" (2014), configuration A;
// initial values as torchvision has them.
Symbol Vgg11(const ZooOptions& options) {
  struct Stage {
    int64_t filters;
    int convolutions;
  };
  constexpr Stage kStages[] = {{64, 1}, {128, 1}, {256, 2}, {512, 2}, {512, 2}};
  Symbol x = Input(options);  // (N, 3, 224, 224)
  int stage = 0;
  for (const auto& [filters, convolutions] : kStages) {
    ++stage;
    for (int i = 1; i <= convolutions; ++i) {
      const std::string number = fmt::format("{}_{}", stage, i);
      x = Convolution(x, {.num_filter = filters, .kernel = {3, 3}, .pad = {1, 1}}, "conv" + number);
      x = Relu(x, "relu" + number);
    }
    x = Pooling(x, kHalve, fmt::format("pool{}", stage));
  }
  x = Flatten(x, "flatten");  // from (N, 512, 7, 7)
  for (int i = 6; i <= 7; ++i) {
    x = Relu(FullyConnected(x, {.num_hidden = 4096}, fmt::format("fc{}", i)), fmt::format("relu{}", i));
    x = MaybeDropout(x, options, fmt::format("dropout{}", i));
  }
  x = FullyConnected(x, {.num_hidden = options.num_classes}, "fc8");
  const std::string linear = "normal(0.01)";
  return WithInitial(SoftmaxOutput(x, {}, "softmax"),
                     {{"fc6_weight", linear}, {"fc7_weight", linear}, {"fc8_weight", linear}, {"_weight", kHeFanOut}});
}

// Ronneberger, Fischer, Brox, "U-Net: convolutional networks for biomedical image segmentation" (2015), with padding,
// and with batch-norm. Weights are N(0, 2 / fan in), as in their section 3.
Symbol UNet(const ZooOptions& options) {
  constexpr int64_t kNarrowest = 16;
  constexpr int kDepth = 3;
  if (options.input[1] % (1 << kDepth) != 0 || options.input[2] % (1 << kDepth) != 0) {
    Throw("model \"unet\": rows and columns must be multiples of {}, got {}", 1 << kDepth, options.input);
  }
  const auto twice = [&](Symbol x, int64_t filters, const std::string& unit) {
    for (const char* number : {"1", "2"}) {
      x = Relu(Norm(Conv(x, {.filters = filters}, unit + "_conv" + number), options, unit + "_bn" + number),
               unit + "_relu" + number);
    }
    return x;
  };
  Symbol x = Input(options);  // (N, 1, 64, 64)
  std::vector<Symbol> levels;
  for (int level = 0; level < kDepth; ++level) {
    levels.push_back(twice(x, kNarrowest << level, fmt::format("down{}", level)));
    x = Pooling(levels.back(), kHalve, fmt::format("down{}_pool", level));
  }
  x = twice(x, kNarrowest << kDepth, "middle");  // (N, 128, 8, 8)
  x = MaybeDropout(x, options, "dropout1");
  for (int level = kDepth - 1; level >= 0; --level) {
    const std::string unit = fmt::format("up{}", level);
    const int64_t filters = kNarrowest << level;
    x = Deconvolution(x, {.num_filter = filters, .kernel = {2, 2}, .stride = {2, 2}}, unit + "_deconv");
    x = twice(Concat({levels[level], x}, {.axis = 1}, unit + "_concat"), filters, unit);
  }
  x = Convolution(x, {.num_filter = options.num_classes, .kernel = {1, 1}}, "head");
  return WithInitial(SoftmaxOutput(x, {.multi_output = true}, "softmax"), {{"_weight", "he"}});
}

}  // namespace bindery::zoo
