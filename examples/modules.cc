// A loop of one's own: networks that are called like functions, with a criterion between two calls, replicas that join
// while it runs, and a network in two halves, each pinned to a device.
//
//   tools/bazel run //examples:modules            # or: modules FOLDER, where its file is to be
//
// Expected: in 6 epochs on digits that it draws itself an accuracy above 0.93, of the loaded file the same, and with
// the halves on two devices the same losses, up to rounding.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "symbol/ops.h"
#include "train/data/digits.h"
#include "train/module/replicated_module.h"

using namespace bindery;

namespace {

constexpr int64_t kSamples = 4000, kBatch = 50, kPixels = 28 * 28, kHidden = 64, kClasses = 10;

Symbol Lower() { return Relu(FullyConnected(Variable("image"), {.num_hidden = kHidden}, "fc1")); }
Symbol Upper() { return FullyConnected(Variable("hidden"), {.num_hidden = kClasses}, "fc2"); }
Symbol Whole() { return Upper().Compose({{"hidden", Lower()}}); }

// Scores and labels -> the loss of each sample.
ReplicatedModule Criterion() {
  const Symbol loss = MakeLoss(SoftmaxCrossEntropy(Variable("scores"), Variable("label")));
  return ReplicatedModule(loss,
                          {.inputs = ListOf(DataDesc{"scores", {kBatch, kClasses}}, DataDesc{"label", {kBatch}})});
}

double SumOf(const Values& values) {
  const HostTensor all = values.leaf().ToHost();
  double sum = 0;
  for (int64_t i = 0; i < all.elements(); ++i) sum += all.At(i);
  return sum;
}

double AccuracyOf(ReplicatedModule& net, const HostTensor& images, const HostTensor& labels) {
  net.Evaluate();
  const HostTensor scores = net.Forward(images).leaf().ToHost();
  net.Train();
  int64_t right = 0;
  for (int64_t n = 0; n < labels.elements(); ++n) {
    int64_t best = 0;
    for (int64_t c = 1; c < kClasses; ++c) {
      if (scores.At(n * kClasses + c) > scores.At(n * kClasses + best)) best = c;
    }
    right += best == static_cast<int64_t>(labels.At(n));
  }
  return static_cast<double>(right) / static_cast<double>(labels.elements());
}

}  // namespace

int main(int argc, char** argv) {
  const char* called_in = std::getenv("BUILD_WORKING_DIRECTORY");
  const std::string path = std::string(argc > 1 ? argv[1] : called_in ? called_in : ".") + "/modules.pb";
  const ImageSet train = DrawDigits(kSamples, /*seed=*/1), test = DrawDigits(500, /*seed=*/2);
  const HostTensor images = train.images.Reshape({kSamples, kPixels}), unseen = test.images.Reshape({500, kPixels});
  const auto batch = [&](const HostTensor& all, int64_t step) {
    return all.Slice(0, step * kBatch, (step + 1) * kBatch);
  };
  const DataDesc image{"image", {kBatch, kPixels}}, hidden{"hidden", {kBatch, kHidden}};

  ReplicatedModule net(Whole(), {.devices = {Cpu(0)}, .inputs = image, .seed = 1});
  ReplicatedModule criterion = Criterion();
  double first_loss = 0;
  for (int epoch = 1; epoch <= 6; ++epoch) {
    if (epoch == 3) net.AddReplica(Cpu(1));  // shares the work from here on
    double loss = 0;
    for (int64_t step = 0; step < kSamples / kBatch; ++step) {
      net.ZeroGradients();
      const Values losses = criterion.Forward(ListOf(net.Forward(batch(images, step)), batch(train.labels, step)));
      net.Backward(criterion.Backward()[0], 1.0 / kBatch);
      net.Update(0.5);
      loss += SumOf(losses) / kSamples;
    }
    if (epoch == 1) first_loss = loss;
    std::printf("epoch %d: loss %.4f, %d replicas\n", epoch, loss, static_cast<int>(net.devices().size()));
  }
  std::printf("accuracy %.3f\n", AccuracyOf(net, unseen, test.labels));
  net.Save(path);
  ReplicatedModule loaded = ReplicatedModule::Load(path, {.devices = {Cpu(0)}});
  std::printf("loaded: accuracy %.3f\n", AccuracyOf(loaded, unseen, test.labels));

  // The same network in two halves: what the lower gives goes to the device of the upper one, and back.
  ReplicatedModule low(Lower(), {.devices = {Cpu(0)}, .inputs = image, .seed = 1, .output_device = Cpu(1)});
  ReplicatedModule high(Upper(), {.devices = {Cpu(1)}, .inputs = hidden, .seed = 1});
  double loss = 0;
  for (int64_t step = 0; step < kSamples / kBatch; ++step) {
    for (ReplicatedModule* half : {&low, &high}) half->ZeroGradients();
    const Values scores = high.Forward(low.Forward(batch(images, step)));
    const Values losses = criterion.Forward(ListOf(scores, batch(train.labels, step)));
    low.Backward(high.Backward(criterion.Backward()[0], 1.0 / kBatch), 1.0 / kBatch);
    for (ReplicatedModule* half : {&low, &high}) half->Update(0.5);
    loss += SumOf(losses) / kSamples;
  }
  std::printf("in two halves: loss %.4f, differs by %.1e\n", loss, std::abs(loss - first_loss));
}
