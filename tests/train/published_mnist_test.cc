// What MXNet's tests expect of MNIST (docs/group.md), on as many digits as suffice, drawn by the program.
#include <gtest/gtest.h>

#include "symbol/ops.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/trainer.h"

namespace bindery {
namespace {

TEST(PublishedMnist, An784By128By64By10MlpLearnsOnTwoCpus) {  // E47
  Symbol x = Relu(FullyConnected(Flatten(Variable("data")), {.num_hidden = 128}, "fc1"));
  x = Relu(FullyConnected(x, {.num_hidden = 64}, "fc2"));
  const Symbol net = SoftmaxOutput(FullyConnected(x, {.num_hidden = 10}, "fc3"), {}, "softmax");
  const TrainerOptions options{.devices = {Cpu(0), Cpu(1)}, .optimizer = "sgd(lr=0.1, momentum=0.9, wd=4e-4)"};
  const ImageSet digits = DrawDigits(5000, 1), others = DrawDigits(10000, 1, 100000);
  ArrayIter train(digits.images, digits.labels, {.batch_size = 100, .shuffle = true, .seed = 3});
  ArrayIter test(others.images, others.labels, {.batch_size = 100});
  Trainer trainer(net, options);
  trainer.Fit(train, {.epochs = 4});
  EXPECT_GT(trainer.Score(test, "accuracy")[0].second, 0.95);
  const HostTensor predictions = trainer.Predict(test)[0];
  EXPECT_EQ(predictions.shape(), (Shape{10000, 10}));

  // Saved and loaded, as a model and as a checkpoint, the predictions are the same to the bit.
  const std::string path = testing::TempDir() + "/published_mnist";
  trainer.Save(path + ".pb");
  Trainer loaded(LoadModel(path + ".pb"), options);
  EXPECT_EQ(loaded.Predict(test)[0], predictions);
  SaveCheckpoint(trainer.ToCheckpoint(&train), path + ".ckpt");
  Trainer restored(net, options);
  restored.Restore(LoadCheckpoint(path + ".ckpt"), &train);
  EXPECT_EQ(restored.Predict(test)[0], predictions);

  // Features of a layer inside.
  Model model = trainer.ToModel();
  Model cut{.symbol = model.symbol.Internals()["fc2_output"]};
  for (const char* name : {"fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"})
    cut.params[name] = model.params.at(name);
  Trainer features(cut, options);
  EXPECT_EQ(features.Predict({others.images})[0].shape(), (Shape{10000, 64}));
}

// The images are rows of one number here: what is counted does not depend on their size.
TEST(PublishedMnist, Has600BatchesOf100AndBeginsAgainAfterReset) {  // E46
  HostTensor rows(DType::kFloat32, {60000, 1}), labels(DType::kFloat32, {60000});
  for (int64_t i = 0; i < 60000; ++i) {
    rows.Set(i, static_cast<double>(i));
    labels.Set(i, static_cast<double>(i % 10));
  }
  ArrayIter iter(std::move(rows), std::move(labels), {.batch_size = 100});
  BatchPtr first;
  for (int pass = 0; pass < 2; ++pass) {
    int64_t batches = 0;
    while (const BatchPtr batch = iter.Next()) {
      if (batches++ > 0) continue;
      if (!first) first = batch;
      EXPECT_EQ(batch->data[0], first->data[0]);
      EXPECT_EQ(batch->label[0], first->label[0]);
      EXPECT_EQ(batch->data[0].At(99), 99);
    }
    EXPECT_EQ(batches, 600);
    iter.Reset();
  }
}

}  // namespace
}  // namespace bindery
