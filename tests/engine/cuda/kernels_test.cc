// The kernels for GPUs, by their bodies for CPUs: the answers of the CPU's own loops, bit for bit, whatever the number
// of blocks and threads, whatever the alignment.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "engine/cuda/cpu_block.h"
#include "engine/cuda/kernels_body.h"
#include "engine/kernels/flat.h"
#include "engine/kernels/update_kernels.h"

namespace bindery {
namespace {

constexpr int64_t kSizes[] = {1, 3, 16, 17, 1000, 4099};
struct Launch {
  int blocks, threads;
  bool real = false;  // threads that wait for each other: a sanitizer sees where they should and do not
};
constexpr Launch kLaunches[] = {{1, 1}, {1, 7}, {3, 32}, {5, 256}, {2, 16, true}};

template <class Args>
void RunBy(const Launch& launch, const Args& args) {
  launch.real ? RunOnThreads(args, launch.blocks, launch.threads) : RunOnCpu(args, launch.blocks, launch.threads);
}

std::vector<DType> AllTypes() {
  std::vector<DType> types;
  for (int i = 0; i < kNumDTypes; ++i) types.push_back(static_cast<DType>(i));
  return types;
}

// `n` elements, `offset` elements behind an address that all packs may have.
class Values {
 public:
  Values(DType dtype, int64_t n, int64_t offset = 0)
      : bytes_(n * SizeOf(dtype)), offset_(offset * SizeOf(dtype)),
        memory_(static_cast<size_t>((bytes_ + offset_) / 16 + 2)) {}
  char* data() { return reinterpret_cast<char*>(memory_.data()) + offset_; }
  const char* data() const { return reinterpret_cast<const char*>(memory_.data()) + offset_; }
  // Nothing before or behind the elements counts.
  bool operator==(const Values& other) const {
    return bytes_ == other.bytes_ && std::memcmp(data(), other.data(), static_cast<size_t>(bytes_)) == 0;
  }

 private:
  int64_t bytes_, offset_;
  std::vector<cuda::Unit16> memory_;
};

// Numbers of all sizes, and those at the edges of types. NaN's bits are nobody's promise.
Values Numbers(DType dtype, int64_t n, int64_t offset, uint64_t seed) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kEdges[] = {0,     -0.0,  0.5,        -0.5,       1.5,  2.5,    254.5,     127.5,      -128.5,
                               65519, 65520, 2147483647, 2147483648, 1e19, -1e300, kInfinity, -kInfinity, 1e-40};
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 3);
  Values values(dtype, n, offset);
  Dispatch(dtype, [&]<class T>() {
    for (int64_t i = 0; i < n; ++i) {
      const double value = random() % 3 == 0 ? kEdges[random() % std::size(kEdges)] : std::exp2(normal(random) * 4);
      reinterpret_cast<T*>(values.data())[i] = StoreDouble<T>(value);
    }
  });
  return values;
}

TEST(CudaKernelsTest, Fill) {
  for (const DType dtype : AllTypes()) {
    for (const int64_t n : kSizes) {
      for (const Launch& launch : kLaunches) {
        Values expected(dtype, n, 1), actual(dtype, n, 1);
        flat::Fill(dtype, expected.data(), n, 1.7);
        cuda::FillArgs args{.out = actual.data(), .units = n, .unit = static_cast<int32_t>(SizeOf(dtype))};
        std::memcpy(&args.value, expected.data(), static_cast<size_t>(SizeOf(dtype)));
        RunBy(launch, args);
        EXPECT_EQ(actual, expected) << ToString(dtype) << " " << n;
      }
    }
  }
}

TEST(CudaKernelsTest, CopiesRows) {
  for (const int32_t unit : {1, 2, 4, 8, 16}) {
    for (const Launch& launch : kLaunches) {
      const int64_t rows = 5, units = 7, stride = 11 * unit;
      Values in = Numbers(DType::kUInt8, 2 * rows * stride, 0, 1), out(DType::kUInt8, rows * stride);
      cuda::CopyArgs args{.in = in.data(),
                          .out = out.data(),
                          .rows = rows,
                          .units = units,
                          .in_stride = 2 * stride,
                          .out_stride = stride,
                          .unit = unit};
      RunBy(launch, args);
      for (int64_t i = 0; i < rows * stride; ++i) {
        const int64_t row = i / stride, at = i % stride;
        EXPECT_EQ(out.data()[i], at < units * unit ? in.data()[row * 2 * stride + at] : 0) << unit << " " << i;
      }
    }
  }
}

