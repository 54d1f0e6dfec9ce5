#include "train/zoo.h"

#include "base/error.h"
#include "base/names.h"
#include "symbol/ops.h"

namespace bindery {
namespace {

// The batch is unknown.
Symbol Input(const ZooOptions& options) { return Variable("data", {.shape = options.input.Insert(0, kUnknownDim)}); }

Symbol MaybeDropout(const Symbol& x, const ZooOptions& options, const std::string& name) {
  return options.dropout > 0 ? Dropout(x, {.p = options.dropout}, name) : x;
}

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
  const PoolingAttrs pool = {.type = PoolType::kMax, .kernel = {2, 2}, .stride = {2, 2}};
  Symbol x = Input(options);  // (N, 1, 28, 28)
  x = Tanh(Convolution(x, {.num_filter = 20, .kernel = {5, 5}}, "conv1"), "tanh1");
  x = Pooling(x, pool, "pool1");  // (N, 20, 12, 12)
  x = Tanh(Convolution(x, {.num_filter = 50, .kernel = {5, 5}}, "conv2"), "tanh2");
  x = Pooling(x, pool, "pool2");  // (N, 50, 4, 4)
  x = Tanh(FullyConnected(Flatten(x, "flatten"), {.num_hidden = 500}, "fc1"), "tanh3");
  x = MaybeDropout(x, options, "dropout1");
  x = FullyConnected(x, {.num_hidden = options.num_classes}, "fc2");
  return SoftmaxOutput(x, {}, "softmax");
}

// Residual networks: He, Zhang, Ren, Sun, "Deep residual learning for image recognition" (2015).
class ResNet {
 public:
  explicit ResNet(const ZooOptions& options) : options_(options) {}

  Symbol Conv(const Symbol& x, int64_t filters, int64_t kernel, int64_t stride, const std::string& name) const {
    return Convolution(x,
                       {.num_filter = filters,
                        .kernel = {kernel, kernel},
                        .stride = {stride, stride},
                        .pad = {kernel / 2, kernel / 2},
                        .no_bias = true},
                       name);
  }
  Symbol Norm(const Symbol& x, const std::string& name) const {
    return BatchNorm(x, {.eps = 1e-5, .fix_gamma = false, .sync = options_.sync_batch_norm}, name);
  }
  Symbol ConvNormRelu(const Symbol& x, int64_t filters, int64_t kernel, int64_t stride, const std::string& unit,
                      const std::string& number) const {
    const std::string prefix = unit.empty() ? "" : unit + "_";
    const Symbol y = Norm(Conv(x, filters, kernel, stride, prefix + "conv" + number), prefix + "bn" + number);
    return Relu(y, prefix + "relu" + number);
  }
  // x itself, or its projection where the unit changes its shape.
  Symbol Shortcut(const Symbol& x, bool project, int64_t filters, int64_t stride, const std::string& unit) const {
    return project ? Norm(Conv(x, filters, 1, stride, unit + "_conv1sc"), unit + "_sc") : x;
  }

  // 3x3, 3x3
  Symbol BasicUnit(const Symbol& x, bool project, int64_t filters, int64_t stride, const std::string& unit) const {
    Symbol y = ConvNormRelu(x, filters, 3, stride, unit, "1");
    y = Norm(Conv(y, filters, 3, 1, unit + "_conv2"), unit + "_bn2");
    return Relu(Add(y, Shortcut(x, project, filters, stride, unit), unit + "_plus"), unit + "_relu2");
  }
  // 1x1, 3x3 with the stride, 1x1
  Symbol BottleneckUnit(const Symbol& x, bool project, int64_t filters, int64_t stride, const std::string& unit) const {
    Symbol y = ConvNormRelu(x, filters / 4, 1, 1, unit, "1");
    y = ConvNormRelu(y, filters / 4, 3, stride, unit, "2");
    y = Norm(Conv(y, filters, 1, 1, unit + "_conv3"), unit + "_bn3");
    return Relu(Add(y, Shortcut(x, project, filters, stride, unit), unit + "_plus"), unit + "_relu3");
  }

