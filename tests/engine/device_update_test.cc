// The parts of a step's commit on each kind of device: is the sum finite, the update, the commit; and what devices
// fetch of each other's memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/backend.h"
#include "engine/fetch.h"
#include "engine/kernels/flat.h"
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
        const PlacedElements all[] = {{tensor.address(), tensor.elements(), place, 1000}};
        flat.CheckFinite(stream, dtype, all, StatusOf(status));
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
      flat.Update(stream, {&update, 1}, static_cast<const StepRates*>(rates.address()), count, all);
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

// More than a launch of a GPU has room for, of two rules by turns and of one; by norms. The bits of an update, and the
// status, are those of one array after the other on the host; norms are but for rounding.
TEST_P(DeviceUpdateTest, ManyArraysAtOnce) {
  constexpr int kArrays = 170;
  const StepRates now{.learning_rate = 0.5, .rescale = 2, .step = 3};
  const double settings[] = {0.9, 0.99, 1e-8, 0.01, 1.5}, factor = 0.75;
  const UpdateSquares known{3, 5};
  const UpdateRule& lamb = *std::ranges::find(UpdateRules(), "lamb", &UpdateRule::name);
  const auto bytes_of = [&](const void* bytes, size_t count) {
    HostTensor host(DType::kUInt8, {static_cast<int64_t>(count)});
    std::memcpy(host.raw(), bytes, count);
    const Tensor tensor(engine_, GetParam(), DType::kUInt8, host.shape());
    tensor.CopyFrom(host);
    return tensor;
  };
  const Tensor rates = bytes_of(&now, sizeof now), clip_factor = bytes_of(&factor, sizeof factor),
               squares = bytes_of(&known, sizeof known), committed = Make({0}, DType::kInt64), status = NewStatus(),
               sums = Make(std::vector<double>(kArrays + 1), DType::kFloat64),
               measured = Make(std::vector<double>(2 * kArrays), DType::kFloat64);
  std::vector<Tensor> used = {rates, clip_factor, squares, committed, status, sums, measured};
  std::vector<PlacedElements> all;
  std::vector<DeviceUpdate> updates, on_host;
  std::vector<std::vector<HostTensor>> hosts(kArrays);
  std::vector<Tensor> news;
  double expected_factor = 0;
  for (int a = 0; a < kArrays; ++a) {
    const int64_t n = a % 50 == 7 ? 5000 : a % 17;
    const bool by_norms = a >= 60 || a % 2 == 0;
    DeviceUpdate u{.kernel = by_norms ? lamb.kernel : BuiltInKernelOf<update_rules::Adam>(),
                   .measure = by_norms && a % 3 == 0 ? lamb.measure : nullptr,
                   .dtype = DType::kFloat32,
                   .args = {.learning_rate = 1 + 0.1 * a, .weight_decay = 0.01, .settings = settings},
                   .num_states = 2,
                   .elements = n};
    DeviceUpdate& here = on_host.emplace_back(u);
    for (int k = 0; k < 7; ++k) {  // gradient, weight, new weight, states
      HostTensor& host = hosts[static_cast<size_t>(a)].emplace_back(DType::kFloat32, Shape{n});
      for (int64_t i = 0; i < n; ++i) host.Set(i, k < 2 ? std::sin(static_cast<double>(i + 3 * a + 5 * k)) : 0);
      const Tensor& tensor = used.emplace_back(engine_, GetParam(), DType::kFloat32, host.shape());
      tensor.CopyFrom(host);
      const auto set = [&](DeviceUpdate* to, void* address) {
        if (k == 0) to->gradient = address;
        if (k == 1) to->weight = address;
        if (k == 2) to->new_weight = address;
        if (k > 2) to->states[(k - 3) / 2][static_cast<size_t>((k - 3) % 2)] = address;
      };
      set(&u, tensor.address());
      set(&here, host.raw());
      if (k == 2) news.push_back(tensor);
    }
    const void* const gradient = hosts[static_cast<size_t>(a)][0].raw();
    expected_factor += flat::SumOfSquares(DType::kFloat32, gradient, n);
    u.clip_factor = static_cast<const double*>(clip_factor.address());
    here.clip_factor = &factor;
    if (u.measure) {
      u.measured = static_cast<UpdateSquares*>(measured.address()) + a;
      u.squares = static_cast<const UpdateSquares*>(squares.address());
      here.squares = &known;
    }
    updates.push_back(u);
    all.push_back({u.gradient, n, a, 0});
  }
  Run(used, [&](const FlatKernels& flat, Stream& stream) {
    const auto* const r = static_cast<const StepRates*>(rates.address());
    const auto* const count = static_cast<const int64_t*>(committed.address());
    const StepStatus* const statuses[] = {StatusOf(status)};
    double* const sum = static_cast<double*>(sums.address());
    flat.CheckFinite(stream, DType::kFloat32, all, StatusOf(status));
    flat.SumOfSquares(stream, DType::kFloat32, all, sum);
    const double* const of_devices[] = {sum};
    flat.ClipFactor(stream, of_devices, kArrays, r, 0.5, sum + kArrays);
    flat.Measure(stream, updates, r, count);
    flat.Update(stream, updates, r, count, statuses);
  });
  EXPECT_EQ(Get(status), (std::vector<double>{0, 0, 0, 0}));
  const std::vector<double> actual_sums = Get(sums), actual_measured = Get(measured);
  EXPECT_NEAR(actual_sums[kArrays], flat::ClipFactor(expected_factor, 2, 0.5), 1e-12);
  for (size_t a = 0; a < kArrays; ++a) {
    const DeviceUpdate& here = on_host[a];
    EXPECT_NEAR(actual_sums[a], flat::SumOfSquares(DType::kFloat32, here.gradient, here.elements), 1e-10) << a;
    const UpdateSquares squares_of = here.measure ? flat::Measure(here, now, 0) : UpdateSquares();
    EXPECT_NEAR(actual_measured[2 * a], squares_of.weight, 1e-10) << a;
    EXPECT_NEAR(actual_measured[2 * a + 1], squares_of.direction, 1e-10 * (1 + squares_of.direction)) << a;
    flat::Update(here, now, 0);
    EXPECT_EQ(news[a].ToHost(), hosts[a][2]) << a;
  }
  used[7 + 7 * 160].Fill(std::nan(""));
  Run(used, [&](const FlatKernels& flat, Stream& stream) {
    flat.CheckFinite(stream, DType::kFloat32, all, StatusOf(status));
  });
  const HostTensor seen = status.ToHost();
  EXPECT_EQ(static_cast<const StepStatus*>(seen.raw())->place, 160);
}

