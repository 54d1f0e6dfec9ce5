// An LSTM whose layers lie on devices of their own: for models that one device's memory does not hold.
//
//   tools/bazel run //examples:two_devices
//
// It learns to repeat what it read three steps ago. Expected: an accuracy above 0.95 after 12 epochs, the layers'
// weights on cpu:0 and cpu:1, and on one device the same numbers, up to rounding.
#include <cmath>
#include <cstdio>

#include "base/philox.h"
#include "executor/executor_group.h"
#include "symbol/ops.h"
#include "symbol/stages.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"

using namespace bindery;

constexpr int64_t kSequences = 600, kSteps = 12, kDelay = 3, kWords = 8, kWidth = 32;

// (sequences, steps) of words, and what is to be said at each step.
ArrayIter Sequences(const char* name) {
  HostTensor words(DType::kFloat32, {kSequences, kSteps}), said(DType::kFloat32, {kSequences, kSteps});
  PhiloxStream random(/*seed=*/1, name);
  for (int64_t i = 0; i < words.elements(); ++i) {
    words.Set(i, static_cast<double>(random.Below(kWords)));
    if (i % kSteps >= kDelay) said.Set(i, words.At(i - kDelay));
  }
  return ArrayIter(std::move(words), std::move(said), {.batch_size = 60, .shuffle = true, .seed = 1});
}

Symbol Net() {
  const RnnAttrs layer{.cell = RecurrentCell::kLstm, .hidden = kWidth, .layout = SequenceLayout::kNtc};
  Symbol x = Variable("data");
  {
    const AttrScope here({{"ctx_group", "lower"}});  // what is made here, and the parameters that it needs
    x = Embedding(x, {.input_dim = kWords, .output_dim = kWidth}, "words");
    x = Rnn(x, layer, "lstm0").output;  // (N, steps, width): goes to the other device
  }
  const AttrScope here({{"ctx_group", "upper"}});
  x = Reshape(Rnn(x, layer, "lstm1").output, {.shape = {-1, kWidth}});
  x = FullyConnected(x, {.num_hidden = kWords}, "scores");
  return SoftmaxOutput(x, Reshape(Variable("softmax_label"), {.shape = {-1}}), {}, "softmax");
}

double Train(const char* title, const Symbol& net, const Placements& placements) {
  ArrayIter train = Sequences("train"), test = Sequences("test");
  Trainer trainer(net, {.placements = placements, .optimizer = "adam(lr=0.01)", .seed = 1});
  std::printf("%s\n", title);
  trainer.Fit(train, {.epochs = 12, .validation = &test, .on_epoch = [](const EpochReport& report) {
                        std::printf("epoch %d: accuracy %.4f\n", static_cast<int>(report.epoch + 1),
                                    report.validation[0].second);
                      }});
  for (const ReplicatedParam& p : trainer.group()->params()) {
    if (!placements.empty()) std::printf("%-22s %s\n", p.name.c_str(), ToString(p.values[0].device()).c_str());
  }
  return trainer.Score(test, "cross-entropy")[0].second;
}

int main() {
  const double two = Train("on two devices", Net(), {{"lower", {Cpu(0)}}, {"upper", {Cpu(1)}}});
  const double one = Train("on one device", WithoutPlacements(Net()), {});
  std::printf("losses differ by %.1e\n", std::abs(two - one));
}
