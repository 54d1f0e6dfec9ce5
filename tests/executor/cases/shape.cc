#include "symbol/ops/elementwise.h"
#include "symbol/ops/loss.h"
#include "symbol/ops/shape_ops.h"
#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

const std::vector<std::string> kNone;

void AddViews(std::vector<OperatorCase>& cases) {
  const Symbol x = Variable("x");
  for (const Shape& shape : {Shape{3, 5}, Shape{2, 20, 2, 3}}) {
    cases.push_back({.name = fmt::format("Identity {}", shape),
                     .symbol = Identity(x, "y"),
                     .inputs = {{"x", Uniform(shape)}},
                     .batch_axes = {{"x", 0}}});
    cases.push_back({.name = fmt::format("Flatten {}", shape),
                     .symbol = Flatten(x, "y"),
                     .inputs = {{"x", Uniform(shape)}},
                     .batch_axes = {{"x", 0}}});
    cases.push_back({.name = fmt::format("ScaleLoss {}", shape),
                     .symbol = ScaleLoss(x, "y"),
                     .inputs = {{"x", Uniform(shape)}},
                     .batch_axes = {{"x", 0}}});
    cases.push_back({.name = fmt::format("BlockGrad {}", shape),
                     .symbol = BlockGrad(x, "y"),
                     .inputs = {{"x", Uniform(shape)}},
                     .batch_axes = {{"x", 0}},
                     .gradient = [shape](const HostTensorMap&, const std::vector<HostTensor>&) -> HostTensorMap {
                       return {{"x", HostTensor(DType::kFloat64, shape)}};
                     }});
  }
  cases.push_back({.name = "Reshape",
                   .symbol = Reshape(x, {.shape = {0, -1, 2}}, "y"),
                   .inputs = {{"x", Uniform({2, 3, 4})}},
                   .batch_axes = {{"x", 0}},
                   .wrong_shapes = {{{"x", {2, 3}}}}});
  cases.push_back({.name = "Reshape of 4 axes",
                   .symbol = Reshape(x, {.shape = {0, 4, 5, -1}}, "y"),
                   .inputs = {{"x", Uniform({2, 20, 2, 3})}},
                   .batch_axes = {{"x", 0}}});
}

void AddStretches(std::vector<OperatorCase>& cases) {
  const Symbol x = Variable("x");
  const auto add = [&](const std::string& name, const Shape& small, const Shape& large) {
    const std::vector<int64_t> to(large.begin(), large.end()), from(small.begin(), small.end());
    const double terms = static_cast<double>(large.Elements()) / static_cast<double>(small.Elements());
    cases.push_back({.name = "BroadcastTo, " + name,
                     .symbol = BroadcastTo(x, {.shape = to}, "y"),
                     .inputs = {{"x", Uniform(small)}},
                     .terms = terms,
                     .magnitude = 1});
    cases.push_back({.name = "SumTo, " + name,
                     .symbol = SumTo(x, {.shape = from}, "y"),
                     .inputs = {{"x", Uniform(large)}},
                     .terms = terms,
                     .magnitude = 1});
  };
  add("nothing to do", {2, 3, 4}, {2, 3, 4});
  add("rows", {3, 1}, {2, 3, 4});
  add("scalar", {}, {2, 3, 4});
  add("samples", {1, 3, 4}, {2, 3, 4});
  add("middle", {2, 1, 4}, {2, 3, 4});
  add("channels", {1, 20, 1, 1}, {2, 20, 2, 2});
  add("channels without samples", {20, 1, 1}, {2, 20, 2, 2});
  cases.back().wrong_shapes = {{{"x", {2, 20, 2}}}};
  // What follows the batch.
  cases.push_back({.name = "BroadcastTo every sample",
                   .symbol = BroadcastTo(x, {.shape = {0, 4}, .batches = {1, 0}}, "y") + Variable("z"),
                   .inputs = {{"x", Uniform({4})}, {"z", Uniform({3, 4})}},
                   .batch_axes = {{"z", 0}},
                   .terms = 3,
                   .magnitude = 1});
  cases.push_back({.name = "SumTo, a number per sample",
                   .symbol = SumTo(x, {.shape = {0, 1}, .batches = {1, 0}}, "y"),
                   .inputs = {{"x", Uniform({3, 4})}},
                   .batch_axes = {{"x", 0}},
                   .terms = 4,
                   .magnitude = 1});
  cases.push_back({.name = "Reshape to two samples in a row",
                   .symbol = Reshape(Concat({x, x}), {.shape = {0, -1}, .batches = {2, 0}}, "y"),
                   .inputs = {{"x", Uniform({3, 4})}},
                   .batch_axes = {{"x", 0}}});
}

