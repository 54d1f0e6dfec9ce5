// Arrays against numbers worked out by hand.
#include "executor/tape/ndarray.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "executor/tape/split_and_load.h"
#include "executor/tape/tape.h"
#include "symbol/ops.h"
#include "tests/executor/tape/helpers.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

TEST(NDArray, Arithmetic) {
  const NDArray a = Values({2, 2}, {1, 2, 3, 4}), b = Values({2}, {10, 20});
  ExpectNumbers(a + b, {2, 2}, {11, 22, 13, 24});
  ExpectNumbers(a - b, {2, 2}, {-9, -18, -7, -16});
  ExpectNumbers(b * a, {2, 2}, {10, 40, 30, 80});
  ExpectNumbers(a / b, {2, 2}, {0.1, 0.1, 0.3, 0.2});
  ExpectNumbers(-a, {2, 2}, {-1, -2, -3, -4});
  ExpectNumbers(2 * a + 1, {2, 2}, {3, 5, 7, 9});
  ExpectNumbers(1 - a / 2, {2, 2}, {0.5, 0, -0.5, -1});
  ExpectNumbers(12 / a, {2, 2}, {12, 6, 4, 3});
  ExpectNumbers(3 + a, {2, 2}, {4, 5, 6, 7});
}

TEST(NDArray, Comparisons) {
  const NDArray a = Values({4}, {1, 2, 3, 4}), b = Values({4}, {4, 2, 2, 5});
  ExpectNumbers(a == b, {4}, {0, 1, 0, 0});
  ExpectNumbers(a != b, {4}, {1, 0, 1, 1});
  ExpectNumbers(a < b, {4}, {1, 0, 0, 1});
  ExpectNumbers(a <= b, {4}, {1, 1, 0, 1});
  ExpectNumbers(a > 2, {4}, {0, 0, 1, 1});
  ExpectNumbers(a >= 2, {4}, {0, 1, 1, 1});
  ExpectNumbers(a == 3, {4}, {0, 0, 1, 0});
  ExpectNumbers(a != 3, {4}, {1, 1, 0, 1});
  ExpectNumbers(a <= 1, {4}, {1, 0, 0, 0});
  ExpectNumbers(a < 1, {4}, {0, 0, 0, 0});
  EXPECT_EQ((a > b).dtype(), DType::kBool);
  EXPECT_EQ((a == b).As(DType::kFloat32).Mean().Scalar(), 0.25);
}

TEST(NDArray, Reductions) {
  const NDArray a = Values({2, 3}, {1, 5, 3, 4, 2, 6});
  EXPECT_EQ(a.Sum().Scalar(), 21);
  EXPECT_EQ(a.Mean().Scalar(), 3.5);
  ExpectNumbers(a.Sum({0}), {3}, {5, 7, 9});
  ExpectNumbers(a.Mean({1}), {2}, {3, 4});
  ExpectNumbers(a.ArgMax(), {2}, {1, 2});
  ExpectNumbers(a.ArgMax(0), {3}, {1, 0, 1});
  EXPECT_EQ(a.ArgMax().dtype(), DType::kInt64);
}

TEST(NDArray, InPlace) {
  NDArray w = Values({3}, {1, 2, 3});
  const NDArray same = w, g = Values({3}, {10, 20, 30}), one = Values({1}, {1});
  const void* const address = w.tensor().address();
  w -= 0.1 * g;
  ExpectNumbers(same, {3}, {0, 0, 0});
  w += g;
  w *= 2;
  w /= g;
  w += one;
  w -= 1;
  w += 3;
  w /= 5;
  ExpectNumbers(same, {3}, {1, 1, 1});
  w += w;
  w *= w;
  ExpectNumbers(same, {3}, {4, 4, 4});
  EXPECT_EQ(w.tensor().address(), address);
  w.Fill(7);
  ExpectNumbers(same, {3}, {7, 7, 7});
  w.CopyFrom(HostTensor::From({3}, {1, 2, 3}));
  ExpectNumbers(same, {3}, {1, 2, 3});
  w.CopyFrom(g);
  ExpectNumbers(same, {3}, {10, 20, 30});
}

