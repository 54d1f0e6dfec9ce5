// The parts of a step's commit on each kind of device: is the sum finite, the update, the commit; and what devices
// fetch of each other's memory.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/backend.h"
#include "engine/fetch.h"
#include "engine/kernels/update_kernels.h"
#include "engine/kernels/update_rules.h"
#include "engine/sim/sim.h"
#include "tests/message_of.h"
#include "tests/test_device.h"

namespace bindery {
namespace {

class DeviceUpdateTest : public testing::TestWithParam<Device> {
 protected:
  ~DeviceUpdateTest() override { sim::Reset(); }

  Tensor Make(const std::vector<double>& values, DType dtype = DType::kFloat32) const {
    HostTensor host(dtype, {static_cast<int64_t>(values.size())});
    for (size_t i = 0; i < values.size(); ++i) host.Set(static_cast<int64_t>(i), values[i]);
    const Tensor tensor(engine_, GetParam(), dtype, host.shape());
    tensor.CopyFrom(host);
    return tensor;
  }
  static std::vector<double> Get(const Tensor& tensor) {
    const HostTensor host = tensor.ToHost();
    std::vector<double> values;
    for (int64_t i = 0; i < host.elements(); ++i) values.push_back(host.At(i));
    return values;
  }
  // run(kernels, stream), as an operation that updates all of these.
  void Run(const std::vector<Tensor>& tensors, const std::function<void(const FlatKernels&, Stream&)>& run) const {
    Operation operation{.name = "run", .device = GetParam()};
    for (const Tensor& tensor : tensors) operation.updates.push_back(tensor.var());
    operation.run = [run](const OpContext& context) {
      run(Backend::Of(context.stream.device().kind).flat(), context.stream);
    };
    engine_->Push(std::move(operation));
  }
  static StepStatus* StatusOf(const Tensor& tensor) { return static_cast<StepStatus*>(tensor.address()); }
  Tensor NewStatus() const { return Tensor(engine_, GetParam(), DType::kInt64, {sizeof(StepStatus) / 8}); }

