#include "symbol/ops/order.h"

#include <cmath>
#include <limits>

#include "symbol/ops/sequence.h"
#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

const Symbol kX = Variable("x"), kLengths = Variable("lengths");

OperatorCase Case(std::string name, const Symbol& symbol, HostTensor x, bool batched = false) {
  OperatorCase c = {
      .name = std::move(name), .symbol = symbol, .inputs = {{"x", std::move(x)}}, .terms = 8, .magnitude = 8};
  if (batched) c.batch_axes = {{"x", 0}};
  return c;
}

void Expect(OperatorCase& c, std::vector<HostTensor> expected) {
  c.forward = [expected = std::move(expected)](const HostTensorMap&) { return expected; };
}

void AddOrders(std::vector<OperatorCase>& cases) {
  const HostTensor rows = Values({2, 4}, {3, 1, 3, 2, -1, -2, -0.5, 0});
  cases.push_back(Case("TopK", TopK(kX, {.k = 2}, "y"), rows, true));
  Expect(cases.back(), {Values({2, 2}, {3, 3, 0, -0.5}), Values({2, 2}, {0, 2, 3, 2})});
  cases.back().wrt.emplace();  // equal ones have no differences
  cases.push_back(
      Case("TopK of the smallest", TopK(kX, {.k = 2, .largest = false, .dtype = DType::kInt32}, "y"), rows));
  Expect(cases.back(), {Values({2, 2}, {1, 2, -2, -1}), Values({2, 2}, {1, 3, 1, 0})});
  cases.back().wrong_shapes = {{{"x", {4, 1}}}, {{"x", {}}}};
  cases.push_back(Case("TopK of columns", TopK(kX, {.k = 3, .axis = 1}, "y"), Distinct({3, 5, 2}), true));
  cases.push_back(Case("TopK of all", TopK(kX, {.axis = 0}, "y"), Distinct({5, 3})));
  cases.push_back(Case("TopK with NaN", TopK(kX, {.largest = false}, "y"), Values({4}, {NAN, 1, -INFINITY, INFINITY})));
  Expect(cases.back(), {Values({4}, {-INFINITY, 1, INFINITY, NAN}), Values({4}, {2, 1, 3, 0})});
  cases.back().wrt.emplace();
  cases.push_back(Case("Sort", Sort(kX, {}, "y"), Distinct({3, 7}), true));
  cases.push_back(Case("Sort descending", Sort(kX, {.axis = 0, .descending = true}, "y"), Distinct({7, 3})));
  cases.push_back(Case("ArgSort", ArgSort(kX, {}, "y"), rows));
  Expect(cases.back(), {Values({2, 4}, {1, 3, 0, 2, 1, 0, 2, 3})});
  cases.back().wrt.emplace();
}

void AddScans(std::vector<OperatorCase>& cases) {
  const HostTensor row = Values({1, 4}, {2, 3, 5, 7});
  for (const bool exclusive : {false, true}) {
    for (const bool reverse : {false, true}) {
      const std::string name = std::string(exclusive ? ", exclusive" : "") + (reverse ? ", reverse" : "");
      const auto attrs = [=](int64_t axis) {
        return ScanAttrs{.axis = axis, .exclusive = exclusive, .reverse = reverse};
      };
      cases.push_back(Case("CumSum" + name, CumSum(kX, attrs(-1), "y"), row, true));
      Expect(cases.back(), {exclusive ? (reverse ? Values({1, 4}, {15, 12, 7, 0}) : Values({1, 4}, {0, 2, 5, 10}))
                                      : (reverse ? Values({1, 4}, {17, 15, 12, 7}) : Values({1, 4}, {2, 5, 10, 17}))});
      cases.push_back(Case("CumSum of columns" + name, CumSum(kX, attrs(1), "y"), Uniform({2, 5, 3})));
      cases.push_back(Case("CumProd" + name, CumProd(kX, attrs(1), "y"), Uniform({3, 5}, 0.5, 1.5), true));
      cases.push_back(Case("CumProd of columns" + name, CumProd(kX, attrs(0), "y"), Uniform({5, 3}, 0.5, 1.5)));
      cases.push_back(
          Case("CumProd with 0" + name, CumProd(kX, attrs(1), "y"), Values({2, 4}, {2, 0, 3, 4, 0, 5, 0, 6})));
    }
  }
  for (const int64_t k : {int64_t{-9}, int64_t{-1}, int64_t{0}, int64_t{2}, std::numeric_limits<int64_t>::max()}) {
    cases.push_back(Case(fmt::format("Triu {}", k), Trilu(kX, {.k = k}, "y"), Uniform({2, 4, 3}), true));
    cases.push_back(Case(fmt::format("Tril {}", k), Trilu(kX, {.k = k, .upper = false}, "y"), Uniform({3, 5})));
  }
  cases.back().wrong_shapes = {{{"x", {3}}}};
}

