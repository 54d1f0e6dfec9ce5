// A program of its own: trains a network on digits that it draws, saves it, and asks it from two threads.
//
// Expected: more than 900 of 1000 digits right.
#include <bindery/bindery.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

using namespace bindery;

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "mlp.pb";
  try {
    Symbol x = Relu(FullyConnected(Variable("data"), {.num_hidden = 64}, "fc1"));
    const Symbol net = SoftmaxOutput(FullyConnected(x, {.num_hidden = 10}, "fc2"), {}, "softmax");

    const ImageSet digits = DrawDigits(3000, /*seed=*/1);
    ArrayIter batches(digits.images, digits.labels, {.batch_size = 50, .shuffle = true});
    Trainer trainer(net, {.devices = {Cpu(0), Cpu(1)}, .optimizer = "sgd(lr=0.05, momentum=0.9)"});
    trainer.Fit(batches, {.epochs = 5});
    trainer.Save(path);

    const ImageSet test = DrawDigits(1000, /*seed=*/1, /*first=*/1 << 20);
    const Predictor predictor(path, {.inputs = {{"data", {500, 1, 28, 28}}}});
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (int64_t first : {0, 500}) {
      threads.emplace_back([&, first] {
        const HostTensor scores = predictor.Predict({{"data", test.images.Slice(0, first, first + 500)}})[0];
        for (int64_t i = 0; i < 500; ++i) {
          const float* row = scores.data<float>().data() + i * 10;
          right += std::max_element(row, row + 10) - row == test.labels.At(first + i);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::printf("%d of 1000 digits right\n", right.load());

    Predictor("no-such-file.pb", {});
  } catch (const DataError& e) {
    std::printf("as expected: %s\n", e.what());
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