TEST(NDArray, Views) {
  NDArray a = Values({3, 2}, {1, 2, 3, 4, 5, 6});
  NDArray row = a.Slice(1, 2);  // begins at no multiple of 64 bytes
  ExpectNumbers(row, {1, 2}, {3, 4});
  ExpectNumbers(row * 2, {1, 2}, {6, 8});
  row += 10;
  ExpectNumbers(a, {3, 2}, {1, 2, 13, 14, 5, 6});
  ExpectNumbers(a.Reshape({2, -1}), {2, 3}, {1, 2, 13, 14, 5, 6});
  ExpectNumbers(a.Reshape({0, 1, 2}).Slice(2, 3), {1, 1, 2}, {5, 6});
  NDArray flat = a.Reshape({-1});
  flat -= 1;
  ExpectNumbers(a, {3, 2}, {0, 1, 12, 13, 4, 5});
  NDArray copy = a.CopyTo(a.device());
  copy += 1;
  ExpectNumbers(a, {3, 2}, {0, 1, 12, 13, 4, 5});
  ExpectNumbers(a.Slice(1, 1), {0, 2}, {});
}

TEST(NDArray, WithoutElements) {
  const NDArray none = Values({3, 2}, {1, 2, 3, 4, 5, 6}).Slice(1, 1);
  ExpectNumbers(none * 2 + none, {0, 2}, {});
  ExpectNumbers(none.Sum({0}), {2}, {0, 0});
  EXPECT_EQ(none.Sum().Scalar(), 0);
  const std::vector<NDArray> two = ApplyAll([](const Symbol& x) { return Group({x * 2, Sum(x)}); }, {none});
  ExpectNumbers(two[0], {0, 2}, {});
  ExpectNumbers(two[1], {}, {0});
}

TEST(NDArray, OtherDevicesAndTypes) {
  const NDArray a = Values({2}, {1.5, -2.5});
  const NDArray there = a.CopyTo(TestDevice(1));
  EXPECT_EQ(there.device(), TestDevice(1));
  ExpectNumbers(there + there, {2}, {3, -5});
  EXPECT_EQ(there.As(DType::kFloat64).dtype(), DType::kFloat64);
  ExpectNumbers(there.As(DType::kInt32), {2}, {1, -2});
  const NDArray whole = a.As(DType::kInt32);
  ExpectNumbers(whole * 3, {2}, {3, -6});
  EXPECT_EQ(whole.As(DType::kInt32).state(), whole.state());
  const NDArray normal = NDArray::Normal({1000}, 2, TestDevice(1));
  EXPECT_EQ(normal.device(), TestDevice(1));
  EXPECT_NEAR(normal.Mean().Scalar(), 0, 0.3);
  EXPECT_NEAR((normal * normal).Mean().Scalar(), 4, 0.6);
  EXPECT_GT(MaxAbsDiff(normal.ToHost(), NDArray::Normal({1000}, 2, TestDevice(1)).ToHost()), 1);
  SeedArrays(7);
  const HostTensor first = NDArray::Normal({5}, 1, TestDevice()).ToHost();
  SeedArrays(7);
  EXPECT_EQ(NDArray::Normal({5}, 1, TestDevice()).ToHost(), first);
}

TEST(NDArray, AnyOperator) {
  const NDArray x = Values({1, 1, 2, 2}, {1, 2, 3, 4}), w = Values({1, 1, 2, 2}, {1, 0, 0, 1}), b = Values({1}, {10});
  ExpectNumbers(Apply(Convolution, {x, w, b}, {.num_filter = 1, .kernel = {2, 2}}), {1, 1, 1, 1}, {15});
  ExpectNumbers(Apply(Relu, {Values({3}, {-1, 0, 2})}), {3}, {0, 0, 2});
  ExpectNumbers(Apply(Maximum, {x, Values({}, {3})}), {1, 1, 2, 2}, {3, 3, 3, 4});
  ExpectNumbers(Apply(Dot, {x.Reshape({2, 2}), x.Reshape({2, 2})}), {2, 2}, {7, 10, 15, 22});
  ExpectNumbers(Apply([](const Symbol& a, const Symbol& c) { return Exp(a - c) * 2; }, {x, x}), {1, 1, 2, 2},
                {2, 2, 2, 2});
  ExpectNumbers(Apply([](const std::vector<Symbol>& all) { return Concat(all, {.axis = 0}); }, {b, b, b, b}), {4},
                {10, 10, 10, 10});
  const std::vector<NDArray> halves = ApplyAll(SliceChannel, {x}, {.num_outputs = 2, .axis = 2});
  ASSERT_EQ(halves.size(), 2u);
  ExpectNumbers(halves[0], {1, 1, 1, 2}, {1, 2});
  ExpectNumbers(halves[1], {1, 1, 1, 2}, {3, 4});
  // One value as several outputs, and an input as an output, are arrays of their own.
  std::vector<NDArray> twice = ApplyAll([](const Symbol& a) { return Group({a, a, a}); }, {b});
  twice[0] += 1;
  ExpectNumbers(twice[0], {1}, {11});
  ExpectNumbers(twice[1], {1}, {10});
  ExpectNumbers(b, {1}, {10});
  const auto sums = [](const Symbol& a) {
    const Symbol sum = a + a;
    return Group({sum, sum});
  };
  std::vector<NDArray> same = ApplyAll(sums, {b});
  same[0] += 1;
  ExpectNumbers(same[0], {1}, {21});
  ExpectNumbers(same[1], {1}, {20});
}

