// LeNet on several devices, from scratch: parameters, a network of calls, gradients by recording what was called, the
// batch split among the devices, gradients summed over them, steps by hand. What each line costs to leave to others:
// concise.cc.
//
//   tools/bazel run //examples:from_scratch              # on digits that the program draws itself
//   tools/bazel run //examples:from_scratch -- FOLDER    # four IDX files as of MNIST or Fashion-MNIST
//
// Expected on drawn digits, for 1, 2 and 3 devices alike: the losses of the 1-device run, within 0.02, and an accuracy
// above 0.95 after the last epoch. (Not to the bit: sums are rounded in another order, and training magnifies that.)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "executor/tape/ndarray.h"
#include "executor/tape/split_and_load.h"
#include "executor/tape/tape.h"
#include "symbol/ops.h"
#include "train/data/digits.h"
#include "train/data/idx.h"

using namespace bindery;

namespace {

using Params = std::vector<NDArray>;

Params InitialParams() {
  SeedArrays(1);
  return {NDArray::Normal({20, 1, 3, 3}, 0.1),   NDArray::Zeros({20}),   //
          NDArray::Normal({50, 20, 5, 5}, 0.05), NDArray::Zeros({50}),   //
          NDArray::Normal({128, 800}, 0.05),     NDArray::Zeros({128}),  //
          NDArray::Normal({10, 128}, 0.1),       NDArray::Zeros({10})};
}

Params CopyParams(const Params& params, Device device) {
  Params copies;
  for (const NDArray& p : params) copies.emplace_back(p.CopyTo(device)).AttachGradient();
  return copies;
}

// Images (N, 1, 28, 28) -> scores (N, 10)
NDArray LeNet(const NDArray& images, const Params& p) {
  const PoolingAttrs half = {.type = PoolType::kAvg, .kernel = {2, 2}, .stride = {2, 2}};
  NDArray x = Apply(Relu, {Apply(Convolution, {images, p[0], p[1]}, {.num_filter = 20, .kernel = {3, 3}})});
  x = Apply(Pooling, {x}, half);  // (N, 20, 13, 13)
  x = Apply(Relu, {Apply(Convolution, {x, p[2], p[3]}, {.num_filter = 50, .kernel = {5, 5}})});
  x = Apply(Pooling, {x}, half);  // (N, 50, 4, 4)
  x = Apply(Relu, {Apply(FullyConnected, {x, p[4], p[5]}, {.num_hidden = 128})});
  return Apply(FullyConnected, {x, p[6], p[7]}, {.num_hidden = 10});
}

// (N): of each sample, so that the gradients are sums over samples
NDArray LossOf(const NDArray& scores, const NDArray& labels) {
  return Apply([](const Symbol& x, const Symbol& y) { return SoftmaxCrossEntropy(x, y); }, {scores, labels});
}

// One step; the sum of the losses before it.
double TrainBatch(const HostTensor& images, const HostTensor& labels, std::vector<Params>& replicas,
                  const std::vector<Device>& devices, double rate) {
  const std::vector<NDArray> xs = SplitAndLoad(images, devices, {.even = false});
  const std::vector<NDArray> ys = SplitAndLoad(labels, devices, {.even = false});
  std::vector<NDArray> losses;
  {
    const RecordScope record;
    for (size_t d = 0; d < devices.size(); ++d) losses.push_back(LossOf(LeNet(xs[d], replicas[d]), ys[d]));
  }
  for (const NDArray& loss : losses) loss.Backward();
  for (size_t i = 0; i < replicas[0].size(); ++i) {
    std::vector<NDArray> gradients;
    for (const Params& replica : replicas) gradients.push_back(replica[i].gradient());
    AllReduce(gradients);
  }
  for (Params& replica : replicas) {
    for (NDArray& p : replica) p -= rate / static_cast<double>(images.shape()[0]) * p.gradient();
  }
  double sum = 0;
  for (const NDArray& loss : losses) sum += loss.Sum().Scalar();
  return sum;
}

double Accuracy(const ImageSet& set, const Params& params, int64_t batch_size) {
  const Device device = params[0].device();
  const int64_t count = set.labels.shape()[0];
  double right = 0;
  for (int64_t i = 0; i < count; i += batch_size) {
    const int64_t end = std::min(i + batch_size, count);
    const NDArray scores = LeNet(NDArray(set.images.Slice(0, i, end), device), params);
    const NDArray labels(set.labels.Slice(0, i, end), device);
    right += (scores.ArgMax().As(labels.dtype()) == labels).As(DType::kFloat32).Sum().Scalar();
  }
  return right / static_cast<double>(count);
}

void Train(const ImageSet& train, const ImageSet& test, int num_devices, int64_t batch_size, double rate) {
  std::vector<Device> devices;
  std::vector<Params> replicas;
  for (int d = 0; d < num_devices; ++d) {
    devices.push_back(Cpu(d));
    replicas.push_back(CopyParams(InitialParams(), devices.back()));
  }
  const int64_t count = train.labels.shape()[0];
  for (int epoch = 1; epoch <= 4; ++epoch) {
    WaitAll();
    const auto start = std::chrono::steady_clock::now();
    double loss = 0;
    for (int64_t i = 0; i < count; i += batch_size) {
      const int64_t end = std::min(i + batch_size, count);
      loss += TrainBatch(train.images.Slice(0, i, end), train.labels.Slice(0, i, end), replicas, devices, rate);
    }
    WaitAll();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    std::printf("%d devices, epoch %d: %.2f s, loss %.4f, test accuracy %.4f\n", num_devices, epoch, time.count(),
                loss / static_cast<double>(count), Accuracy(test, replicas[0], batch_size));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const ImageSet train = argc > 1 ? ReadMnist(argv[1], MnistPart::kTrain) : DrawDigits(6000, /*seed=*/1);
  const ImageSet test =
      argc > 1 ? ReadMnist(argv[1], MnistPart::kTest) : DrawDigits(1000, /*seed=*/1, /*first=*/1 << 20);
  for (int num_devices = 1; num_devices <= 3; ++num_devices) {
    Train(train, test, num_devices, /*batch_size=*/64, /*rate=*/0.1);
  }
}