OperatorCase Sequences(std::string name, const Symbol& symbol, HostTensor x, HostTensor lengths, DType dtype) {
  OperatorCase c = Case(std::move(name), symbol, std::move(x));
  c.inputs["lengths"] = std::move(lengths);
  c.dtypes["lengths"] = dtype;
  return c;
}

void AddSequences(std::vector<OperatorCase>& cases) {
  const HostTensor lengths = Values({3}, {2, 0, 4}), lasts = Values({3}, {2, 1, 4});
  const HostTensor steps = Values({3, 2}, {1, 2, 3, 4, 5, 6});
  cases.push_back(
      Sequences("SequenceMask", SequenceMask(kX, kLengths, {{}, -1}, "y"), steps, Values({2}, {1, 2}), DType::kInt32));
  Expect(cases.back(), {Values({3, 2}, {1, 2, -1, 4, -1, -1})});
  cases.push_back(
      Sequences("SequenceReverse", SequenceReverse(kX, kLengths, {}, "y"), steps, Values({2}, {3, 2}), DType::kInt64));
  Expect(cases.back(), {Values({3, 2}, {5, 4, 3, 2, 1, 6})});
  cases.push_back(
      Sequences("SequenceLast", SequenceLast(kX, kLengths, {}, "y"), steps, Values({2}, {3, 1}), DType::kFloat32));
  Expect(cases.back(), {Values({2}, {5, 2})});
  const auto add = [&](const std::string& form, const SequenceAttrs& attrs, const Shape& shape, int samples) {
    const auto push = [&](const std::string& name, const Symbol& symbol, const HostTensor& counts) {
      cases.push_back(Sequences(name + ", " + form, symbol, Distinct(shape), counts, DType::kInt32));
      cases.back().batch_axes = {{"x", samples}, {"lengths", 0}};
      cases.back().wrong_shapes = {{{"x", shape}, {"lengths", {4}}}, {{"x", shape}, {"lengths", {3, 1}}}, {{"x", {3}}}};
    };
    push("SequenceMask", SequenceMask(kX, kLengths, {attrs, 0.5}, "y"), lengths);
    push("SequenceReverse", SequenceReverse(kX, kLengths, attrs, "y"), lengths);
    push("SequenceLast", SequenceLast(kX, kLengths, attrs, "y"), lasts);
  };
  add("steps first", {}, {4, 3, 2}, 1);
  add("samples first", {.axis = 1, .batch_axis = 0}, {3, 4, 2}, 0);
  add("far apart", {.axis = -1, .batch_axis = 0}, {3, 2, 2, 4}, 0);
  add("steps far before", {.axis = 1, .batch_axis = -2}, {2, 4, 2, 3, 2}, 3);
}

}  // namespace

std::vector<OperatorCase> OrderCases() {
  std::vector<OperatorCase> cases;
  AddOrders(cases);
  AddScans(cases);
  AddSequences(cases);
  return cases;
}

}  // namespace bindery
