// Models of the zoo on devices of unequal shares: outputs and gradients of one device.
#include <gtest/gtest.h>

#include "symbol/graph.h"
#include "symbol/infer.h"
#include "tests/executor/group_helpers.h"
#include "tests/test_device.h"
#include "train/initializer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

constexpr int64_t kSamples = 5, kClasses = 6, kCharacters = 4;

struct Case {
  std::string name;
  ZooOptions options;
};

// Small ones of each; batch-norm over all devices. ResNet-18 is of resnet20's units, with forty times its weights.
std::vector<Case> Cases() {
  const auto images = [](const Shape& input) {
    return ZooOptions{.input = input, .num_classes = kClasses, .sync_batch_norm = true};
  };
  const auto sequences = [](int64_t heads, bool tied, bool time_first = false) {
    return ZooOptions{.input = {kCharacters},
                      .num_classes = kClasses,
                      .layers = 2,
                      .width = 8,
                      .heads = heads,
                      .tied = tied,
                      .time_first = time_first};
  };
  return {
      {"resnet20", images({3, 16, 16})}, {"mobilenetv2", images({3, 16, 16})}, {"unet", images({1, 16, 8})},
      {"gpt", sequences(2, false)},      {"gpt", sequences(2, true)},          {"lstm", sequences(0, false)},
      {"lstm", sequences(0, true)},      {"lstm", sequences(0, false, true)},  {"transformer", sequences(2, false)}};
}

struct Bound {
  std::unique_ptr<DataParallelExecutorGroup> group;
  Batch batch;
};

Bound Bind(const Case& c, const Symbol& symbol, int devices) {
  const bool sequence = c.options.input.rank() == 1;
  const std::string layout = !sequence ? "" : c.options.time_first ? "TN" : "NT";
  const int axis = c.options.time_first ? 1 : 0;
  const Shape input = c.options.input.Insert(axis, kSamples);
  const Shape label = *InferShapes(symbol, {{"data", input}}).arguments.back();
  // Small images in many layers: in double, so that rounding turns no rectifier's sign.
  const DType dtype = sequence ? DType::kInt32 : DType::kFloat64;
  GroupOptions options{.devices = {}, .labels = {{"softmax_label", label, dtype, layout}}};
  Bound bound;
  for (const char* name : {"data", "target"}) {
    const std::vector<std::string> arguments = symbol.ListArguments();
    if (std::find(arguments.begin(), arguments.end(), name) == arguments.end()) continue;
    options.data.push_back({name, input, dtype, layout});
    bound.batch.data.push_back(RandomTensor(input, options.data.size(), dtype));
  }
  bound.batch.label.push_back(HostTensor(dtype, label));
  PhiloxStream random(3, "classes");
  const auto draw = [&](HostTensor* tensor) {
    *tensor = HostTensor(dtype, tensor->shape());
    for (int64_t i = 0; i < tensor->elements(); ++i) tensor->Set(i, static_cast<double>(random.Below(kClasses)));
  };
  if (sequence) {
    for (HostTensor& data : bound.batch.data) draw(&data);
  }
  draw(&bound.batch.label[0]);
  for (int i = 0; i < devices; ++i) {
    options.devices.push_back(TestDevice(i));
    options.workload.push_back(i == 0 ? 2 : 1);
  }
  bound.group = std::make_unique<DataParallelExecutorGroup>(symbol, options);
  return bound;
}

double Largest(const HostTensor& tensor) { return MaxAbsDiff(tensor, HostTensor(tensor.dtype(), tensor.shape())); }

TEST(ZooGroup, UnequalDevicesComputeWhatOneDoes) {
  for (const Case& c : Cases()) {
    const Symbol symbol = ModelByName(c.name, c.options);
    Bound one = Bind(c, symbol, 1);
    for (const int devices : {2, 3}) {
      SCOPED_TRACE(
          fmt::format("{}, tied {}, time first {}, {} devices", c.name, c.options.tied, c.options.time_first, devices));
      Bound several = Bind(c, symbol, devices);
      for (const Bound* bound : {&one, &several}) {
        SetInitialParams(bound->group.get(), {}, Initializer("xavier"), /*seed=*/1);
        bound->group->SetStep({.step = 1});
        bound->group->Forward(bound->batch);
        bound->group->Backward();
      }
      const HostTensor expected = one.group->Outputs()[0].ToHost(), merged = several.group->Outputs()[0].ToHost();
      ASSERT_EQ(merged.shape(), expected.shape());
      EXPECT_LE(MaxAbsDiff(merged, expected), 1e-5);
      for (const std::string& name : one.group->param_names()) {
        const HostTensor wanted = SumOfGradients(*one.group, name);
        // A key's bias adds the same to all scores of a query.
        EXPECT_TRUE(Largest(wanted) > 0 || name.ends_with("key_bias")) << name;
        EXPECT_LE(MaxAbsDiff(SumOfGradients(*several.group, name), wanted), 1e-4 * (1 + Largest(wanted))) << name;
      }
    }
  }
}

// A place's probabilities do not depend on what comes after it: one character is changed.
TEST(ZooGroup, NothingIsSeenBeforeItsPlace) {
  for (const char* name : {"gpt", "lstm", "transformer"}) {
    Case c{name, {.input = {kCharacters}, .num_classes = kClasses, .layers = 2, .width = 8}};
    if (c.name != "lstm") c.options.heads = 2;
    const Symbol symbol = ModelByName(c.name, c.options);
    Bound bound = Bind(c, symbol, 1);
    SetInitialParams(bound.group.get(), {}, Initializer("xavier"), /*seed=*/1);
    // Of the transformer, the target: the source is seen everywhere.
    HostTensor& seen = bound.batch.data.back();
    bound.group->Forward(bound.batch);
    const HostTensor before = bound.group->Outputs()[0].ToHost();
    constexpr int64_t kPlace = 2;
    seen.Set(kPlace, seen.At(kPlace) == 0 ? 1 : 0);
    bound.group->Forward(bound.batch);
    const HostTensor after = bound.group->Outputs()[0].ToHost();
    for (int64_t place = 0; place < kCharacters; ++place) {
      const double change =
          MaxAbsDiff(after.Slice(1, place, place + 1).Slice(0, 0, 1), before.Slice(1, place, place + 1).Slice(0, 0, 1));
      EXPECT_EQ(change > 1e-7, place >= kPlace) << name << ", place " << place << ": " << change;
    }
  }
}

}  // namespace
}  // namespace bindery
