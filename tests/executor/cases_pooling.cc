#include "symbol/ops/pooling.h"
#include "tests/executor/operator_cases.h"

namespace bindery {

std::vector<OperatorCase> PoolingCases() {
  std::vector<OperatorCase> cases;
  const auto add = [&](const std::string& name, const Shape& data, PoolingAttrs attrs) {
    for (PoolType type : {PoolType::kMax, PoolType::kAvg}) {
      attrs.type = type;
      cases.push_back({.name = name + (type == PoolType::kMax ? ", maximum" : ", average"),
                       .symbol = Pooling(Variable("x"), attrs, "pool"),
                       .inputs = {{"x", Distinct(data)}},
                       .batch_axes = {{"x", 0}},
                       .terms = static_cast<double>(data.CountFrom(2)),
                       .magnitude = 1});
    }
  };
  const auto both_divisors = [&](const std::string& name, const Shape& data, PoolingAttrs attrs) {
    add(name, data, attrs);
    attrs.count_include_pad = false;
    add(name + ", padding not counted", data, attrs);
  };
  add("halves", {2, 3, 4, 6}, {.kernel = {2, 2}, .stride = {2, 2}});
  add("halves, 16 channels", {1, 16, 4, 4}, {.kernel = {2, 2}, .stride = {2, 2}});
  add("halves, 20 channels", {2, 20, 4, 2}, {.kernel = {2, 2}, .stride = {2, 2}});
  add("overlapping", {2, 3, 5, 5}, {.kernel = {3, 3}, .stride = {2, 2}});
  add("stride 1", {1, 2, 4, 5}, {.kernel = {2, 3}});
  add("a border no window reaches", {1, 2, 5, 6}, {.kernel = {2, 2}, .stride = {3, 4}});
  both_divisors("padded", {1, 3, 5, 5}, {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}});
  both_divisors("unequal padding", {2, 2, 4, 5}, {.kernel = {2, 4}, .stride = {1, 2}, .pad = {1, 2}});
  both_divisors("full", {2, 3, 6, 7}, {.kernel = {3, 3}, .stride = {2, 2}, .convention = PoolConvention::kFull});
  both_divisors("full, padded", {1, 2, 6, 6},
                {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .convention = PoolConvention::kFull});
  both_divisors("full, wide stride", {1, 2, 7, 8},
                {.kernel = {2, 2}, .stride = {4, 3}, .pad = {1, 1}, .convention = PoolConvention::kFull});
  both_divisors("same", {2, 3, 5, 6}, {.kernel = {3, 2}, .stride = {2, 2}, .convention = PoolConvention::kSame});
  both_divisors("same, even kernel", {1, 2, 5, 4}, {.kernel = {4, 2}, .convention = PoolConvention::kSame});
  both_divisors("same, kernel below stride", {1, 2, 5, 7},
                {.kernel = {1, 2}, .stride = {2, 3}, .convention = PoolConvention::kSame});
  add("global", {2, 3, 4, 5}, {.global = true});
  add("global, 20 channels", {2, 20, 2, 3}, {.global = true});
  add("1 spatial axis", {2, 3, 8}, {.kernel = {3}, .stride = {2}});
  both_divisors("1 spatial axis, padded", {2, 3, 8}, {.kernel = {3}, .stride = {2}, .pad = {1}});
  add("1 spatial axis, global", {2, 3, 8}, {.global = true});
  both_divisors("3 spatial axes", {1, 2, 4, 3, 4}, {.kernel = {2, 3, 2}, .stride = {2, 1, 2}, .pad = {1, 1, 0}});
  add("3 spatial axes, global", {1, 2, 3, 2, 3}, {.global = true});
  cases[0].wrong_shapes = {{{"x", {2, 3, 4}}}, {{"x", {2, 3, 1, 6}}}, {{"x", {2, 3, 4, 6, 1}}}};

  // Ties go to the first.
  cases.push_back({.name = "equal maxima",
                   .symbol = Pooling(Variable("x"), {.kernel = {2, 2}, .stride = {2, 2}}, "pool"),
                   .inputs = {{"x", Values({1, 1, 2, 4}, {1, 1, 0, 2, 1, 1, 2, 2})}},
                   .gradient = [](const HostTensorMap& in, const std::vector<HostTensor>&) -> HostTensorMap {
                     const HostTensor& dy = in.at("pool_output_grad");
                     return {{"x", Values({1, 1, 2, 4}, {dy.At(0), 0, 0, dy.At(1), 0, 0, 0, 0})}};
                   }});
  return cases;
}

}  // namespace bindery
