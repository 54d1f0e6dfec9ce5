// The programs in README.md, compiled as they stand there, one after the other, do what they seem to.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "executor/executor.h"
#include "executor/predictor.h"
#include "symbol/model.h"
#include "symbol/ops.h"
#include "train/data/array_iter.h"
#include "train/data/digits.h"
#include "train/data/idx.h"
#include "train/trainer.h"

namespace bindery {
namespace {

TEST(Readme, ItsLinesTrainAndSave) {
  std::filesystem::current_path(std::getenv("TEST_TMPDIR"));
  std::filesystem::create_directories("data/mnist");
  WriteIdxImages(DrawDigits(2000, 1), "data/mnist/train-images-idx3-ubyte", "data/mnist/train-labels-idx1-ubyte");
  WriteIdxImages(DrawDigits(500, 1, 1 << 20), "data/mnist/t10k-images-idx3-ubyte", "data/mnist/t10k-labels-idx1-ubyte");
#include "tests/examples/readme_lines.inc"
  EXPECT_GT(trainer.Score(test, "accuracy")[0].second, 0.9);
  EXPECT_EQ(CheckpointStore("run1").LoadNewest()->epoch, 10);
  Trainer loaded(LoadModel("mlp.pb"));
  const HostTensor all = trainer.Predict(test)[0];
  EXPECT_LT(MaxAbsDiff(loaded.Predict(test)[0], all), 1e-5);
  EXPECT_LT(MaxAbsDiff(probabilities, all.Slice(0, 0, 64)), 1e-5);
  EXPECT_LT(MaxAbsDiff(scores[0], all.Slice(0, 0, 5)), 1e-5);
  EXPECT_EQ(gradient.shape(), (Shape{128, 784}));
  EXPECT_GT(MaxAbsDiff(gradient.ToHost(), HostTensor(DType::kFloat32, {128, 784})), 0);
}

}  // namespace
}  // namespace bindery
