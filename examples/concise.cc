// What from_scratch.cc does by hand, in a few lines: LeNet on one, two and three devices by Trainer, which splits the
// batches, sums the gradients and updates.
//
//   tools/bazel run //examples:concise              # on digits that the program draws itself
//   tools/bazel run //examples:concise -- FOLDER    # four IDX files as of MNIST or Fashion-MNIST
//
// Expected on drawn digits, for 1, 2 and 3 devices alike: an accuracy above 0.95 after the last epoch.
#include <cstdio>
#include <vector>

#include "symbol/ops.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/data/idx.h"
#include "train/trainer.h"

using namespace bindery;

namespace {

Symbol LeNet() {
  const PoolingAttrs half = {.type = PoolType::kAvg, .kernel = {2, 2}, .stride = {2, 2}};
  Symbol x = Pooling(Relu(Convolution(Variable("data"), {.num_filter = 20, .kernel = {3, 3}}, "conv1")), half);
  x = Pooling(Relu(Convolution(x, {.num_filter = 50, .kernel = {5, 5}}, "conv2")), half);
  x = FullyConnected(Relu(FullyConnected(x, {.num_hidden = 128}, "fc1")), {.num_hidden = 10}, "fc2");
  return SoftmaxOutput(x, {}, "softmax");  // with label "softmax_label"
}

}  // namespace

int main(int argc, char** argv) {
  const ImageSet train = argc > 1 ? ReadMnist(argv[1], MnistPart::kTrain) : DrawDigits(6000, /*seed=*/1);
  const ImageSet test =
      argc > 1 ? ReadMnist(argv[1], MnistPart::kTest) : DrawDigits(1000, /*seed=*/1, /*first=*/1 << 20);
  std::vector<Device> devices;
  for (int num_devices = 1; num_devices <= 3; ++num_devices) {
    devices.push_back(Cpu(num_devices - 1));
    ArrayIter train_iter(train.images, train.labels, {.batch_size = 64});
    ArrayIter test_iter(test.images, test.labels, {.batch_size = 64});
    Trainer trainer(LeNet(), {.devices = devices, .optimizer = "sgd(lr=0.1)"});
    trainer.Fit(train_iter, {.epochs = 4, .validation = &test_iter, .on_epoch = [&](const EpochReport& report) {
                               std::printf("%d devices, epoch %d: %.2f s, test accuracy %.4f\n", num_devices,
                                           static_cast<int>(report.epoch + 1), report.seconds,
                                           report.validation[0].second);
                             }});
  }
}
