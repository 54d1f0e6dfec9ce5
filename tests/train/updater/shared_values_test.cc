// Training where devices share the values of parameters: the bits of replicas that each have their own.
#include <gtest/gtest.h>

#include <algorithm>

#include "executor/group/split_batch.h"
#include "symbol/ops.h"
#include "symbol/passes/mixed_precision.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"
#include "train/updater/updater.h"

namespace bindery {
namespace {

constexpr int64_t kSamples = 12, kFeatures = 7, kClasses = 3;

struct Case {
  std::string optimizer;
  std::string average = {}, loss_scale = {};
  bool low = false;                            // bfloat16, by copies of the weights
  KVStoreType kvstore = KVStoreType::kDevice;  // norms are sums over the ranges of its workers: of one there is one
};

Symbol NetOf(const Case& c) {
  const Symbol net = c.low ? MixedPrecision(SmallNet(kClasses)) : SmallNet(kClasses);
  return c.loss_scale.empty() ? net : ScaleLosses(net);
}

// By reference kernels, which compute a sample as they do in a batch of any size.
GroupOptions OptionsOf(const std::vector<Device>& devices, int64_t samples, const std::vector<double>& workload = {}) {
  return {.devices = devices,
          .workload = workload,
          .data = {{"data", {samples, kFeatures}}},
          .labels = {{"softmax_label", {samples}}},
          .threads_per_device = 1,
          .switches = {.policy = KernelPolicy::kReference}};
}

UpdaterOptions OptionsOf(const Case& c) {
  return {.optimizer = MakeOptimizer(c.optimizer),
          .kvstore = c.kvstore,
          .loss_scale = ParseLossScaling(c.loss_scale),
          .average = ParseAveraging(c.average)};
}

// A group of its own for each device, whose gradients are added up by hand; the first is updated, and the others get its
// values.
class Replicas {
 public:
  Replicas(const Case& c, const std::vector<double>& workload) : shares_(SplitBatch(kSamples, workload)) {
    for (size_t d = 0; d < shares_.size(); ++d) {
      groups_.push_back(std::make_unique<DataParallelExecutorGroup>(
          NetOf(c), OptionsOf({Cpu(static_cast<int>(d))}, shares_[d].size())));
      InitialiseEqually({groups_[d].get()}, 1);
    }
    updater_ = std::make_unique<Updater>(groups_[0].get(), OptionsOf(c));
  }

  void Update(const Batch& batch) {
    HostTensorMap sums;
    for (size_t d = 0; d < groups_.size(); ++d) {
      groups_[d]->SetStep({.batch_size = kSamples, .loss_scale = updater_->loss_scale().scale});
      groups_[d]->ForwardBackward(CutBatch(std::make_shared<const Batch>(batch), groups_[d]->options(), shares_[d]));
      for (const std::string& name : groups_[d]->param_names()) {
        const HostTensor gradient = groups_[d]->GetGradient(name, 0);
        if (d == 0) sums[name] = gradient;
        for (int64_t i = 0; d > 0 && i < gradient.elements(); ++i) {
          sums[name].data<float>()[i] += gradient.data<float>()[i];
        }
      }
    }
    for (const ReplicatedParam& p : groups_[0]->params()) {
      p.grads[0].CopyFrom(sums.at(p.name).Reshape(p.grads[0].shape()));
    }
    updater_->Forgive();
    updater_->Apply(kSamples);
    EXPECT_TRUE(updater_->Finish(updater_->step()));
    for (size_t d = 1; d < groups_.size(); ++d) groups_[d]->SetParams(Params(), {});
  }

  HostTensorMap Params() const {
    HostTensorMap params;
    groups_[0]->GetParams(&params, nullptr);
    return params;
  }
  const Updater& updater() const { return *updater_; }

