#include "tests/executor/operators/unusual_values.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "symbol/gradient.h"

namespace bindery {

HostTensor WithOne(const Shape& shape, float value, int64_t place) {
  HostTensor tensor(DType::kFloat32, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.Set(i, static_cast<double>(i * 7 % 11) / 4 - 1.3);
  const int64_t sample = shape.rank() == 0 ? 1 : shape.CountFrom(1);
  for (int64_t n = 0; n < tensor.elements() / sample; ++n) tensor.Set(n * sample + place % sample, value);
  return tensor;
}

void ExpectSameUnusual(const Symbol& symbol, const HostTensorMap& inputs, Layout layout, int threads) {
  const RunResult fast = RunGraph(symbol, inputs, {.threads = threads, .layout = layout, .watch = false});
  const RunResult truth = RunGraph(symbol, inputs, {.policy = KernelPolicy::kReference, .watch = false});
  bool unfolds = false;
  for (const auto& [node, implementation] : fast.implementations) {
    EXPECT_NE(implementation, "reference") << node;
    // "dnnl gemm:jit", "dnnl x64:gemm:jit"
    unfolds = unfolds || (fast.operators.at(node).find("Convolution") != std::string::npos &&
                          implementation.find("gemm") != std::string::npos);
  }
  for (size_t o = 0; o < truth.outputs.size(); ++o) {
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; i < truth.outputs[o].elements(); ++i) {
      const double got = fast.outputs[o].At(i), wanted = truth.outputs[o].At(i);
      const bool same = std::isfinite(wanted) ? std::fabs(got - wanted) <= 1e-3 * (1 + std::fabs(wanted))
                                              : (std::isnan(wanted) ? std::isnan(got) : got == wanted);
      if (!same && !(unfolds && std::isnan(got)) && wrong++ == 0) first = i;
    }
    EXPECT_EQ(wrong, 0) << symbol.DebugString() << "output " << o << ", " << ToString(layout) << ", " << threads
                        << " threads; element " << first << ": " << fast.outputs[o].At(std::max<int64_t>(first, 0))
                        << " instead of " << truth.outputs[o].At(std::max<int64_t>(first, 0));
  }
}

void ExpectSameBackward(const Symbol& y, const HostTensorMap& inputs, const std::vector<std::string>& wrt,
                        std::vector<std::string> of, const std::vector<float>& unusual) {
  GivenTypes given;
  HostTensorMap values = inputs;
  for (const auto& [name, value] : inputs) {
    given.shapes[name] = value.shape();
    given.dtypes[name] = value.dtype();
  }
  const GradientResult gradient = Gradient(y, wrt, given);
  std::vector<Symbol> all = {y};
  all.insert(all.end(), gradient.gradients.begin(), gradient.gradients.end());
  if (of.empty()) of = wrt;
  const std::vector<HostTensor> outputs = RunGraph(y, inputs, {}).outputs;
  for (size_t head = 0; head < outputs.size(); ++head) {
    const std::string& dy = gradient.head_gradients[head];
    if (dy.empty()) continue;
    values[dy] = WithOne(outputs[head].shape(), 0.5f, 0);
    of.push_back(dy);
  }
  for (const std::string& name : of) {
    const HostTensor& usual = values.at(name);
    for (const float value : unusual) {
      for (const int64_t place : {int64_t{0}, usual.elements() / 2, usual.elements() - 1}) {
        HostTensorMap changed = values;
        changed.at(name).Set(place, value);
        for (const Layout layout : {Layout::kPlain, Layout::kChannelsLast, Layout::kBlocked8, Layout::kBlocked16}) {
          if (layout != Layout::kPlain && inputs.at("x").shape().rank() < 3) continue;
          SCOPED_TRACE(fmt::format("{} at {} of {} {}", value, place, name, usual.shape()));
          ExpectSameUnusual(Group(all), changed, layout, 2);
        }
      }
    }
  }
}

}  // namespace bindery
