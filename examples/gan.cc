// A generative adversarial network (Goodfellow et al. 2014): a generator that draws digits out of noise, and a critic
// that is to tell them from those that the program draws itself. Two models, two optimizers, two devices, one loop.
//
//   tools/bazel run //examples:gan                     # or: gan FOLDER, where its files are to be
//
// Each epoch prints how often the critic is right, and how far the generator's mean image is from that of the digits.
// Killed at any time and started again, it goes on from its last checkpoint and ends in the same bits.
//
// Expected: from the first epoch to the 12th, in well under a minute, the distance falls from above 0.25 to below 0.2.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "symbol/ops.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/extensions/guards.h"
#include "train/extensions/reports.h"
#include "train/extensions/snapshots.h"
#include "train/loop/loop.h"
#include "train/loop/model_learner.h"

using namespace bindery;

namespace {

constexpr int64_t kBatch = 50, kNoise = 32, kPixels = 28 * 28;

Symbol Generator() {
  const Symbol x = Relu(FullyConnected(Variable("noise"), {.num_hidden = 128}, "g1"));
  return Sigmoid(FullyConnected(x, {.num_hidden = kPixels}, "g2"), "image");  // (N, 784)
}

Symbol Critic() {
  const Symbol x = LeakyRelu(FullyConnected(Variable("image"), {.num_hidden = 128}, "c1"), 0.2);
  return LogisticRegressionOutput(FullyConnected(x, {.num_hidden = 1}, "c2"), Variable("is_real"), {}, "critic");
}

HostTensor Noise(const std::string& name, int64_t samples) {
  HostTensor noise(DType::kFloat32, {samples, kNoise});
  PhiloxStream random(/*seed=*/1, name);
  for (float& value : noise.data<float>()) value = random.Uniform(-1, 1);
  return noise;
}

// `real` ones, then zeros.
HostTensor Labels(int64_t real, int64_t drawn) {
  HostTensor labels(DType::kFloat32, {real + drawn, 1});
  for (int64_t i = 0; i < real; ++i) labels.Set(i, 1);
  return labels;
}

class Gan : public ModelLearner {
 public:
  using ModelLearner::ModelLearner;

 protected:
  void UpdateCore() override {
    TrainedModel &generator = model("generator"), &critic = model("critic");
    const BatchPtr digits = NextBatch("main", critic);
    const int64_t samples = digits->samples;
    generator.group().Forward(Batch{.data = {Noise("iteration " + std::to_string(iteration()), samples)}});
    const std::vector<std::vector<Tensor>> drawn = generator.group().OutputsPerDevice();

    // The critic learns what is real. Digits and drawings make one batch: what is drawn stays on the devices.
    const Tensor real(critic.group().engine(), Cpu(0), DType::kFloat32, {samples, kPixels});
    real.CopyFrom(digits->data[0]);
    std::vector<Tensor> rows = {real};
    rows.insert(rows.end(), drawn[0].begin(), drawn[0].end());
    Batch both{.label = {Labels(samples, samples)}};
    both.device_data.Set(0, rows);
    critic.Step(std::make_shared<const Batch>(both));

    // The generator learns what the critic takes for real: through the critic, whose own gradients nobody uses.
    critic.group().Forward(Batch{.label = {Labels(samples, 0)}, .device_data = drawn});
    critic.group().Backward();
    generator.group().Backward(critic.group().InputGradientsPerDevice());
    generator.Apply(samples);
  }
};

std::vector<double> MeanImage(const HostTensor& images) {
  std::vector<double> mean(kPixels);
  for (int64_t i = 0; i < images.elements(); ++i) {
    mean[static_cast<size_t>(i % kPixels)] += images.At(i) * kPixels / static_cast<double>(images.elements());
  }
  return mean;
}

void Draw(const HostTensor& images) {
  for (int64_t row = 2; row < 26; row += 2) {
    std::string line;
    for (int64_t image = 0; image < 4; ++image) {
      for (int64_t column = 2; column < 26; ++column) {
        const double ink = images.At((image * 28 + row) * 28 + column);
        line += ink > 0.6 ? '#' : ink > 0.3 ? '+' : ' ';
      }
    }
    std::printf("%s\n", line.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  // `bazel run` starts programs in a folder of its own and says where it was called.
  const char* called_in = std::getenv("BUILD_WORKING_DIRECTORY");
  const std::string folder = argc > 1 ? argv[1] : std::string(called_in ? called_in : ".") + "/gan";

  const HostTensor digits = DrawDigits(2000, /*seed=*/1).images.Reshape({2000, kPixels});
  ArrayIter batches({{"image", std::make_shared<const HostTensor>(digits)}}, {},
                    {.batch_size = kBatch, .shuffle = true});
  const std::vector<Device> devices = {Cpu(0), Cpu(1)};
  TrainedModel generator(Generator(), {.devices = devices, .data = {{"noise", {kBatch, kNoise}}}},
                         {.optimizer = "adam(lr=0.001, beta1=0.5)"});
  TrainedModel critic(Critic(),
                      {.devices = devices,
                       .data = {{"image", {2 * kBatch, kPixels}}},
                       .labels = {{"is_real", {2 * kBatch, 1}}},
                       .inputs_need_grad = true},
                      {.optimizer = "adam(lr=0.0005, beta1=0.5)", .metrics = "accuracy"});
  Gan gan({.iterators = {{"main", &batches}}, .models = {{"generator", &generator}, {"critic", &critic}}});

  const std::vector<double> mean = MeanImage(digits);
  HostTensor drawn;
  const auto distance = [&] {
    generator.group().Forward(Batch{.data = {Noise("samples", 200)}}, Mode::kPredict);
    drawn = generator.group().Outputs()[0].ToHost();
    const std::vector<double> now = MeanImage(drawn);
    double squares = 0;
    for (size_t i = 0; i < mean.size(); ++i) squares += (now[i] - mean[i]) * (now[i] - mean[i]) / kPixels;
    return std::sqrt(squares);
  };
  const auto print = [](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  };
  Loop loop(&gan, UntilEpoch(12));
  loop.Extend(Evaluator("generator", [&] { return NamedValues{{"distance", distance()}}; }));
  loop.Extend(PrintReport({"epoch", "iteration", "critic/accuracy", "generator/distance"}, print));
  loop.Extend(PrintProgress(12, print));  // where it takes long
  loop.Extend(ObserveRate("generator"));
  loop.Extend(LogReport({.path = folder + "/log.jsonl"}));
  loop.Extend(FailOnBadNumbers());
  loop.Extend(Snapshot({.folder = folder, .trigger = EveryEpochs(0.25)}));
  loop.Run();
  distance();
  Draw(drawn);
  SaveModel(generator.ToModel(), folder + "/generator.pb");
}