 private:
  std::vector<SampleRange> shares_;
  std::vector<std::unique_ptr<DataParallelExecutorGroup>> groups_;
  std::unique_ptr<Updater> updater_;
};

TEST(SharedValues, AreTrainedToTheBitsOfReplicas) {
  const Case cases[] = {
      {.optimizer = "sgd(lr=0.5, momentum=0.9)"},
      {.optimizer = "adam(lr=0.05)", .average = "ema(0.9)"},
      {.optimizer = "sgd(lr=0.5, momentum=0.9, clip_norm=0.1)", .kvstore = KVStoreType::kLocal},
      {.optimizer = "lamb(lr=0.05)", .kvstore = KVStoreType::kLocal},
      {.optimizer = "adam(lr=0.05)", .loss_scale = "dynamic(start=1024, interval=2)", .low = true},
  };
  for (const Case& c : cases) {
    for (const std::vector<double>& workload : {std::vector<double>{1}, {2, 1}, {3, 1, 2}}) {
      SCOPED_TRACE(fmt::format("{}, {} devices", c.optimizer, workload.size()));
      Replicas replicas(c, workload);
      std::vector<Device> devices;
      for (size_t d = 0; d < workload.size(); ++d) devices.push_back(Cpu(static_cast<int>(d)));
      DataParallelExecutorGroup group(NetOf(c), OptionsOf(devices, kSamples, workload));
      InitialiseEqually({&group}, 1);
      Updater updater(&group, OptionsOf(c));
      const HostTensorMap before = replicas.Params();
      for (uint64_t step = 0; step < 6; ++step) {
        const Batch batch = RandomBatch(kSamples, kFeatures, kClasses, step);
        replicas.Update(batch);
        updater.Update(std::make_shared<const Batch>(batch));
      }
      HostTensorMap params;
      group.GetParams(&params, nullptr, ReplicaMerge::kCheck);
      EXPECT_NE(params, before);
      EXPECT_EQ(params, replicas.Params());
      EXPECT_EQ(updater.State(), replicas.updater().State());
    }
  }
}

// CPUs beside an accelerator: each updates a range, one of them commits for all that share its memory, and what each
// counts decides which of its states hold.
TEST(SharedValues, BesideAnAcceleratorAreThoseOfOneDevice) {
  for (const char* const optimizer : {"adam(lr=0.05)", "lamb(lr=0.05)", "sgd(lr=0.5, momentum=0.9, clip_norm=0.1)"}) {
    SCOPED_TRACE(optimizer);
    HostTensorMap expected, expected_state;
    for (const std::vector<Device>& devices : {std::vector<Device>{Cpu(0)},
                                               {Cpu(0), Accelerator(0), Cpu(1)},
                                               {Accelerator(0), Cpu(1), Accelerator(0), Cpu(0), Cpu(0)}}) {
      GroupOptions options = OptionsOf(devices, kSamples);
      options.data[0].dtype = DType::kFloat64;
      DataParallelExecutorGroup group(SmallNet(kClasses), options);
      InitialiseEqually({&group}, 1);
      Updater updater(&group, {.optimizer = MakeOptimizer(optimizer)});
      for (uint64_t step = 0; step < 6; ++step) {
        updater.Update(std::make_shared<const Batch>(RandomBatch(kSamples, kFeatures, kClasses, step)));
      }
      updater.WaitFor(updater.step());
      HostTensorMap params;
      group.GetParams(&params, nullptr, ReplicaMerge::kCheck);
      const HostTensorMap state = updater.State();
      if (expected.empty()) {
        expected = params;
        expected_state = state;
      }
      EXPECT_EQ(params.at("fc1_weight").dtype(), DType::kFloat64);
      for (const auto& [name, value] : expected) EXPECT_LT(MaxAbsDiff(params.at(name), value), 1e-10) << name;
      for (const auto& [name, value] : expected_state) EXPECT_LT(MaxAbsDiff(state.at(name), value), 1e-10) << name;
    }
  }
}

}  // namespace
}  // namespace bindery