// Arrays are cut into longer parts then, and there are more parts than a launch of a GPU has room for.
TEST_P(DeviceUpdateTest, ManyLargeArraysAtOnce) {
  constexpr int64_t kArrays = 10, kElements = (1 << 20) + 1;
  HostTensor host = HostTensor::Full(DType::kFloat32, {kElements}, 0.5);
  host.Set(kElements - 1, 3);
  const Tensor gradient(engine_, GetParam(), DType::kFloat32, host.shape()),
      status = NewStatus(), sums = Make(std::vector<double>(kArrays), DType::kFloat64);
  gradient.CopyFrom(host);
  std::vector<PlacedElements> all;
  for (int64_t a = 0; a < kArrays; ++a) all.push_back({gradient.address(), kElements, a, 0});
  all.front().elements = all.back().elements -= 1;
  const auto look = [&] {
    Run({gradient, status, sums}, [&](const FlatKernels& flat, Stream& stream) {
      flat.CheckFinite(stream, DType::kFloat32, all, StatusOf(status));
      flat.SumOfSquares(stream, DType::kFloat32, all, static_cast<double*>(sums.address()));
    });
    return Get(sums);
  };
  std::vector<double> expected(kArrays, 0.25 * (kElements - 1) + 9);
  expected.front() = expected.back() = 0.25 * (kElements - 1);
  EXPECT_EQ(look(), expected);
  EXPECT_EQ(Get(status), (std::vector<double>{0, 0, 0, 0}));
  host.Set(kElements - 1, std::nan(""));
  gradient.CopyFrom(host);
  look();
  const HostTensor seen = status.ToHost();
  EXPECT_EQ(static_cast<const StepStatus*>(seen.raw())->place, 1);  // the first one's last element is not looked at
  EXPECT_EQ(static_cast<const StepStatus*>(seen.raw())->element, kElements - 1);
}

// What a kernel refused is heard, also where what it wrote in its place made the gradients what they are.
TEST_P(DeviceUpdateTest, ARefusalComesBeforeWhatIsNotFinite) {
  const Tensor gradient = Make({std::nan("")}), refusals = Make({-1, 0, 7, 2.5, 8, 3}, DType::kFloat64),
               status = NewStatus();
  const auto seen = [&] {
    const HostTensor host = status.ToHost();
    return *static_cast<const StepStatus*>(host.raw());
  };
  Run({gradient, refusals, status}, [&](const FlatKernels& flat, Stream& stream) {
    const PlacedElements all[] = {{gradient.address(), 1, 4, 0}};
    flat.CheckFinite(stream, DType::kFloat32, all, StatusOf(status));
    flat.Refuse(stream, static_cast<const Refusal*>(refusals.address()), 1, StatusOf(status));  // which is none
  });
  EXPECT_EQ(seen().kind, StepStatus::kNotFinite);
  EXPECT_EQ(seen().place, 4);
  Run({gradient, refusals, status}, [&](const FlatKernels& flat, Stream& stream) {
    const PlacedElements all[] = {{gradient.address(), 1, 4, 0}};
    flat.Refuse(stream, static_cast<const Refusal*>(refusals.address()), 3, StatusOf(status));
    flat.CheckFinite(stream, DType::kFloat32, all, StatusOf(status));
    flat.Refuse(stream, static_cast<const Refusal*>(refusals.address()) + 2, 1, StatusOf(status));
  });
  EXPECT_EQ(seen().kind, StepStatus::kRefused);
  EXPECT_EQ(seen().place, 1);
  EXPECT_EQ(seen().element, 7);
  EXPECT_EQ(seen().value, 2.5);
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
