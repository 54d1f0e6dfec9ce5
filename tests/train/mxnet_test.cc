// Models that MXNet made (stored/mxnet, by tools/compare_mxnet/models.py): what it computed, step by step; and an
// imported model cut, trained on and saved.
#include <gtest/gtest.h>

#include "symbol/model.h"
#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "tests/test_device.h"
#include "tools/compare_mxnet/compare.h"
#include "train/data/array_iter.h"
#include "train/data/tables/npy.h"
#include "train/trainer.h"

namespace bindery {
namespace {

const std::string kFolder = "tests/train/stored/mxnet";

void ExpectSame(const std::string& name, const std::vector<Device>& devices, const std::vector<double>& workload) {
  const std::vector<MxnetDifference> differences = CompareMxnetModel(kFolder, name, devices, workload);
  EXPECT_GT(differences.size(), 10u);
  for (const auto& [what, difference] : differences) EXPECT_LE(difference, 1e-4) << name << " " << what;
}

TEST(Mxnet, ModelsPredictAndTrainAsMxnetDoes) {
  ExpectSame("two_heads", {TestDevice(0)}, {});
  ExpectSame("two_heads", {TestDevice(0), TestDevice(1)}, {2, 1});
  ExpectSame("lstm", {TestDevice(0)}, {});
  ExpectSame("lstm", {TestDevice(0), TestDevice(1), TestDevice(2)}, {1, 2, 1});
  ExpectSame("mlp", {TestDevice(0)}, {});
  ExpectSame("old_mlp", {TestDevice(0)}, {});  // in the form of MXNet 0.8
}

TEST(Mxnet, BucketsTrainAsThoseOfItsModule) {
  const std::vector<MxnetDifference> differences = CompareMxnetBuckets(kFolder, {TestDevice(0), TestDevice(1)}, {2, 1});
  EXPECT_EQ(differences.size(), 17u);
  for (const auto& [what, difference] : differences) EXPECT_LE(difference, 1e-4) << what;
}

// Two contexts with uneven work: batch-norm by each one's share.
TEST(Mxnet, AnUnevenSplitTrainsAsItsModuleDoes) { ExpectSame("uneven", {TestDevice(0), TestDevice(1)}, {2, 1}); }

TEST(Mxnet, StatesAreCarriedAsByItsModule) {
  const std::vector<MxnetDifference> differences = CompareMxnetStates(kFolder, {TestDevice(0), TestDevice(1)}, {2, 1});
  EXPECT_GT(differences.size(), 10u);
  for (const auto& [what, difference] : differences) EXPECT_LE(difference, 1e-4) << what;
}

TEST(Mxnet, AModelIsCutTrainedOnAndSavedAsAnyOther) {
  const Model loaded = LoadModel(kFolder + "/two_heads-symbol.json");
  const HostTensorMap arrays = ReadNpz(kFolder + "/two_heads.npz");
  const Symbol features = loaded.symbol.Internals()["fc1_output"];
  Model cut{.symbol = SoftmaxOutput(FullyConnected(Tanh(features), {.num_hidden = 3}, "fresh"), {}, "softmax")};
  for (const char* name : {"fc1_weight", "fc1_bias"}) cut.params.emplace(name, loaded.params.at(name));

  const HostTensor& steps = arrays.at("data:data");
  const int64_t samples = steps.shape()[0] * steps.shape()[1];
  const HostTensor data = steps.Reshape({samples, steps.shape()[2]});
  const auto label = [&](int64_t i) { return data.At(4 * i) > 0 ? (data.At(4 * i + 1) > 0 ? 2 : 1) : 0; };
  ArrayIter train(data, Filled({samples}, label), {.batch_size = 5});
  Trainer trainer(cut, {.devices = {TestDevice(0), TestDevice(1)},
                        .optimizer = "sgd(lr=0.3, momentum=0.9)",
                        .fixed_params = {"fc1_weight", "fc1_bias"}});
  trainer.Fit(train, {.epochs = 40});
  EXPECT_GT(trainer.Score(train)[0].second, 0.8);
  const Model trained = trainer.ToModel();
  EXPECT_EQ(trained.params.at("fc1_weight"), loaded.params.at("fc1_weight")) << "it is fixed";

  const std::string path = testing::TempDir() + "/cut.pb";
  trainer.Save(path);
  Trainer again(LoadModel(path), {.devices = {TestDevice(0)}});
  EXPECT_LE(MaxAbsDiff(again.Predict(train)[0], trainer.Predict(train)[0]), 1e-6);
}

}  // namespace
}  // namespace bindery
