
#include "symbol/ops/measure.h"

#include "base/exact_sum.h"
#include "symbol/ops/indexing.h"
#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

const Symbol kX = Variable("x"), kPlace = Variable("place");
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// `symbol` of x, and of places of int32 if it has them.
OperatorCase Case(std::string name, const Symbol& symbol, HostTensor x, HostTensor places, HostTensor expected) {
  OperatorCase c = {.name = std::move(name), .symbol = symbol, .inputs = {{"x", std::move(x)}}};
  c.wrt.emplace();
  c.forward = [expected](const HostTensorMap&) { return std::vector<HostTensor>{expected}; };
  if (places.elements() == 0) return c;
  c.inputs["place"] = std::move(places);
  c.dtypes["place"] = DType::kInt32;
  return c;
}

}  // namespace

std::vector<OperatorCase> MeasureCases() {
  const HostTensor rows = Values({3, 4}, {1, 3, 2, 3, 5, 5, 5, 5, -1, -4, -2, -8});
  const HostTensor nans = Values({2, 3}, {1, kNaN, kNaN, 3, 2, 1});
  const HostTensor none(DType::kFloat64, {0});
  std::vector<OperatorCase> cases = {
      Case("ArgMax of rows", ArgMax(kX), rows, none, Values({3}, {1, 0, 0})),
      Case("ArgMax of columns", ArgMax(kX, {.axis = 0}), rows, none, Values({4}, {1, 1, 1, 1})),
      Case("ArgMax in the middle", ArgMax(kX, {.axis = -2}), Values({2, 2, 2}, {1, 2, 3, 0, 7, 7, 6, 8}), none,
           Values({2, 2}, {1, 0, 0, 1})),
      Case("ArgMax with NaN", ArgMax(kX), nans, none, Values({2}, {1, 0})),
      Case("Pick", Pick(kX, kPlace), rows, Values({3}, {1, 0, 3}), Values({3}, {3, 5, -8})),
      Case("Pick of columns", Pick(kX, kPlace, {.axis = 0}), rows, Values({4}, {0, 1, 2, 0}),
           Values({4}, {1, 5, -2, 3})),
      Case("Pick where nothing is", Pick(kX, kPlace), rows, Values({3}, {-1, 4, 0}), Values({3}, {kNaN, kNaN, -1})),
      Case("RankOf", RankOf(kX, kPlace), rows, Values({3}, {3, 2, 0}), Values({3}, {1, 2, 0})),
      Case("RankOf of columns", RankOf(kX, kPlace, {.axis = 0}), rows, Values({4}, {0, 1, 2, 1}),
           Values({4}, {1, 0, 2, 0})),
      Case("RankOf where nothing is", RankOf(kX, kPlace), rows, Values({3}, {-1, 4, 3}), Values({3}, {4, 4, 3})),
      Case("RankOf with NaN", RankOf(kX, kPlace), nans, Values({2}, {0, 1}), Values({2}, {3, 1})),
      Case("SumExactly", SumExactly(kX), Values({2, 2}, {3, -1.5, 0x1p-20, 0x1p-21}), none,
           Values({3}, {1.5 + 0x1p-20, 0x1p-21, 0})),
      Case("FirstOutside finite numbers", FirstOutside(kX), nans, none, Values({2}, {1, kNaN})),
      Case("FirstOutside, none", FirstOutside(kX), rows, none, Values({2}, {-1, 0})),
      Case("FirstOutside an interval", FirstOutside(kX, {.low = -2, .high = 5}), rows, none, Values({2}, {9, -4})),
      Case("FirstOutside classes", FirstOutside(kX, {.low = 0, .high = 3, .whole = true}), Values({4}, {3, 0, 0.5, 7}),
           none, Values({2}, {2, 0.5})),
      Case("FirstOutside, one ignored",
           FirstOutside(kX, {.low = 0, .high = 3, .whole = true, .use_ignore = true, .ignore = -1}),
           Values({4}, {3, -1, 0, 7}), none, Values({2}, {3, 7})),
  };
  cases.push_back(
      Case("measures of batches", RankOf(kX, ArgMax(kX)), Distinct({5, 7}), none, HostTensor(DType::kFloat64, {5})));
  cases.back().batch_axes = {{"x", 0}};
  cases.back().wrong_shapes = {{{"x", {5}}}, {{"x", {5, 0}}}};
  return cases;
}

}  // namespace bindery
