// The kernels of a step's checks, norms, update and commit, as kernels_test.cc has the others; but for the rounding of
// norms, which are the same bits by any number of blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <numeric>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "engine/kernels/flat.h"
#include "engine/kernels/update_kernels.h"
#include "tests/engine/cuda/kernel_launches.h"

namespace bindery {
namespace {

// Appends an array of n elements, as flat_kernels.cc does.
template <class List>
typename List::Array& Append(List* list, int64_t n) {
  const int64_t before = list->count == 0 ? 0 : list->of[list->count - 1].parts;
  typename List::Array& array = list->of[list->count++];
  array.n = n;
  array.parts = before + CeilDiv(n, cuda::Parts::LengthOf(n));
  return array;
}

TEST(CudaStepKernelsTest, ArraysHaveNotTooManyParts) {
  for (const int64_t n : {int64_t{1}, int64_t{1} << 20, (int64_t{1} << 20) + 1, int64_t{3} << 24, int64_t{1} << 40}) {
    EXPECT_LE(CeilDiv(n, cuda::Parts::LengthOf(n)), cuda::Parts::kMost) << n;
  }
}

TEST(CudaStepKernelsTest, FindsWhatIsNotFinite) {
  for (const DType dtype : AllTypes()) {
    for (const int64_t n : kSizes) {
      for (const double bad : {0.0, HUGE_VAL, -HUGE_VAL, std::nan("")}) {
        Values in(dtype, n), good(dtype, 10);
        flat::Fill(dtype, in.data(), n, dtype == DType::kFloat16 ? 65504 : 3e38);  // the largest are fine
        Dispatch(dtype, [&]<class T>() {
          for (const int64_t i : {n / 2, n - 1}) reinterpret_cast<T*>(in.data())[i] = StoreDouble<T>(bad);
        });
        const bool all = flat::AllFinite(dtype, in.data(), n);
        cuda::ArrayList list{.dtype = dtype};
        int64_t before = 0;
        for (const auto& [values, elements] : {std::pair(&good, 10), {&good, 0}, {&in, n}, {&in, n}, {&good, 0}}) {
          cuda::ArrayList::Array& array = Append(&list, elements);
          array.in = values->data();
          array.before = before;
          array.place = 5 + list.count;
          array.first = 100 * list.count;
          before += elements;
        }
        StepStatus expected;
        flat::CheckFinite(dtype, in.data(), n, 8, 300, &expected);
        for (const Launch& launch : kLaunches) {
          uint64_t first = cuda::kNone;
          RunBy(launch, cuda::FindNotFiniteArgs{.first = &first, .arrays = list});
          EXPECT_EQ(first, all ? cuda::kNone : static_cast<uint64_t>(10 + n / 2)) << ToString(dtype) << " " << n;
          StepStatus status;
          RunBy({1, launch.threads, launch.real},
                cuda::SetStatusArgs{.first = &first, .status = &status, .arrays = list});
          EXPECT_EQ(status.kind, expected.kind);
          EXPECT_EQ(status.place, expected.place);
          EXPECT_EQ(status.element, expected.element);
          EXPECT_TRUE(status.value == expected.value || std::isnan(expected.value)) << status.value;
        }
      }
    }
  }
}

// Numbers whose squares are finite.
Values Moderate(DType dtype, int64_t n, uint64_t seed) {
  Values values = Numbers(dtype, n, 0, seed);
  Dispatch(dtype, [&]<class T>() {
    T* const element = reinterpret_cast<T*>(values.data());
    for (int64_t i = 0; i < n; ++i) {
      if (!(std::fabs(LoadDouble(element[i])) < 1e6)) element[i] = StoreDouble<T>(1.5);
    }
  });
  return values;
}

TEST(CudaStepKernelsTest, SumsSquares) {
  for (const DType dtype : AllTypes()) {
    std::vector<Values> values;
    cuda::ArrayList list{.dtype = dtype};
    for (const int64_t n : kSizes) {
      values.push_back(Moderate(dtype, n, static_cast<uint64_t>(n)));
      Append(&list, n).in = values.back().data();
    }
    Append(&list, 0);
    const auto count = static_cast<size_t>(list.count);
    const auto sums = [&](const Launch& launch) {
      std::vector<double> partial(static_cast<size_t>(list.of[count - 1].parts), -1), result(count, -1);
      RunBy(launch, cuda::SumSquaresArgs{.partial = partial.data(), .arrays = list});
      cuda::AddPartsArgs add{.count = list.count, .partial = partial.data()};
      for (size_t k = 0; k < count; ++k) add.of[k] = {&result[k], list.of[k].parts};
      RunBy(launch, add);
      return result;
    };
    for (const Launch& launch : kLaunches) {
      const std::vector<double> actual = sums(launch);
      for (size_t k = 0; k < count; ++k) {
        const double expected = flat::SumOfSquares(dtype, list.of[k].in, list.of[k].n);
        EXPECT_NEAR(actual[k], expected, 1e-14 * expected) << ToString(dtype) << " " << list.of[k].n;
      }
      EXPECT_EQ(actual, sums({launch.blocks + 4, launch.threads})) << ToString(dtype);
    }
  }
}

TEST(CudaStepKernelsTest, FactorsThatClip) {
  std::vector<double> sums[2];
  for (int i = 0; i < 1500; ++i) {
    for (size_t device = 0; device < 2; ++device) sums[device].push_back(std::exp(std::sin(i + 7.0 * device)));
  }
  const StepRates rates{.rescale = -0.3};
  for (const double limit : {0.25, 1e6}) {
    double squares = 0;
    for (const std::vector<double>& of_device : sums) {
      squares = std::accumulate(of_device.begin(), of_device.end(), squares);
    }
    const double expected = flat::ClipFactor(squares, rates.rescale, limit);
    EXPECT_EQ(expected == 1, limit > 1);
    for (const Launch& launch : kLaunches) {
      double factor = 0;
      RunBy(launch, cuda::ClipFactorArgs{.sums = {.of = {sums[0].data(), sums[1].data()}, .count = 2},
                                         .n = 1500,
                                         .rates = &rates,
                                         .limit = limit,
                                         .factor = &factor});
      EXPECT_EQ(factor, expected);
    }
  }
}

// Two arrays of one rule, with rates of their own; what is measured of the first is given.
template <class Rule>
struct TwoUpdates {
  static constexpr double kSettings[] = {0.9, 0.99, 1e-8, 0.01, 1.5};
  static constexpr StepRates kRates{.learning_rate = 0.5, .rescale = 0.3, .step = 4};
  static constexpr int64_t kCommitted = 5;
  static constexpr UpdateSquares kSquares{3, 5};
  static constexpr double kFactor = 0.7;

