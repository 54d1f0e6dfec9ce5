// Trainings of nets with tables, whose gradients may be kept by rows: words in, five numbers out.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "symbol/ops.h"
#include "tests/host_tensors.h"
#include "train/updater/updater.h"

namespace bindery {

inline constexpr int64_t kRows = 50, kWidth = 6, kBatch = 9, kWords = 4;

inline HostTensor Waves(const Shape& shape, double pace) {
  return Filled(shape, [=](int64_t i) { return std::sin(pace * static_cast<double>(i + 1)); });
}

// word(i) at position i.
inline HostTensor WordsOf(const Shape& shape, const std::function<int64_t(int64_t)>& word) {
  return Filled(shape, word, DType::kInt32);
}
// Words of each sample: many are the same, in one sample and in several, on one device and on all.
inline HostTensor Words(int step, const Shape& shape = {kBatch, kWords}) {
  return WordsOf(shape, [&](int64_t i) { return (i * i + 3 * step * i + step) % 17; });
}
inline HostTensor Label(int step, int64_t samples = kBatch) { return Waves({samples, 5}, 0.1 * (step + 1)); }

inline BatchPtr MakeBatch(const HostTensor& words, const HostTensor& label) {
  return std::make_shared<const Batch>(Batch{.data = {words}, .label = {label}, .samples = words.shape()[0]});
}

// (batch, ...) -> the head.
inline Symbol Head(const Symbol& x) {
  return LinearRegressionOutput(FullyConnected(x, {.num_hidden = 5}, "fc"), Variable("label"), {}, "out");
}
// The rows of a sample's words, added up: (batch, kWidth), for any number of words.
inline Symbol Summed(bool sparse, EmbeddingAttrs attrs = {}, const Symbol& words = Variable("data")) {
  attrs.input_dim = kRows;
  attrs.output_dim = kWidth;
  attrs.sparse_grad = sparse;
  return Sum(Embedding(words, Variable("table_weight"), attrs, "embed"), {.axes = {1}});
}

using Net = std::function<Symbol(bool sparse)>;

struct Way {
  std::vector<Device> devices = {Cpu(0)};
  std::vector<double> workload = {};
  std::string optimizer = "sgd(lr=0.5)";
  int threads = 1;
  std::vector<std::string> fixed = {};
  int64_t words = kWords;
  DataParallelExecutorGroup* shared = nullptr;
};

class Training {
 public:
  // Every parameter begins as waves, in the order of their names, unless it is shared.
  Training(const Net& net, bool sparse, const Way& way = {})
      : group_(net(sparse), {.devices = way.devices,
                             .workload = way.workload,
                             .data = {{.name = "data", .shape = {kBatch, way.words}, .dtype = DType::kInt32}},
                             .labels = {{.name = "label", .shape = {kBatch, 5}}},
                             .sparse_gradients = sparse,
                             .fixed_params = way.fixed,
                             .shared_group = way.shared,
                             .threads_per_device = way.threads}) {
    HostTensorMap params = Params();
    double pace = 0.2;
    for (auto& [name, value] : params) value = Waves(value.shape(), pace += 0.5);
    if (!way.shared) group_.SetParams(params, {});
    updater_ = std::make_unique<Updater>(
        &group_, UpdaterOptions{.optimizer = std::shared_ptr<const Optimizer>(MakeOptimizer(way.optimizer))});
  }
  void Step(const BatchPtr& batch) {
    updater_->Update(batch);
    updater_->WaitFor(updater_->step());
  }
  void Steps(int first, int end) {
    for (int step = first; step < end; ++step) Step(MakeBatch(Words(step), Label(step)));
  }
  void ForwardBackward(int step) { group_.ForwardBackward(MakeBatch(Words(step), Label(step))); }
  HostTensorMap Params() const {
    HostTensorMap params;
    group_.GetParams(&params, nullptr);
    return params;
  }
  std::vector<HostTensor> Gradients(const std::string& table = "table_weight") const {  // of each device
    std::vector<HostTensor> gradients;
    for (size_t d = 0; d < group_.devices().size(); ++d) {
      gradients.push_back(group_.GetGradient(table, static_cast<int>(d)));
    }
    return gradients;
  }
  const StoredParameter& Stored(const std::string& table = "table_weight") const { return *group_.store().Find(table); }
  bool by_rows(const std::string& table = "table_weight") const {
    return group_.store().Rows(Stored(table), 0) != nullptr;
  }

  DataParallelExecutorGroup group_;
  std::unique_ptr<Updater> updater_;
};

}  // namespace bindery