TEST(NDArray, StatesMoveInTrainingMode) {
  const NDArray x = Values({2, 1}, {1, 3}), one = Values({1}, {1}), zero = Values({1}, {0});
  NDArray mean = Values({1}, {10}), var = Values({1}, {4});
  const auto norm = [&] { return Apply(BatchNorm, {x, one, zero, mean, var}, {.eps = 1e-9, .momentum = 0.5}); };
  ExpectNumbers(norm(), {2, 1}, {-4.5, -3.5});
  ExpectNumbers(mean, {1}, {10});
  {
    const ModeScope mode(Mode::kTrain);
    ExpectNumbers(norm(), {2, 1}, {-1, 1});
  }
  ExpectNumbers(mean, {1}, {6});
  ExpectNumbers(var, {1}, {2.5});
}

TEST(NDArray, ProgramsAreKept) {
  const NDArray a = Values({5}, {1, 2, 3, 4, 5});
  const auto round = [&](double number) { return ((a * number - a) / 3).Sum().Scalar(); };
  round(2);
  const TapeStatistics before = ArrayStatistics();
  for (int i = 0; i < 20; ++i) EXPECT_NEAR(round(i), 5 * (i - 1), 1e-5);
  const TapeStatistics after = ArrayStatistics();
  EXPECT_EQ(after.compiled, before.compiled);
  EXPECT_EQ(after.runs, before.runs + 80);
  (a.Slice(0, 4) * 2).Wait();  // another shape
  EXPECT_EQ(ArrayStatistics().compiled, before.compiled + 1);
  for (int i = 1; i < 2500; ++i) NDArray::Zeros({i}, TestDevice()) + 1;  // more shapes than are kept
  EXPECT_LE(ArrayStatistics().calls, 2000);
  WaitAll();
}

TEST(NDArray, SplitAndLoad) {
  const std::vector<Device> devices = {TestDevice(0), TestDevice(1)};
  const HostTensor batch = HostTensor::From({4, 1}, {1, 2, 3, 4});
  for (const std::vector<NDArray>& parts :
       {SplitAndLoad(batch, devices), SplitAndLoad(NDArray(batch, devices[0]), devices)}) {
    ASSERT_EQ(parts.size(), 2u);
    ExpectNumbers(parts[0], {2, 1}, {1, 2});
    ExpectNumbers(parts[1], {2, 1}, {3, 4});
    EXPECT_EQ(parts[1].device(), devices[1]);
  }
  const std::vector<Device> three = {TestDevice(0), TestDevice(1), TestDevice(2)};
  EXPECT_EQ(MessageOf<ShapeError>([&] { SplitAndLoad(batch, three); }),
            "ShapeError: SplitAndLoad: 4 rows are not divided by 3 devices; {.even = false} allows it");
  const std::vector<NDArray> uneven = SplitAndLoad(batch, three, {.even = false});
  ExpectNumbers(uneven[0], {2, 1}, {1, 2});
  ExpectNumbers(uneven[1], {1, 1}, {3});
  ExpectNumbers(uneven[2], {1, 1}, {4});
  EXPECT_THROW(SplitAndLoad(batch.Slice(0, 0, 2), three, {.even = false}), ShapeError);
  EXPECT_THROW(SplitAndLoad(batch, {}), Error);
  EXPECT_THROW(SplitAndLoad(NDArray(HostTensor::From({}, {1})), devices), ShapeError);
}

