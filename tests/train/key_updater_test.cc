#include "train/key_updater.h"

#include <gtest/gtest.h>

#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "tests/message_of.h"
#include "tests/test_device.h"
#include "train/array_iter.h"
#include "train/digits.h"
#include "train/initializer.h"
#include "train/updater.h"

namespace bindery {
namespace {

// The trained parameters: by an updater in a store, or by Updater.
HostTensorMap Train(bool in_the_store, KVStoreType type) {
  constexpr int64_t kBatch = 12;
  const Symbol weight = Variable("fc1_weight", {.lr_mult = 0.5});
  const Symbol hidden = Relu(FullyConnected(Variable("data"), weight, Symbol(), {.num_hidden = 20}, "fc1"));
  const Symbol net = SoftmaxOutput(FullyConnected(hidden, {.num_hidden = 10}, "fc2"), {}, "softmax");
  const ImageSet digits = DrawDigits(kBatch * 2, 1);
  ArrayIter data(digits.images, digits.labels, {.batch_size = kBatch});
  DataParallelExecutorGroup group(
      net, {.devices = {TestDevice(0), TestDevice(1)}, .data = data.ProvideData(), .labels = data.ProvideLabel()});
  std::map<std::string, ValueType> types;
  for (const StoredParameter& p : group.store().parameters()) types[p.name] = {.dtype = p.dtype, .shape = p.shape};
  group.SetParams(InitialValues(net, types, Initializer("xavier"), 1), {});

  const std::shared_ptr<const Optimizer> optimizer = MakeOptimizer("sgd(lr=0.2, momentum=0.9, wd=0.01)");
  const SchedulePtr schedule = ParseSchedule("factor(step=2, factor=0.5)", 0.2);
  Updater updater(&group, {.optimizer = optimizer, .schedule = schedule});
  const std::unique_ptr<KVStore> kv = KVStore::Create(type);
  kv->SetUpdater(
      MakeKeyUpdater(optimizer, {.schedule = schedule, .rescale = 1.0 / kBatch, .annotations = net.AllAnnotations()}));
  for (const ReplicatedParam& p : group.params()) kv->Init(p.name, p.values[0]);
  for (int epoch = 0; epoch < 3; ++epoch, data.Reset()) {
    while (const BatchPtr batch = data.Next()) {
      if (!in_the_store) {
        updater.Update(batch);
        continue;
      }
      group.Forward(batch);
      group.Backward();
      for (const ReplicatedParam& p : group.params()) {
        kv->Push(p.name, p.grads);
        kv->Pull(p.name, p.values);
      }
    }
  }
  HostTensorMap params;
  group.GetParams(&params, nullptr);
  return params;
}

TEST(KeyUpdater, IsTheUpdatersStep) {
  const HostTensorMap expected = Train(false, KVStoreType::kDevice);
  for (const KVStoreType type : {KVStoreType::kLocal, KVStoreType::kDevice}) {
    for (const auto& [name, value] : Train(true, type)) EXPECT_LT(MaxAbsDiff(value, expected.at(name)), 1e-6) << name;
  }
}

TEST(KeyUpdater, CountsStepsAndKeepsStateByKey) {
  const KeyUpdater update = MakeKeyUpdater(MakeOptimizer("sgd(lr=1, momentum=0.5, wd=0.1)"), {.rescale = 0.5});
  const auto push = [&](const Key& key, double gradient, double* weight) {
    update(key, DType::kFloat64, &gradient, weight, 1);
  };
  double a = 0, b = 0, number = 1;
  push("a_bias", 2, &a);
  push("b_bias", 4, &b);
  EXPECT_EQ(a, -1);
  EXPECT_EQ(b, -2);
  push("a_bias", 0, &a);  // the momentum of `a` alone
  EXPECT_EQ(a, -1.5);
  push(7, 0, &number);  // decays
  EXPECT_DOUBLE_EQ(number, 0.9);
}

TEST(KeyUpdater, AKeyKeepsItsSizeAndDtype) {
  const KeyUpdater update = MakeKeyUpdater(MakeOptimizer("sgd(lr=1, momentum=0.5)"));
  const std::vector<double> gradient(3, 1);
  std::vector<double> weight(3, 0);
  update("w", DType::kFloat64, gradient.data(), weight.data(), 2);
  EXPECT_EQ(
      MessageOf<ShapeError>([&] { update("w", DType::kFloat64, gradient.data(), weight.data(), 3); }),
      "ShapeError: key \"w\": the optimizer's state is of 2 elements of float64, but 3 of float64 are updated now");
  EXPECT_THROW(update("w", DType::kFloat32, gradient.data(), weight.data(), 2), ShapeError);
  EXPECT_EQ(weight, (std::vector<double>{-1, -1, 0}));
}

}  // namespace
}  // namespace bindery
