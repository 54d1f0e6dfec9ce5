// What the models of the zoo are made of. Private to train/zoo/.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "train/zoo.h"

namespace bindery::zoo {

// The batch is unknown.
inline Symbol Input(const ZooOptions& options) {
  return Variable("data", {.shape = options.input.Insert(0, kUnknownDim)});
}
Symbol MaybeDropout(const Symbol& x, const ZooOptions& options, const std::string& name);

// Convolution "same" of odd kernels, without bias, and batch-norm.
struct ConvOptions {
  int64_t filters, kernel = 3, stride = 1, groups = 1;
};
Symbol Conv(const Symbol& x, const ConvOptions& conv, const std::string& name);
Symbol Norm(const Symbol& x, const ZooOptions& options, const std::string& name);
// Means over the image, dropout, and a linear classifier "fc1" with its softmax.
Symbol Classifier(Symbol x, const ZooOptions& options);

// The initial values of parameters, by the ending of their names: the first that fits counts.
struct Initial {
  std::string_view ending;
  std::string initializer;
};
Symbol WithInitial(const Symbol& model, std::initializer_list<Initial> initials);
// N(0, 2 / fan out), for convolutions before rectifiers: He et al. 2015, as torchvision has it.
inline constexpr const char* kHeFanOut = "xavier(gaussian, out, 2)";

Symbol Mlp(const ZooOptions& options);
Symbol LeNet(const ZooOptions& options);
Symbol Vgg11(const ZooOptions& options);
Symbol UNet(const ZooOptions& options);
Symbol ResNet20(const ZooOptions& options);
Symbol ResNet18(const ZooOptions& options);
Symbol ResNet34(const ZooOptions& options);
Symbol ResNet50(const ZooOptions& options);
Symbol MobileNetV2(const ZooOptions& options);
Symbol Gpt(const ZooOptions& options);
Symbol Lstm(const ZooOptions& options);
Symbol Transformer(const ZooOptions& options);

}  // namespace bindery::zoo