  struct One {
    One(DType dtype, int64_t n, uint64_t seed)
        : gradient(Moderate(dtype, n, seed)), weight(Moderate(dtype, n, seed + 1)), new_weight(dtype, n) {
      for (size_t slot = 0; slot < 2; ++slot) {
        for (int k = 0; k < Rule::kStates; ++k) {
          Values& state = states[slot].emplace_back(dtype, n);
          flat::Fill(dtype, state.data(), n, 0.25 * static_cast<double>(slot));
        }
      }
      // A state that fades.
      flat::Fill(dtype, gradient.data(), 1, 0);
      flat::Fill(dtype, weight.data(), 1, 0);
      const double smallest = dtype == DType::kFloat32 ? FLT_MIN : DBL_MIN;
      for (Values& state : states[kCommitted % 2]) flat::Fill(dtype, state.data(), 1, smallest);
    }
    bool operator==(const One&) const = default;
    Values gradient, weight, new_weight;
    std::vector<Values> states[2];
  };

  TwoUpdates(int32_t rule, DType dtype, int64_t n, double clip, bool norms)
      : ones{{dtype, n, 4}, {dtype, 2 * n, 6}},
        list{.rule = rule, .dtype = dtype, .rescale = 2, .clip = clip, .rates = &kRates, .committed = &kCommitted} {
    std::ranges::copy(kSettings, list.settings);
    if (norms) list.clip_factor = &kFactor;
    for (size_t a = 0; a < 2; ++a) {
      One& one = ones[a];
      cuda::UpdateList::Array& array = Append(&list, n * (a == 0 ? 1 : 2));
      DeviceUpdate& update = updates[a];
      update = {.kernel = UpdateKernels()[static_cast<size_t>(rule)],
                .measure = MeasureKernels()[static_cast<size_t>(rule)],
                .dtype = dtype,
                .args = {.rescale = 2, .clip = clip, .settings = kSettings},
                .num_states = Rule::kStates,
                .clip_factor = list.clip_factor};
      array.gradient = update.gradient = one.gradient.data();
      array.weight = update.weight = one.weight.data();
      array.new_weight = update.new_weight = one.new_weight.data();
      array.learning_rate = update.args.learning_rate = a == 0 ? 0.1 : 0.2;
      array.weight_decay = update.args.weight_decay = a == 0 ? 0.01 : 0;
      array.squares = update.squares = norms && a == 0 ? &kSquares : nullptr;
      array.measured = &measured[a];
      update.elements = array.n;
      for (int slot : {0, 1}) {
        for (size_t k = 0; k < Rule::kStates; ++k) {
          array.states[slot][k] = update.states[slot][k] = one.states[slot][k].data();
        }
      }
    }
  }
  TwoUpdates(const TwoUpdates&) = delete;