void AddPads(std::vector<OperatorCase>& cases) {
  const Symbol x = Variable("x");
  const auto add = [&](const std::string& name, const Shape& shape, const PadAttrs& attrs) {
    cases.push_back({.name = "Pad " + name, .symbol = Pad(x, attrs, "y"), .inputs = {{"x", Uniform(shape)}}});
  };
  add("one axis", {5}, {.begin = {1}, .end = {3}});
  add("first axes", {4, 5, 2}, {.begin = {1, 2}, .end = {0, 4}});
  add("named axes", {4, 5, 2}, {.begin = {1, 0}, .end = {2, 1}, .axes = {1, -1}});
  add("steps", {3, 4, 2}, {.begin = {0, 1}, .end = {2, 0}, .step = {3, 2}});
  add("with a value", {2, 3}, {.begin = {1, 1}, .end = {1, 1}, .value = -1.5});
  add("height", {2, 3, 4, 2}, {.begin = {1}, .end = {3}, .axes = {2}});
  cases.back().batch_axes = {{"x", 0}};
  cases.push_back({.name = "Pad to two batches",
                   .symbol = Pad(x, {.begin = {0}, .end = {0}, .begin_batches = {1}}, "y"),
                   .inputs = {{"x", Uniform({3, 4})}},
                   .batch_axes = {{"x", 0}}});
}

void AddCasts(std::vector<OperatorCase>& cases) {
  const Symbol x = Variable("x");
  for (DType to : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    cases.push_back({.name = fmt::format("Cast to {}", to),
                     .symbol = Cast(Cast(x, {.dtype = to}, "there"), {.dtype = DType::kFloat64}, "back"),
                     .inputs = {{"x", Distinct({2, 9, 2, 2})}},
                     .batch_axes = {{"x", 0}},
                     .gradient = [to](const HostTensorMap& in, const std::vector<HostTensor>&) -> HostTensorMap {
                       return {{"x", in.at("back_output_grad").Cast(to).Cast(DType::kFloat64)}};
                     }});
  }
  for (DType to : {DType::kInt8, DType::kInt32, DType::kInt64, DType::kUInt8, DType::kBool, DType::kInt16,
                   DType::kUInt16, DType::kUInt32, DType::kUInt64}) {
    cases.push_back({.name = fmt::format("Cast to {}", to),
                     .symbol = Cast(x, {.dtype = to}, "y"),
                     .inputs = {{"x", Values({7}, {0, 0.5, 1.5, 2.75, 200, 300, -3.75})}},
                     .wrt = kNone});
    cases.push_back({.name = fmt::format("Cast from {}", to),
                     .symbol = Cast(x, {.dtype = DType::kFloat32}, "y"),
                     .inputs = {{"x", Integers({3, 4}, 0, 100)}},
                     .dtypes = {{"x", to}},
                     .test_dtypes = {DType::kFloat32}});
    cases.back().wrt = kNone;
  }
}

void AddTransposes(std::vector<OperatorCase>& cases) {
  const Symbol x = Variable("x");
  const auto add = [&](const Shape& shape, std::vector<int64_t> axes) {
    cases.push_back({.name = fmt::format("Transpose {}, {}", shape, cases.size()),
                     .symbol = Transpose(x, {.axes = std::move(axes)}, "y"),
                     .inputs = {{"x", Uniform(shape)}},
                     .batch_axes = {{"x", 0}}});
  };
  add({3, 4}, {});
  add({2, 3, 4}, {});
  add({2, 3, 4}, {0, 2, 1});
  add({2, 3, 4}, {2, 0, 1});
  add({2, 20, 2, 3}, {0, 2, 3, 1});
  add({2, 3, 4, 2}, {3, 1, 0, 2});
  add({2, 3, 2, 2, 2}, {4, 0, 3, 1, 2});
  add({5}, {0});
  cases.back().wrong_shapes = {{{"x", {5, 1}}}};
}

void AddConcats(std::vector<OperatorCase>& cases) {
  const Symbol a = Variable("a"), b = Variable("b"), c = Variable("c");
  const auto add = [&](const std::string& name, int64_t axis, const Shape& first, const Shape& second,
                       const Shape& third) {
    cases.push_back({.name = "Concat " + name,
                     .symbol = Concat({a, b, c}, {.axis = axis}, "y"),
                     .inputs = {{"a", Uniform(first)}, {"b", Uniform(second)}, {"c", Uniform(third)}},
                     .wrong_shapes = {{{"a", first}, {"b", second.Insert(0, 1)}}}});
    if (axis == 1) cases.back().batch_axes = {{"a", 0}, {"b", 0}, {"c", 0}};
  };
  add("vectors", 0, {2}, {3}, {1});
  add("columns", 1, {2, 3}, {2, 1}, {2, 4});
  add("rows", 0, {2, 3}, {1, 3}, {4, 3});
  add("channels", 1, {2, 8, 2, 3}, {2, 16, 2, 3}, {2, 8, 2, 3});
  add("odd channels", 1, {2, 3, 2, 2}, {2, 5, 2, 2}, {2, 20, 2, 2});
  add("last axis", -1, {2, 3, 1}, {2, 3, 2}, {2, 3, 3});
  add("height", 2, {2, 3, 1, 2}, {2, 3, 2, 2}, {2, 3, 3, 2});
  cases.push_back({.name = "Concat one", .symbol = Concat({a}, {}, "y"), .inputs = {{"a", Uniform({2, 3})}}});
  cases.push_back(
      {.name = "Concat a value with itself", .symbol = Concat({a, a}, {}, "y"), .inputs = {{"a", Uniform({2, 3})}}});
  cases.push_back({.name = "Concat of batches",
                   .symbol = Concat({a, b, a}, {.axis = 0}, "y"),
                   .inputs = {{"a", Uniform({2, 3})}, {"b", Uniform({2, 3})}},
                   .batch_axes = {{"a", 0}, {"b", 0}}});
  cases.push_back({.name = "Concat, one gradient",
                   .symbol = Concat({a, b}, {}, "y"),
                   .inputs = {{"a", Uniform({2, 8, 2, 2})}, {"b", Uniform({2, 8, 2, 2}, 0, 1)}},
                   .wrt = std::vector<std::string>{"b"}});
}