TEST(NDArray, AllReduce) {
  std::vector<NDArray> parts;
  for (int d = 0; d < 3; ++d) parts.push_back(Values({2}, {1.0f + d, 10.0f * d}, d));
  AllReduce(parts);
  for (int d = 0; d < 3; ++d) {
    ExpectNumbers(parts[d], {2}, {6, 30});
    EXPECT_EQ(parts[d].device(), TestDevice(d));
  }
  AllReduce({parts[0]});
  ExpectNumbers(parts[0], {2}, {6, 30});
  // Results of calls, which are no whole tensors, too.
  std::vector<NDArray> results = {parts[0] * 1, parts[1] * 2};
  AllReduce(results);
  ExpectNumbers(results[0], {2}, {18, 90});
  ExpectNumbers(results[1], {2}, {18, 90});
  EXPECT_THROW(AllReduce({parts[0], NDArray()}), Error);
  EXPECT_THROW(AllReduce({parts[0], Values({3}, {1, 2, 3})}), ShapeError);
  EXPECT_THROW(AllReduce({parts[0], parts[0]}), Error);
}

TEST(NDArray, HostileUse) {
  const NDArray a = Values({2, 3}, {1, 2, 3, 4, 5, 6}), b = Values({2}, {1, 2}), far = Values({2}, {1, 2}, 1);
  EXPECT_EQ(MessageOf([&] { b + far; }), "Error: Add: arrays of different devices, input 0 lies on " +
                                             ToString(TestDevice(0)) + ", input 1 on " + ToString(TestDevice(1)) +
                                             "; bring them together with CopyTo");
  EXPECT_NE(MessageOf<ShapeError>([&] { a + b; }).find("Add"), std::string::npos);
  EXPECT_NE(MessageOf([&] {
              Apply(Convolution, {a, b}, {.num_filter = 2, .kernel = {1, 1}});
            }).find("Convolution"),
            std::string::npos);
  EXPECT_EQ(MessageOf([&] { Apply(FullyConnected, {a}, {.num_hidden = 2}); }),
            "Error: Apply: FullyConnected has no array for its input \"weight\"; 1 is given");
  EXPECT_EQ(MessageOf([&] { b + NDArray(); }), "Error: Add: input 1 is an empty array");
  EXPECT_EQ(MessageOf([&] { NDArray() + 1; }), "Error: an empty array has no tensor");
  EXPECT_EQ(MessageOf([&] { b.As(DType::kInt32) * 0.5; }), "Error: arrays of int32 have no number 0.5");
  EXPECT_EQ(MessageOf([&] { a.Scalar(); }), "ShapeError: Scalar of an array of shape (2, 3): expected one element");
  EXPECT_THROW(NDArray(b) += a, ShapeError);
  EXPECT_THROW(a.Slice(1, 3), ShapeError);
  EXPECT_THROW(a.Reshape({4, -1}), ShapeError);
  EXPECT_THROW(a.Reshape({-1, -1}), ShapeError);
  EXPECT_THROW(Apply(SliceChannel, {a}, {.num_outputs = 2, .axis = 0}), Error);
  EXPECT_THROW(a + a.As(DType::kFloat64), ShapeError);
  EXPECT_THROW(Apply([](const Symbol&) { return Symbol(); }, {a}), Error);
  EXPECT_THROW(Apply([](const Symbol& x) { return x + Variable("other"); }, {a}), Error);
  EXPECT_THROW(NDArray::Zeros({2}, Cuda(99)), DeviceError);
  ExpectNumbers(b * 2, {2}, {2, 4});  // and all goes on
}

// What goes wrong when a call runs travels to whoever reads, and to nobody else.
TEST(NDArray, ErrorsTravel) {
  const NDArray table = Values({2, 1}, {1, 2}), out = Values({1}, {5});
  const NDArray taken = Apply(Take, {table, out}, {.mode = IndexMode::kRaise});
  const NDArray after = taken + 1;
  EXPECT_THROW(after.ToHost(), Error);
  EXPECT_THROW(taken.Wait(), Error);
  ExpectNumbers(table + 1, {2, 1}, {2, 3});
  EXPECT_THROW(WaitAll(), Error);
  WaitAll();
}

}  // namespace
}  // namespace bindery
