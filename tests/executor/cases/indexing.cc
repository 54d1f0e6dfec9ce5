#include "symbol/ops/indexing.h"

#include <limits>

#include "symbol/ops/elementwise.h"
#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

const Symbol kX = Variable("x"), kI = Variable("i"), kU = Variable("u");
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Of x, u and indices i, of int32 unless told otherwise.
OperatorCase Case(std::string name, const Symbol& symbol, HostTensorMap inputs, DType indices = DType::kInt32) {
  return {.name = std::move(name),
          .symbol = symbol,
          .inputs = std::move(inputs),
          .dtypes = {{"i", indices}},
          .terms = 8,
          .magnitude = 4};
}

// With what comes out.
OperatorCase Case(std::string name, const Symbol& symbol, HostTensorMap inputs, const HostTensor& expected) {
  OperatorCase c = Case(std::move(name), symbol, std::move(inputs));
  c.forward = [expected](const HostTensorMap&) { return std::vector<HostTensor>{expected}; };
  return c;
}

void AddTakes(std::vector<OperatorCase>& cases) {
  const HostTensor x = Distinct({4, 3}), vector = Values({3}, {10, 20, 30});
  cases.push_back(Case("Take rows", Take(kX, kI, {}, "y"), {{"x", x}, {"i", Values({2, 3}, {0, 2, -1, 1, 1, -4})}}));
  cases.push_back(Case("Take columns", Take(kX, kI, {.axis = -1}, "y"), {{"x", x}, {"i", Values({2}, {2, -3})}}));
  cases.push_back(Case("Take one", Take(kX, kI, {.axis = 1}, "y"), {{"x", x}, {"i", Values({}, {1})}}));
  cases.push_back(Case("Take in the middle", Take(kX, kI, {.axis = 1}, "y"),
                       {{"x", Distinct({2, 3, 4})}, {"i", Values({4}, {0, 2, 2, -3})}}, DType::kInt64));
  cases.push_back(Case("Take of each sample", Take(kX, kI, {.axis = 1, .batch_dims = 1}, "y"),
                       {{"x", Distinct({2, 3, 4})}, {"i", Values({2, 2}, {0, 2, 1, 1})}}, DType::kUInt8));
  cases.back().batch_axes = {{"x", 0}, {"i", 0}};
  cases.push_back(Case("Take of each sample, further on", Take(kX, kI, {.axis = 2, .batch_dims = 1}, "y"),
                       {{"x", Distinct({2, 2, 3, 2})}, {"i", Values({2, 2}, {0, 2, 1, 1})}}));
  cases.back().batch_axes = {{"x", 0}, {"i", 0}};
  cases.back().wrong_shapes = {{{"x", {3, 2, 3, 2}}, {"i", {2, 2}}}, {{"x", {2}}}, {{"x", {2, 0, 3}}, {"i", {}}}};
  cases.push_back(Case("Take of all samples", Take(kX, kI, {.axis = 1}, "y"),
                       {{"x", Distinct({3, 4})}, {"i", Values({2}, {0, 3})}}));
  cases.back().batch_axes = {{"x", 0}};
  cases.push_back(Case("Take with samples of indices", Take(kX, kI, {}, "y"),
                       {{"x", x}, {"i", Values({3, 2}, {0, 3, 3, 1, 0, 0})}}));
  cases.back().batch_axes = {{"i", 0}};
  const HostTensor odd = Values({5}, {-1, 0, 2, 3, -7});
  cases.push_back(Case("Take, clip", Take(kX, kI, {.mode = IndexMode::kClip}, "y"), {{"x", vector}, {"i", odd}},
                       Values({5}, {10, 10, 30, 30, 10})));
  cases.push_back(Case("Take, wrap", Take(kX, kI, {.mode = IndexMode::kWrap}, "y"), {{"x", vector}, {"i", odd}},
                       Values({5}, {30, 10, 30, 10, 30})));
  cases.push_back(Case("Take, skip", Take(kX, kI, {.mode = IndexMode::kSkip}, "y"), {{"x", vector}, {"i", odd}},
                       Values({5}, {kNaN, 10, 30, kNaN, kNaN})));
  cases.back().gradient = [](const HostTensorMap& in, const std::vector<HostTensor>&) -> HostTensorMap {
    return {{"x", Values({3}, {in.at("y_output_grad").At(1), 0, in.at("y_output_grad").At(2)})}};
  };
  cases.push_back(Case("Take, zero", Take(kX, kI, {.mode = IndexMode::kZero}, "y"), {{"x", vector}, {"i", odd}},
                       Values({5}, {0, 10, 30, 0, 0})));
  cases.push_back(Case("Take, padding", Take(kX, kI, {.padding = -1}, "y"),
                       {{"x", vector}, {"i", Values({4}, {2, 1, -1, 0})}}, Values({4}, {0, 20, 0, 10})));
  for (const IndexMode mode : {IndexMode::kClip, IndexMode::kWrap, IndexMode::kZero}) {
    const bool cuts = mode != IndexMode::kZero;
    cases.push_back(Case(fmt::format("Take at fractions, {}", static_cast<int>(mode)),
                         Take(kX, kI, {.mode = mode}, "y"), {{"x", vector}, {"i", Values({3}, {1.5, 1, kNaN})}},
                         Values({3}, {cuts ? 20. : 0., 20, cuts ? 10. : 0.})));
    cases.back().dtypes["i"] = DType::kFloat32;
  }

  cases.push_back(
      Case("GatherND", GatherND(kX, kI, {}, "y"), {{"x", Distinct({3, 4, 2})}, {"i", Values({2, 2}, {0, 3, -1, 1})}}));
  cases.push_back(Case("GatherND of numbers", GatherND(kX, kI, {}, "y"),
                       {{"x", Values({2, 2}, {1, 2, 3, 4})}, {"i", Values({3, 2}, {0, 1, 1, 1, 0, 0})}},
                       Values({3}, {2, 4, 1})));
  cases.push_back(Case("GatherND of each sample", GatherND(kX, kI, {.batch_dims = 1}, "y"),
                       {{"x", Distinct({2, 3, 4})}, {"i", Values({2, 2, 1}, {0, 2, 1, -2})}}, DType::kInt64));
  cases.back().batch_axes = {{"x", 0}, {"i", 0}};
  cases.back().wrong_shapes = {{{"x", {2, 3}}, {"i", {2, 2, 2}}}, {{"x", {2, 3, 4}}, {"i", {2, 2, 0}}}};
  cases.push_back(Case("GatherND further on", GatherND(kX, kI, {.axis = 1}, "y"),
                       {{"x", Distinct({3, 2, 2, 3})}, {"i", Values({3, 2}, {0, 1, 1, 1, 0, 0})}}));
  cases.back().batch_axes = {{"x", 0}};

  cases.push_back(Case("GatherElements", GatherElements(kX, kI, {.axis = 1}, "y"),
                       {{"x", Values({2, 2}, {1, 2, 3, 4})}, {"i", Values({2, 3}, {0, 0, -1, 1, 0, 0})}},
                       Values({2, 3}, {1, 1, 2, 4, 3, 3})));
  cases.push_back(Case("GatherElements of fewer", GatherElements(kX, kI, {}, "y"),
                       {{"x", Distinct({3, 4, 2})}, {"i", Integers({2, 3, 2}, -3, 2)}}, DType::kInt64));
  cases.back().wrong_shapes = {{{"x", {3, 4, 2}}, {"i", {2, 5, 2}}}, {{"x", {3, 4}}, {"i", {3}}}};
  cases.push_back(Case("GatherElements of each sample", GatherElements(kX, kI, {.axis = -2}, "y"),
                       {{"x", Distinct({3, 4, 2})}, {"i", Integers({3, 5, 2}, 0, 3)}}));
  cases.back().batch_axes = {{"x", 0}, {"i", 0}};

  cases.push_back(
      Case("Pick with a gradient", Pick(kX, kI, {}, "y"), {{"x", Distinct({3, 4})}, {"i", Values({3}, {0, 3, 1})}}));
  cases.back().batch_axes = {{"x", 0}, {"i", 0}};
  cases.push_back(Case("Pick, the axis kept",
                       Pick(kX, kI, {.axis = -2, .keepdims = true, .mode = IndexMode::kClip}, "y"),
                       {{"x", Distinct({2, 3, 2})}, {"i", Values({2, 1, 2}, {0, 7, -3, 1})}}));
  cases.back().batch_axes = {{"x", 0}, {"i", 0}};
}

