#include "symbol/ops/pooling.h"

#include "tests/executor/cases/operator_cases.h"

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
  add("halves and a border, 20 channels", {2, 20, 5, 5}, {.kernel = {2, 2}, .stride = {2, 2}});
  both_divisors("halves of padded data, 20 channels", {2, 20, 5, 4},
                {.kernel = {2, 2}, .stride = {2, 2}, .pad = {1, 1}});
  add("thirds, 16 channels", {1, 16, 6, 3}, {.kernel = {3, 3}, .stride = {3, 3}});
  add("a border no window reaches", {1, 2, 5, 6}, {.kernel = {2, 2}, .stride = {3, 4}});
  both_divisors("padded", {1, 3, 5, 5}, {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}});
  both_divisors("unequal padding", {2, 2, 4, 5}, {.kernel = {2, 4}, .stride = {1, 2}, .pad = {1, 2}});
  both_divisors("rounded up", {2, 3, 6, 7}, {.kernel = {3, 3}, .stride = {2, 2}, .ceil_mode = true});
  both_divisors("rounded up, padded", {1, 2, 6, 6},
                {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .ceil_mode = true});
  both_divisors("rounded up, wide stride", {1, 2, 7, 8},
                {.kernel = {2, 2}, .stride = {4, 3}, .pad = {1, 1}, .ceil_mode = true});
  both_divisors("same", {2, 3, 5, 6}, {.kernel = {3, 2}, .stride = {2, 2}, .auto_pad = AutoPad::kSameUpper});
  both_divisors("same, even kernel", {1, 2, 5, 4}, {.kernel = {4, 2}, .auto_pad = AutoPad::kSameUpper});
  both_divisors("same, kernel below stride", {1, 2, 5, 7},
                {.kernel = {1, 2}, .stride = {2, 3}, .auto_pad = AutoPad::kSameUpper});
  both_divisors("same, more in front", {1, 16, 5, 4}, {.kernel = {4, 2}, .auto_pad = AutoPad::kSameLower});
  both_divisors("same, more in front, stride", {2, 3, 6, 7},
                {.kernel = {3, 4}, .stride = {2, 3}, .auto_pad = AutoPad::kSameLower});
  add("valid", {1, 2, 4, 5}, {.kernel = {2, 3}, .auto_pad = AutoPad::kValid});
  both_divisors("sides padded unequally", {2, 3, 5, 6}, {.kernel = {3, 3}, .stride = {2, 2}, .pad = {0, 2, 1, 0}});
  both_divisors("sides padded unequally, rounded up", {1, 16, 6, 6},
                {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 0, 0, 2}, .ceil_mode = true});
  add("dilated", {1, 3, 7, 8}, {.kernel = {3, 2}, .dilate = {2, 4}});
  both_divisors("dilated and padded", {1, 16, 6, 7},
                {.kernel = {2, 3}, .stride = {2, 1}, .pad = {2, 3}, .dilate = {3, 2}});
  both_divisors("dilated, sides padded unequally, rounded up", {2, 2, 7, 9},
                {.kernel = {2, 2}, .stride = {3, 3}, .pad = {1, 0, 2, 1}, .dilate = {3, 2}, .ceil_mode = true});
  both_divisors("dilated, same", {1, 2, 6, 5},
                {.kernel = {2, 3}, .stride = {2, 1}, .dilate = {3, 2}, .auto_pad = AutoPad::kSameLower});
  add("global", {2, 3, 4, 5}, {.global = true});
  add("global, 20 channels", {2, 20, 2, 3}, {.global = true});
  add("1 spatial axis", {2, 3, 8}, {.kernel = {3}, .stride = {2}});
  both_divisors("1 spatial axis, padded", {2, 3, 8}, {.kernel = {3}, .stride = {2}, .pad = {1}});
  add("1 spatial axis, global", {2, 3, 8}, {.global = true});
  both_divisors("3 spatial axes", {1, 2, 4, 3, 4}, {.kernel = {2, 3, 2}, .stride = {2, 1, 2}, .pad = {1, 1, 0}});
  both_divisors("3 spatial axes, dilated, sides padded unequally", {1, 2, 4, 5, 4},
                {.kernel = {2, 3, 2}, .stride = {2, 1, 2}, .pad = {1, 1, 0, 0, 2, 1}, .dilate = {1, 2, 3}});
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
