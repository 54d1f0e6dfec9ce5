// What metrics say of outputs and labels, by their graphs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/host_tensor.h"
#include "tests/executor/graph_runner.h"
#include "train/metrics/metrics.h"

namespace bindery {

using NamedTensors = std::vector<std::pair<std::string, HostTensor>>;

using OuterExtents = std::map<std::string, int64_t>;  // of arrays by name; others: the samples are along axis 0

// What a metric says of these, by its graph.
inline std::vector<double> PartialOf(const Metric& metric, const NamedTensors& outputs, const NamedTensors& labels,
                                     int64_t samples, const OuterExtents& outer = {}) {
  MetricArrays arrays{.samples = samples};
  HostTensorMap values;
  const auto add = [&](const NamedTensors& tensors, std::vector<MetricArray>* list) {
    for (const auto& [name, tensor] : tensors) {
      const bool batched = list == &arrays.labels || (tensor.shape().rank() > 0 && tensor.shape()[0] == samples);
      const auto known = outer.find(name);
      list->push_back(
          {name, Variable(name), tensor.dtype(), tensor.shape(), known != outer.end() ? known->second : batched});
      values[name] = tensor;
    }
  };
  add(outputs, &arrays.outputs);
  add(labels, &arrays.labels);
  const MetricGraph graph = metric.AsGraph(arrays);
  std::vector<Symbol> heads = {graph.partial};
  for (const MetricGraph::Check& check : graph.checks) heads.push_back(check.first);
  const Symbol all = Group(heads);
  std::erase_if(values, [names = all.ListArguments()](const auto& entry) {
    return std::ranges::find(names, entry.first) == names.end();
  });
  const std::vector<HostTensor> results = RunGraph(all, values, {.mode = Mode::kPredict}).outputs;
  for (size_t i = 0; i < graph.checks.size(); ++i) {
    const HostTensor& first = results[i + 1];
    if (first.At(0) >= 0) graph.checks[i].fail(static_cast<int64_t>(first.At(0)), first.At(1));
  }
  EXPECT_EQ(results[0].shape(), Shape{metric.partial_size()});
  std::vector<double> partial;
  for (int64_t i = 0; i < results[0].elements(); ++i) partial.push_back(results[0].At(i));
  return partial;
}

}  // namespace bindery