void AddScatters(std::vector<OperatorCase>& cases) {
  using enum ScatterReduction;
  cases.push_back(Case("ScatterND", ScatterND(kX, kI, kU, {}, "y"),
                       {{"x", Distinct({4, 2, 2})}, {"i", Values({2, 1}, {0, -2})}, {"u", Uniform({2, 2, 2})}}));
  cases.push_back(Case("ScatterND, the last stays", ScatterND(kX, kI, kU, {}, "y"),
                       {{"x", Values({3}, {1, 2, 3})}, {"i", Values({2, 1}, {1, 1})}, {"u", Values({2}, {5, 6})}},
                       Values({3}, {1, 6, 3})));
  cases.back().wrt.emplace();
  cases.push_back(Case("ScatterND where nothing is", ScatterND(kX, kI, kU, {.mode = IndexMode::kSkip}, "y"),
                       {{"x", Values({3}, {1, 2, 3})}, {"i", Values({2, 1}, {-1, 1})}, {"u", Values({2}, {5, 6})}},
                       Values({3}, {1, 6, 3})));
  cases.push_back(Case("ScatterND with padding", ScatterND(kX, kI, kU, {.reduction = kAdd, .padding = 0}, "y"),
                       {{"x", Values({3}, {1, 2, 3})}, {"i", Values({3, 1}, {0, 1, 1})}, {"u", Values({3}, {5, 6, 7})}},
                       Values({3}, {1, 15, 3})));
  cases.push_back(Case("ScatterND into zeros", PutND(kI, kU, {.reduction = kAdd, .shape = {4, 3}}, "y"),
                       {{"i", Values({3, 1}, {1, 3, 1})}, {"u", Distinct({3, 3})}}));
  cases.push_back(Case(
      "ScatterND of each sample", ScatterND(kX, kI, kU, {.axis = 2, .batch_dims = 1, .reduction = kAdd}, "y"),
      {{"x", Distinct({2, 2, 3, 2})}, {"i", Values({2, 3, 1}, {0, 2, 0, 1, 1, 1})}, {"u", Uniform({2, 2, 3, 2})}}));
  cases.back().batch_axes = {{"x", 0}, {"i", 0}, {"u", 0}};
  cases.back().wrong_shapes = {{{"x", {2, 2, 3, 2}}, {"i", {2, 3, 1}}, {"u", {2, 2, 4, 2}}}};
  for (const ScatterReduction reduction : {kNone, kAdd, kMul, kMax, kMin}) {
    const std::string name = EnumNames(static_cast<ScatterReduction*>(nullptr))[static_cast<size_t>(reduction)].name;
    const bool many = reduction != kNone;
    const HostTensor places = many ? Values({4, 2}, {0, 1, 2, -1, 0, 1, 0, 1}) : Values({2, 2}, {0, 1, 2, -1});
    cases.push_back(Case("ScatterND, " + name, ScatterND(kX, kI, kU, {.reduction = reduction}, "y"),
                         {{"x", Distinct({3, 2, 3})}, {"i", places}, {"u", AwayFromZero({many ? 4 : 2, 3})}}));
    cases.back().magnitude = 16;
    const HostTensor elements = many ? Values({2, 3}, {0, 0, 2, -1, 2, 2}) : Values({2, 3}, {0, 1, 2, -1, 0, 1});
    cases.push_back(Case("ScatterElements, " + name,
                         ScatterElements(kX, kI, kU, {.axis = -1, .reduction = reduction}, "y"),
                         {{"x", Distinct({3, 4})}, {"i", elements}, {"u", AwayFromZero({2, 3}, 0.3, 1)}}));
    cases.back().magnitude = 16;
    cases.push_back(Case(
        "ScatterElements along the first axis, " + name, ScatterElements(kX, kI, kU, {.reduction = reduction}, "y"),
        {{"x", Distinct({3, 2})}, {"i", Values({3, 2}, {0, 1, 2, 0, 1, 2})}, {"u", AwayFromZero({3, 2})}},
        DType::kInt64));
  }
  cases.push_back(Case("products with 0", ScatterND(kX, kI, kU, {.reduction = kMul}, "y"),
                       {{"x", Values({4}, {2, 3, 0, 5})},
                        {"i", Values({6, 1}, {0, 0, 1, 1, 2, 3})},
                        {"u", Values({6}, {0, 4, 0, 0, 6, 7})}}));
  cases.push_back(Case("equal extremes share", ScatterElements(kX, kI, kU, {.reduction = kMax}, "y"),
                       {{"x", Values({2}, {2, 1})}, {"i", Values({3}, {0, 0, 1})}, {"u", Values({3}, {2, 2, 3})}}));
  cases.back().gradient = [](const HostTensorMap& in, const std::vector<HostTensor>&) -> HostTensorMap {
    const double a = in.at("y_output_grad").At(0) / 3, b = in.at("y_output_grad").At(1);
    return {{"x", Values({2}, {a, 0})}, {"u", Values({3}, {a, a, b})}};
  };
  cases.push_back(Case("ScatterElements of each sample",
                       ScatterElements(kX, kI, kU, {.axis = 1, .reduction = kAdd}, "y"),
                       {{"x", Distinct({3, 4})}, {"i", Integers({3, 5}, 0, 3)}, {"u", Uniform({3, 5})}}));
  cases.back().batch_axes = {{"x", 0}, {"i", 0}, {"u", 0}};
  cases.back().wrong_shapes = {{{"x", {3, 4}}, {"i", {3, 5}}, {"u", {3, 4}}}, {{"x", {3, 4}}, {"i", {4, 4}}}};
}

}  // namespace