  Symbol Head(Symbol x) const {
    x = Flatten(Pooling(x, {.type = PoolType::kAvg, .global = true}, "pool1"), "flatten");
    x = MaybeDropout(x, options_, "dropout1");
    return SoftmaxOutput(FullyConnected(x, {.num_hidden = options_.num_classes}, "fc1"), {}, "softmax");
  }

 private:
  const ZooOptions& options_;
};

std::string UnitName(int stage, int unit) { return fmt::format("stage{}_unit{}", stage, unit); }

Symbol ResNet20(const ZooOptions& options) {
  const ResNet net(options);
  Symbol x = net.ConvNormRelu(Input(options), 16, 3, 1, "", "0");  // (N, 16, 32, 32)
  for (int stage = 1; stage <= 3; ++stage) {
    for (int unit = 1; unit <= 3; ++unit) {
      const bool narrower = stage > 1 && unit == 1;  // half the height and width, twice the channels
      x = net.BasicUnit(x, narrower, int64_t{8} << stage, narrower ? 2 : 1, UnitName(stage, unit));
    }
  }
  return net.Head(x);  // from (N, 64, 8, 8)
}

Symbol ResNet50(const ZooOptions& options) {
  const ResNet net(options);
  Symbol x = net.ConvNormRelu(Input(options), 64, 7, 2, "", "0");  // (N, 64, 112, 112)
  x = Pooling(x, {.type = PoolType::kMax, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}}, "pooling0");
  constexpr int kUnits[] = {3, 4, 6, 3};
  for (int stage = 1; stage <= 4; ++stage) {
    for (int unit = 1; unit <= kUnits[stage - 1]; ++unit) {
      const int64_t stride = stage > 1 && unit == 1 ? 2 : 1;
      x = net.BottleneckUnit(x, unit == 1, int64_t{128} << stage, stride, UnitName(stage, unit));
    }
  }
  return net.Head(x);  // from (N, 2048, 7, 7)
}

struct ZooEntry {
  const char* name;
  Shape input;
  int64_t classes;
  Symbol (*make)(const ZooOptions&);
};

const std::vector<ZooEntry>& Zoo() {
  static const std::vector<ZooEntry> zoo = {
      {"mlp", {1, 28, 28}, 10, Mlp},
      {"lenet", {1, 28, 28}, 10, LeNet},
      {"resnet20", {3, 32, 32}, 10, ResNet20},
      {"resnet50", {3, 224, 224}, 1000, ResNet50},
  };
  return zoo;
}

const ZooEntry& FindModel(const std::string& name) {
  for (const ZooEntry& entry : Zoo()) {
    if (name == entry.name) return entry;
  }
  Throw("unknown model \"{}\"{}", name, NameHint(name, ModelNames()));
}

}  // namespace

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const ZooEntry& entry : Zoo()) names.emplace_back(entry.name);
  return names;
}

Symbol ModelByName(const std::string& name, const ZooOptions& options) {
  const ZooEntry& entry = FindModel(name);
  if (options.num_classes < 0) Throw("model \"{}\": num_classes must be >= 1, got {}", name, options.num_classes);
  if (!(options.dropout >= 0 && options.dropout < 1))
    Throw("model \"{}\": dropout must be in [0, 1), got {}", name, options.dropout);
  if (options.input.rank() != 0 && (options.input.rank() != 3 || options.input.Elements() < 1)) {
    Throw("model \"{}\": expected an input shape (channels, rows, columns), got {}", name, options.input);
  }
  ZooOptions resolved = options;
  if (resolved.input.rank() == 0) resolved.input = entry.input;
  if (resolved.num_classes == 0) resolved.num_classes = entry.classes;
  return entry.make(resolved);
}

Shape ModelInputShape(const std::string& name) { return FindModel(name).input; }
int64_t ModelClasses(const std::string& name) { return FindModel(name).classes; }

}  // namespace bindery
