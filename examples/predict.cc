// A trained model, served: eight threads ask one Predictor, requests of one to 32 images.
//
//   tools/bazel run //examples:predict
//
// Expected: more than 900 of 1000 digits right, whatever the threads' luck the same number in each run.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "executor/predictor.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/trainer.h"
#include "train/zoo.h"

using namespace bindery;

namespace {

std::string TrainAndSave() {
  const ImageSet digits = DrawDigits(3000, /*seed=*/1);
  ArrayIter batches(digits.images, digits.labels, {.batch_size = 50, .shuffle = true});
  Trainer trainer(ModelByName("mlp"), {.optimizer = "sgd(lr=0.05, momentum=0.9)"});
  trainer.Fit(batches, {.epochs = 5});
  // `bazel run` starts programs in a folder of its own and says where it was called.
  const char* called_in = std::getenv("BUILD_WORKING_DIRECTORY");
  const std::string path = std::string(called_in ? called_in : ".") + "/mlp.pb";
  trainer.Save(path);
  return path;
}

}  // namespace

int main() {
  constexpr int64_t kClients = 8, kEach = 125, kLargest = 32;
  const ImageSet test = DrawDigits(kClients * kEach, /*seed=*/1, /*first=*/1 << 20);
  const Predictor predictor(TrainAndSave(), {.inputs = {{"data", {kLargest, 1, 28, 28}}}});

  std::atomic<int> right{0};
  std::vector<std::thread> clients;
  for (int64_t c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      const int64_t end = (c + 1) * kEach;
      for (int64_t first = c * kEach, size = 1; first < end;
           first += size, size = std::min(size % kLargest + 1, end - first)) {
        const HostTensor scores = predictor.Predict({{"data", test.images.Slice(0, first, first + size)}})[0];
        for (int64_t i = 0; i < size; ++i) {
          const float* row = scores.data<float>().data() + i * 10;
          right += std::max_element(row, row + 10) - row == test.labels.At(first + i);
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  std::printf("%d of %d digits right\n", right.load(), static_cast<int>(kClients * kEach));
}