  One ones[2];
  std::array<UpdateSquares, 2> measured;
  cuda::UpdateList list;
  DeviceUpdate updates[2];  // the same for the host
};

// visit.operator()<Rule>(number, dtype, n, clip, norms)
template <class Visit>
void ForEveryRule(const Visit& visit) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const int64_t n : kSizes) {
      for (const bool clips : {false, true}) {
        [&]<class... Rules>(std::type_identity<std::tuple<Rules...>>) {
          int32_t rule = 0;
          (visit.template operator()<Rules>(rule++, dtype, n, clips ? 1.5 : 0, clips), ...);
        }(std::type_identity<update_rules::All>());
      }
    }
  }
}

TEST(CudaStepKernelsTest, UpdatesByEveryRule) {
  const StepStatus good, bad{.kind = StepStatus::kNotFinite};
  ForEveryRule([&]<class Rule>(int32_t rule, DType dtype, int64_t n, double clip, bool norms) {
    using Two = TwoUpdates<Rule>;
    Two expected(rule, dtype, n, clip, norms);
    for (const DeviceUpdate& update : expected.updates) flat::Update(update, Two::kRates, Two::kCommitted);
    for (const Launch& launch : kLaunches) {
      Two actual(rule, dtype, n, clip, norms);
      const Two before(rule, dtype, n, clip, norms);
      cuda::UpdateKernelArgs args{.statuses = {.of = {&good, &bad}, .count = 2}, .updates = actual.list};
      RunBy(launch, args);
      for (int a : {0, 1}) EXPECT_TRUE(actual.ones[a] == before.ones[a]) << "a status was bad";
      args.statuses.count = 1;
      RunBy(launch, args);
      for (int a : {0, 1})
        EXPECT_TRUE(actual.ones[a] == expected.ones[a]) << rule << " " << ToString(dtype) << " " << n;
    }
  });
}

TEST(CudaStepKernelsTest, MeasuresForEveryRuleThatGoesByNorms) {
  int measured = 0;
  ForEveryRule([&]<class Rule>(int32_t rule, DType dtype, int64_t n, double clip, bool norms) {
    TwoUpdates<Rule> two(rule, dtype, n, clip, norms);
    if (!two.updates[0].measure) return;
    ++measured;
    const cuda::UpdateList& list = two.list;
    const auto measure = [&](const Launch& launch) {
      std::vector<UpdateSquares> partial(static_cast<size_t>(list.of[1].parts));
      RunBy(launch, cuda::MeasureUpdateArgs{.partial = partial.data(), .updates = list});
      cuda::AddPartsArgs add{.count = 2, .width = 2, .partial = &partial[0].weight};
      for (int a : {0, 1}) add.of[a] = {&list.of[a].measured->weight, list.of[a].parts};
      RunBy(launch, add);
      return two.measured;
    };
    for (const Launch& launch : kLaunches) {
      const std::array<UpdateSquares, 2> actual = measure(launch), again = measure({launch.blocks + 4, launch.threads});
      for (size_t a = 0; a < 2; ++a) {
        const UpdateSquares expected = flat::Measure(two.updates[a], two.kRates, two.kCommitted);
        EXPECT_NEAR(actual[a].weight, expected.weight, 1e-13 * expected.weight);
        EXPECT_NEAR(actual[a].direction, expected.direction, 1e-13 * expected.direction);
        EXPECT_EQ(actual[a].weight, again[a].weight);
        EXPECT_EQ(actual[a].direction, again[a].direction);
      }
    }
  });
  EXPECT_GT(measured, 0);
}

TEST(CudaStepKernelsTest, CommitsIfAllAreGood) {
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

TEST(CudaStepKernelsTest, TheFirstRefusalIsTheStatus) {
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