std::vector<OperatorCase> IndexingCases() {
  std::vector<OperatorCase> cases;
  AddTakes(cases);
  AddScatters(cases);
  const HostTensor places = Values({2, 2}, {0, 2, -1, 5});
  cases.push_back(Case("OneHot", OneHot(kI, {.depth = 3}, "y"), {{"i", places}},
                       Values({2, 2, 3}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0})));
  cases.push_back(Case("OneHot from the end",
                       OneHot(kI, {.depth = 3, .axis = 1, .on_value = 5, .off_value = -2, .from_end = true}, "y"),
                       {{"i", places}}, Values({2, 3, 2}, {5, -2, -2, -2, -2, 5, -2, -2, -2, -2, 5, -2})));
  cases.back().batch_axes = {{"i", 0}};
  cases.push_back(Case("OneHot of integers", OneHot(kI, {.depth = 2, .axis = 0, .dtype = DType::kInt8}, "y"),
                       {{"i", Values({2}, {1, 0})}}, Values({2, 2}, {0, 1, 1, 0})));

  const HostTensor words = Values({2, 4}, {4, 0, 4, 2, 1, 2, 4, -5});
  cases.push_back(Case("RowNumbers", RowNumbers(kI, {.extent = 5, .padding = -3}, "y"), {{"i", words}},
                       Values({8}, {4, 0, 4, -1, 1, -1, 4, 0})));
  cases.push_back(Case("RowNumbers, clip", RowNumbers(kI, {.extent = 3, .mode = IndexMode::kClip}, "y"), {{"i", words}},
                       Values({8}, {2, 0, 2, 2, 1, 2, 2, 0})));
  cases.push_back(Case("RowNumbers, zero", RowNumbers(kI, {.extent = 3, .mode = IndexMode::kZero}, "y"), {{"i", words}},
                       Values({8}, {-1, 0, -1, 2, 1, 2, -1, -1})));
  cases.push_back(Case("Embedding", Embedding(kI, {.input_dim = 5, .output_dim = 3}, "e"),
                       {{"i", words}, {"e_weight", Distinct({5, 3})}}));
  cases.back().batch_axes = {{"i", 0}};
  cases.back().wrong_shapes = {{{"e_weight", {5, 4}}}, {{"e_weight", {4, 3}}}};
  cases.push_back(Case("Embedding, clip",
                       Embedding(kI, {.input_dim = 3, .output_dim = 2, .mode = IndexMode::kClip}, "e"),
                       {{"i", words}, {"e_weight", Distinct({3, 2})}}));
  cases.push_back(Case("Embedding with padding",
                       Embedding(kI, {.input_dim = 5, .output_dim = 1, .padding_idx = 2}, "e"),
                       {{"i", Values({3}, {2, 4, 4})}, {"e_weight", Distinct({5, 1})}}));
  cases.back().gradient = [](const HostTensorMap& in, const std::vector<HostTensor>&) -> HostTensorMap {
    const HostTensor& dy = in.at("e_output_grad");
    return {{"e_weight", Values({5, 1}, {0, 0, 0, 0, dy.At(1) + dy.At(2)})}};
  };
  return cases;
}

}  // namespace bindery