TEST(CudaKernelsTest, CastsBetweenAllTypes) {
  for (const DType from : AllTypes()) {
    for (const DType to : AllTypes()) {
      for (const int64_t n : kSizes) {
        for (const int64_t offset : {0, 1}) {
          const Values in = Numbers(from, n, offset, 2);
          Values expected(to, n), actual(to, n);
          flat::Cast(from, in.data(), to, expected.data(), n);
          if (from == to) continue;  // a copy
          RunOnCpu(cuda::CastArgs{.in = in.data(), .out = actual.data(), .n = n, .from = from, .to = to}, 3, 32);
          EXPECT_EQ(actual, expected) << ToString(from) << " to " << ToString(to) << ", " << n;
        }
      }
    }
  }
}

TEST(CudaKernelsTest, Sums) {
  for (const DType dtype : AllTypes()) {
    for (const int64_t n : kSizes) {
      for (const Launch& launch : kLaunches) {
        for (const int count : {2, 3}) {
          for (const int64_t offset : {0, 1}) {
            std::vector<Values> in;
            std::vector<const void*> addresses;
            for (int k = 0; k < count; ++k) {
              in.push_back(Numbers(dtype, n, k == 1 ? offset : 0, static_cast<uint64_t>(k)));
              if (k > 0 && IsFloat(dtype)) flat::Fill(dtype, in.back().data(), n, 0.3);  // no infinity less infinity
            }
            cuda::SumArgs args{.count = count, .dtype = dtype, .n = n};
            for (int k = 0; k < count; ++k) addresses.push_back(args.in[k] = in[static_cast<size_t>(k)].data());
            Values expected(dtype, n);
            flat::Sum(dtype, addresses, expected.data(), n);
            args.out = in[0].data();  // in place
            RunBy(launch, args);
            EXPECT_EQ(in[0], expected) << ToString(dtype) << " " << n;
          }
        }
      }
    }
  }
}

TEST(CudaKernelsTest, Scales) {
  for (const DType dtype : AllTypes()) {
    for (const int64_t n : kSizes) {
      for (const double factor : {0.25, -3.7}) {
        Values actual = Numbers(dtype, n, 1, 3), expected = actual;
        flat::Scale(dtype, expected.data(), n, factor);
        RunOnCpu(cuda::ScaleArgs{.out = actual.data(), .n = n, .factor = factor, .dtype = dtype}, 5, 7);
        EXPECT_EQ(actual, expected) << ToString(dtype) << " " << n;
      }
    }
  }
}

TEST(CudaKernelsTest, FindsWhatIsNotFinite) {
  for (const DType dtype : AllTypes()) {
    for (const int64_t n : kSizes) {
      for (const double bad : {0.0, HUGE_VAL, -HUGE_VAL, std::nan("")}) {
        Values in(dtype, n);
        flat::Fill(dtype, in.data(), n, dtype == DType::kFloat16 ? 65504 : 3e38);  // the largest are fine
        Dispatch(dtype, [&]<class T>() {
          for (const int64_t i : {n / 2, n - 1}) reinterpret_cast<T*>(in.data())[i] = StoreDouble<T>(bad);
        });
        const bool all = flat::AllFinite(dtype, in.data(), n);
        for (const Launch& launch : kLaunches) {
          uint64_t first = cuda::kNone;
          RunBy(launch, cuda::FindNotFiniteArgs{.in = in.data(), .n = n, .dtype = dtype, .first = &first});
          EXPECT_EQ(first, all ? cuda::kNone : static_cast<uint64_t>(n / 2)) << ToString(dtype) << " " << n;
          StepStatus status, expected;
          flat::CheckFinite(dtype, in.data(), n, 7, 100, &expected);
          const cuda::SetStatusArgs set{
              .in = in.data(), .dtype = dtype, .first = &first, .place = 7, .offset = 100, .status = &status};
          RunBy({1, launch.threads, launch.real}, set);
          EXPECT_EQ(status.kind, expected.kind);
          EXPECT_EQ(status.place, expected.place);
          EXPECT_EQ(status.element, expected.element);
          EXPECT_TRUE(status.value == expected.value || std::isnan(expected.value)) << status.value;
        }
      }
    }
  }
}

