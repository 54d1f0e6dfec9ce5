#include "symbol/ops/ctc.h"

#include <cmath>

#include "tests/executor/cases/operator_cases.h"

namespace bindery {
namespace {

// -log of the sum over every path of `steps` classes whose labels, without repetitions and blanks, are `labels`.
double EveryPath(const HostTensor& x, int64_t n, int64_t steps, const std::vector<int64_t>& labels, int64_t blank) {
  const int64_t samples = x.shape()[1], classes = x.shape()[2];
  double sum = 0;
  int64_t paths = 1;
  for (int64_t t = 0; t < steps; ++t) paths *= classes;
  for (int64_t path = 0; path < paths; ++path) {
    double p = 1;
    std::vector<int64_t> found;
    int64_t before = blank, rest = path;
    for (int64_t t = 0; t < steps; ++t, rest /= classes) {
      const int64_t k = rest % classes, at = (t * samples + n) * classes;
      double all = 0;
      for (int64_t c = 0; c < classes; ++c) all += std::exp(x.At(at + c));
      p *= std::exp(x.At(at + k)) / all;
      if (k != blank && k != before) found.push_back(k);
      before = k;
    }
    if (found == labels) sum += p;
  }
  return -std::log(sum);
}

}  // namespace

std::vector<OperatorCase> CTCCases() {
  const Symbol x = Variable("x"), label = Variable("label"), steps = Variable("steps"), lengths = Variable("lengths");
  const HostTensor data = Uniform({5, 3, 4}, -2, 2);
  std::vector<OperatorCase> cases;
  // Samples are at axis 1 of x and at axis 0 of everything else.
  const auto add = [&](OperatorCase c) {
    for (const auto& [name, values] : c.inputs) c.batch_axes[name] = name == "x";
    c.terms = 20;
    c.tolerance = c.magnitude = 4;
    c.wrt = std::vector<std::string>{"x"};
    cases.push_back(std::move(c));
  };
  add({.name = "CTC",
       .symbol = CTCLoss(x, label, {}, "y"),
       .inputs = {{"x", data}, {"label", Values({3, 2}, {1, 3, 2, 2, 3, 0})}},
       .dtypes = {{"label", DType::kInt32}},
       .forward = [](const HostTensorMap& in) -> std::vector<HostTensor> {
         const HostTensor& x = in.at("x");
         return {
             Values({3}, {EveryPath(x, 0, 5, {1, 3}, 0), EveryPath(x, 1, 5, {2, 2}, 0), EveryPath(x, 2, 5, {3}, 0)})};
       },
       .wrong_shapes = {{{"x", {5, 3, 4}}, {"label", {2, 2}}}, {{"x", {5, 3}}}, {{"x", {5, 3, 0}}}}});
  const CTCLossAttrs attrs{.blank = -1, .use_data_lengths = true, .use_label_lengths = true};
  add({.name = "CTC of lengths, the last class blank",
       .symbol = Apply(CTCLossOp(), attrs, {x, label, steps, lengths}, "y"),
       .inputs = {{"x", data},
                  {"label", Values({3, 2}, {1, 0, 2, 2, 0, 0})},
                  {"steps", Values({3}, {4, 3, 2})},
                  {"lengths", Values({3}, {2, 2, 0})}},
       .dtypes = {{"label", DType::kInt64}, {"steps", DType::kInt64}, {"lengths", DType::kInt32}},
       .forward = [](const HostTensorMap& in) -> std::vector<HostTensor> {
         const HostTensor& x = in.at("x");
         return {
             Values({3}, {EveryPath(x, 0, 4, {1, 0}, 3), EveryPath(x, 1, 3, {2, 2}, 3), EveryPath(x, 2, 2, {}, 3)})};
       }});
  add({.name = "CTC of labels that no path gives",
       .symbol = CTCLoss(x, label, {.zero_infinity = true}, "y"),
       .inputs = {{"x", Uniform({2, 2, 3})}, {"label", Values({2, 2}, {1, 1, 1, 2})}},
       .dtypes = {{"label", DType::kInt32}},
       .forward = [](const HostTensorMap& in) -> std::vector<HostTensor> {
         return {Values({2}, {0, EveryPath(in.at("x"), 1, 2, {1, 2}, 0)})};
       }});
  return cases;
}

}  // namespace bindery