  const std::shared_ptr<Engine> engine_ = MakeThreadedEngine();
};
INSTANTIATE_TEST_SUITE_P(Devices, DeviceUpdateTest, testing::Values(TestDevice()),
                         [](const auto& info) { return ToString(info.param.kind); });

TEST_P(DeviceUpdateTest, TheStatusIsOfTheFirstBadValue) {
  std::vector<double> values(100'000, 1);
  values[77'777] = std::numeric_limits<double>::infinity();
  values[77'779] = std::nan("");
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    const Tensor good = Make({1, 2, 3}, dtype), bad = Make(values, dtype), status = NewStatus();
    const auto look = [&](const Tensor& tensor, int64_t place) {
      Run({tensor, status}, [=](const FlatKernels& flat, Stream& stream) {
        flat.CheckFinite(stream, dtype, tensor.address(), tensor.elements(), place, 1000, StatusOf(status));
      });
    };
    look(good, 1);
    EXPECT_EQ(Get(status), (std::vector<double>{0, 0, 0, 0}));
    look(bad, 2);
    look(bad, 3);  // bad already
    const HostTensor seen = status.ToHost();
    const StepStatus& s = *static_cast<const StepStatus*>(seen.raw());
    EXPECT_EQ(s.kind, StepStatus::kNotFinite);
    EXPECT_EQ(s.place, 2);
    EXPECT_EQ(s.element, 78'777);  // the tensor begins with the thousandth of its place
    EXPECT_EQ(s.value, std::numeric_limits<double>::infinity());
  }
}

TEST_P(DeviceUpdateTest, UpdatesByTheRatesAndFlipsTheStates) {
  const Tensor gradient = Make({1, 2}), weight = Make({10, 20}), fresh = Make({0, 0}), a = Make({1, 1}),
               b = Make({0, 0}), committed = Make({0}, DType::kInt64), good = NewStatus(), bad = NewStatus(),
               rates(engine_, GetParam(), DType::kUInt8, {sizeof(StepRates)});
  bad.CopyFrom(HostTensor::Full(DType::kInt64, {sizeof(StepStatus) / 8}, 1));
  HostTensor values(DType::kUInt8, {sizeof(StepRates)});
  *static_cast<StepRates*>(values.raw()) = {.learning_rate = 0.5, .rescale = 2, .step = 3};
  rates.CopyFrom(values);
  const double momentum = 0.5;
  DeviceUpdate update{.kernel = BuiltInKernelOf<update_rules::Momentum>(),
                      .dtype = DType::kFloat32,
                      .args = {.learning_rate = 2, .settings = {&momentum, 1}},
                      .gradient = gradient.address(),
                      .weight = weight.address(),
                      .new_weight = fresh.address(),
                      .num_states = 1,
                      .elements = 2};
  update.states[0][0] = a.address();
  update.states[1][0] = b.address();
  const auto step = [&](const std::vector<Tensor>& statuses) {
    Run({gradient, weight, fresh, a, b, committed, good, bad, rates}, [=](const FlatKernels& flat, Stream& stream) {
      std::vector<const StepStatus*> all;
      for (const Tensor& status : statuses) all.push_back(StatusOf(status));
      auto* const count = static_cast<int64_t*>(committed.address());
      flat.Update(stream, update, static_cast<const StepRates*>(rates.address()), count, all);
      flat.Commit(stream, all, fresh.address(), weight.address(), weight.bytes(), count);
    });
  };
  using List = std::vector<double>;
  step({good, bad});
  EXPECT_EQ(Get(fresh), (List{0, 0}));
  EXPECT_EQ(Get(weight), (List{10, 20}));
  EXPECT_EQ(Get(committed), (List{0}));
  step({good, good});  // m = 0.5 m - 1 (2 g)
  EXPECT_EQ(Get(weight), (List{8.5, 16.5}));
  EXPECT_EQ(Get(a), (List{1, 1}));
  EXPECT_EQ(Get(b), (List{-1.5, -3.5}));
  EXPECT_EQ(Get(committed), (List{1}));
  step({good});
  EXPECT_EQ(Get(a), (List{-2.75, -5.75}));
  EXPECT_EQ(Get(weight), (List{5.75, 10.75}));
  EXPECT_EQ(Get(committed), (List{2}));
}

TEST(Fetch, GivesEachDeviceWhatItCanRead) {
  const std::shared_ptr<Engine> engine = MakeThreadedEngine();
  std::vector<Tensor> sources;
  for (const Device device : {Cpu(0), Cpu(1), Sim(0), Sim(1)})
    sources.emplace_back(engine, device, DType::kFloat32, Shape{4});
  for (const Device to : {Cpu(2), Sim(0), Sim(2)}) {
    StepParts parts;
    std::vector<Tensor> slices;
    for (const Tensor& source : sources) slices.push_back(source.Slice(1, 3));
    const std::vector<Tensor> fetched = AppendFetch(engine, "fetch", slices, to, &parts);
    EXPECT_EQ(parts.size(), to.kind == DeviceKind::kCpu ? 2u : 1u);  // by the devices that have them, or by `to`
    const StepRange range(engine, std::move(parts));
    for (const double value : {3.0, 4.0}) {
      for (const Tensor& source : sources) source.Fill(value + static_cast<double>(source.device().index));
      range.Push();
      for (size_t i = 0; i < sources.size(); ++i) {
        const bool shared = ShareMemory(sources[i].device(), to);
        EXPECT_EQ(fetched[i].address() == slices[i].address(), shared);
        EXPECT_EQ(fetched[i].device(), shared ? sources[i].device() : to);
        EXPECT_EQ(fetched[i].ToHost().At(1), value + sources[i].device().index) << i << " for " << ToString(to);
      }
    }
  }
  // A copy that fails fails what it makes, not its source.
  StepParts parts;
  const Tensor copy = AppendFetch(engine, "fetch", {sources[2]}, Cpu(), &parts)[0];
  const StepRange range(engine, std::move(parts));
  sources[2].Wait();
  sim::FailKernel(Sim(0), 1);
  range.Push();
  EXPECT_NE(MessageOf<DeviceError>([&] { copy.Wait(); }).find("operation \"fetch\" failed: sim:0"), std::string::npos);
  sim::Reset();
  EXPECT_NO_THROW(sources[2].Wait());
  range.Push();
  EXPECT_NO_THROW(copy.Wait());
}

}  // namespace
}  // namespace bindery