TEST(CudaKernelsTest, UpdatesByEveryRule) {
  const double settings[] = {0.9, 0.99, 1e-8, 0};
  const StepStatus good, bad{.kind = StepStatus::kNotFinite};
  const StepRates rates{.learning_rate = 0.5, .rescale = 0.3, .step = 4};
  const int64_t committed = 5;
  const auto check = [&]<class Rule>(int32_t rule, DType dtype, int64_t n, const Launch& launch, double clip) {
    Values gradient = Numbers(dtype, n, 0, 4), weight = Numbers(dtype, n, 0, 5);
    for (Values* values : {&gradient, &weight}) {
      Dispatch(dtype, [&]<class T>() {
        T* const element = reinterpret_cast<T*>(values->data());
        for (int64_t i = 0; i < n; ++i) element[i] = std::isfinite(LoadDouble(element[i])) ? element[i] : T(1);
      });
    }
    std::vector<Values> states[2], expected_states[2];
    cuda::UpdateKernelArgs args{.rule = rule,
                                .dtype = dtype,
                                .learning_rate = 0.1,
                                .weight_decay = 0.01,
                                .rescale = 2,
                                .clip = clip,
                                .gradient = gradient.data(),
                                .weight = weight.data(),
                                .n = n,
                                .rates = &rates,
                                .committed = &committed,
                                .statuses = {.of = {&good, &bad}, .count = 2}};
    DeviceUpdate update{
        .kernel = UpdateKernels()[rule],
        .dtype = dtype,
        .args = {.learning_rate = 0.1, .weight_decay = 0.01, .rescale = 2, .clip = clip, .settings = settings},
        .gradient = gradient.data(),
        .weight = weight.data(),
        .num_states = Rule::kStates,
        .elements = n};
    std::ranges::copy(settings, args.settings);
    for (size_t slot = 0; slot < 2; ++slot) {
      for (int k = 0; k < Rule::kStates; ++k) {
        Values zeros(dtype, n);
        flat::Fill(dtype, zeros.data(), n, 0.25 * static_cast<double>(slot));
        states[slot].push_back(zeros);
        expected_states[slot].push_back(zeros);
      }
      for (size_t k = 0; k < Rule::kStates; ++k) {
        args.states[slot][k] = states[slot][k].data();
        update.states[slot][k] = expected_states[slot][k].data();
      }
    }
    Values actual(dtype, n), expected(dtype, n);
    args.new_weight = actual.data();
    update.new_weight = expected.data();
    RunBy(launch, args);
    EXPECT_EQ(actual, expected);  // a status was bad
    args.statuses.count = 1;
    RunBy(launch, args);
    flat::Update(update, rates, committed);
    EXPECT_EQ(actual, expected) << rule << " " << ToString(dtype) << " " << n;
    for (size_t slot = 0; slot < 2; ++slot) EXPECT_EQ(states[slot], expected_states[slot]) << rule;
  };
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const int64_t n : kSizes) {
      for (const Launch& launch : kLaunches) {
        for (const double clip : {0.0, 1.5}) {
          [&]<class... Rules>(std::type_identity<std::tuple<Rules...>>) {
            int32_t rule = 0;
            (check.template operator()<Rules>(rule++, dtype, n, launch, clip), ...);
          }(std::type_identity<update_rules::All>());
        }
      }
    }
  }
}

TEST(CudaKernelsTest, CommitsIfAllAreGood) {
  const StepStatus good, bad{.kind = StepStatus::kNotFinite};
  for (const Launch& launch : kLaunches) {
    const Values in = Numbers(DType::kUInt8, 100, 0, 6);
    Values out(DType::kUInt8, 100);
    int64_t committed = 0;
    cuda::CommitArgs args{.in = in.data(),
                          .out = out.data(),
                          .units = 25,
                          .unit = 4,
                          .committed = &committed,
                          .statuses = {.of = {&good, &bad}, .count = 2}};
    RunBy(launch, args);
    EXPECT_EQ(out, Values(DType::kUInt8, 100));
    EXPECT_EQ(committed, 0);
    args.statuses.of[1] = &good;
    const uint64_t found = 1, not_found = cuda::kNone;
    args.unless = &found;
    RunBy(launch, args);
    EXPECT_EQ(out, Values(DType::kUInt8, 100));
    args.unless = &not_found;
    RunBy(launch, args);
    EXPECT_EQ(out, in);
    EXPECT_EQ(committed, 1);
  }
}

TEST(CudaKernelsTest, TheFirstRefusalIsTheStatus) {
  const std::vector<Refusal> none(3), some = {{}, {.place = 7, .value = 0.5}, {.place = 0, .value = 2}};
  for (const Launch& launch : kLaunches) {
    StepStatus status, expected;
    cuda::RefuseArgs args{.refusals = none.data(), .n = 3, .status = &status};
    RunBy(launch, args);
    EXPECT_EQ(status.kind, StepStatus::kGood);
    args.refusals = some.data();
    flat::Refuse(some.data(), 3, &expected);
    for (int run = 0; run < 2; ++run) {
      RunBy(launch, args);
      EXPECT_EQ(status.kind, StepStatus::kRefused);
      EXPECT_EQ(status.place, 1);
      EXPECT_EQ(status.element, 7);
      EXPECT_EQ(status.value, 0.5);
      args.n = 3 - run;
      args.refusals = some.data() + run;  // bad is bad
    }
    EXPECT_EQ(std::tie(expected.kind, expected.place, expected.element, expected.value),
              std::tie(status.kind, status.place, status.element, status.value));
  }
}

}  // namespace
}  // namespace bindery