void AddSlices(std::vector<OperatorCase>& cases) {
  const Symbol x = Variable("x");
  const auto add = [&](const std::string& name, const Shape& shape, const SliceAttrs& attrs) {
    cases.push_back({.name = "Slice " + name, .symbol = Slice(x, attrs, "y"), .inputs = {{"x", Uniform(shape)}}});
  };
  add("one axis", {5}, {.begin = {1}, .end = {4}});
  add("first axes", {4, 5, 2}, {.begin = {1, 2}, .end = {3, 4}});
  add("named axes", {4, 5, 2}, {.begin = {1, 0}, .end = {4, 1}, .axes = {1, -1}});
  add("negative bounds", {4, 5}, {.begin = {-3, -2}, .end = {-1, kSliceEnd}});
  add("steps", {7, 6}, {.begin = {0, 1}, .end = {7, 6}, .step = {3, 2}});
  add("backward", {7, 3}, {.begin = {-1}, .end = {-8}, .step = {-1}});
  add("backward by 2", {7, 3}, {.begin = {5}, .end = {0}, .step = {-2}});
  add("channels", {2, 24, 2, 2}, {.begin = {8}, .end = {24}, .axes = {1}});
  add("odd channels", {2, 24, 2, 2}, {.begin = {3}, .end = {20}, .axes = {1}});
  add("height", {2, 3, 4, 2}, {.begin = {1}, .end = {3}, .axes = {2}});
  cases[cases.size() - 3].batch_axes = {{"x", 0}};
  add("of the first samples", {4, 3}, {.begin = {0}, .end = {2}});
  cases.back().batch_axes = {{"x", 0}};
  add("of the last samples", {4, 3}, {.begin = {-2}, .end = {kSliceEnd}});
  cases.back().batch_axes = {{"x", 0}};
  add("of nothing", {4, 3}, {.begin = {2}, .end = {2}});
}

void AddSliceChannels(std::vector<OperatorCase>& cases) {
  const Symbol x = Variable("x");
  const auto add = [&](const std::string& name, const Shape& shape, const SliceChannelAttrs& attrs) {
    cases.push_back(
        {.name = "SliceChannel " + name, .symbol = SliceChannel(x, attrs, "y"), .inputs = {{"x", Uniform(shape)}}});
  };
  add("columns", {2, 6}, {.num_outputs = 3});
  add("rows", {4, 3}, {.num_outputs = 2, .axis = 0});
  add("channels", {2, 32, 2, 2}, {.num_outputs = 2});
  add("odd channels", {2, 9, 2, 2}, {.num_outputs = 3});
  add("last axis", {2, 3, 4}, {.num_outputs = 2, .axis = -1});
  add("squeezed", {2, 3, 4}, {.num_outputs = 3, .axis = 1, .squeeze_axis = true});
  add("squeezed last axis", {2, 3, 2}, {.num_outputs = 2, .axis = -1, .squeeze_axis = true});
  add("one part", {2, 3}, {.num_outputs = 1});
  cases[cases.size() - 8].wrong_shapes = {{{"x", {2, 5}}}};
  // One output of three is used: the kernel gets null pointers for the others, and their gradients are zeros.
  cases.push_back({.name = "SliceChannel, one part used",
                   .symbol = SliceChannel(x, {.num_outputs = 3}, "y")[1],
                   .inputs = {{"x", Uniform({2, 6})}},
                   .batch_axes = {{"x", 0}}});
}

}  // namespace

std::vector<OperatorCase> ShapeCases() {
  std::vector<OperatorCase> cases;
  AddViews(cases);
  AddStretches(cases);
  AddPads(cases);
  AddCasts(cases);
  AddTransposes(cases);
  AddConcats(cases);
  AddSlices(cases);
  AddSliceChannels(cases);
  return cases;
}

}  // namespace bindery
