// What the blocks of pages take as given: what a page calls `net` or `train` is there without more. Names of all pages
// first, then those that a page uses otherwise, in its namespace. Nothing of it is defined, since no block runs.
#pragma once

#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindery/bindery.h"
#include "bindery/c_api.h"

namespace bindery {

extern const Symbol symbol, net, loss, scores;
extern const Model model;
extern const HostTensor images, labels;
extern DataIter &train, &test, &data;
extern Trainer& trainer;
extern const std::vector<Device> devices;
extern const GroupOptions options;
extern DataParallelExecutorGroup& group;
extern const std::shared_ptr<KVStore> kv;
extern const int64_t step, batch, n;

namespace page_coming_from {
extern const Symbol low, high;
extern const BatchPtr batch;
extern const BatchPtr both;
extern const HostTensor ones;
extern const std::vector<std::vector<Tensor>> drawn;
extern const int64_t samples;
extern const HostTensor value;
extern const std::vector<Tensor> weights;
struct Gradients {  // of a store, or on a tape
  operator std::span<const Tensor>() const;
  operator const std::vector<NDArray>&() const;
};
extern const Gradients gradients;
extern const std::vector<BucketBatch> batches;
extern const std::vector<std::pair<Values, Values>> pairs;
extern const double lr, batch_size;
extern NDArray w;
extern std::vector<NDArray> losses, xs, ys;
extern const std::vector<std::vector<NDArray>> params;
NDArray LeNet(const NDArray& x, const std::vector<NDArray>& params);
NDArray LossOf(const NDArray& scores, const NDArray& y);
void Print(const std::string& line);
extern const std::function<void(int, Device)> prepare;
}  // namespace page_coming_from

namespace page_data {
extern HostTensor rows;
}  // namespace page_data

namespace page_installing {
extern const char* const name;
extern const bindery_tensor* const input;
extern bindery_tensor* output;
void fail(const char* message);
}  // namespace page_installing

namespace page_modules {
extern const Values images, labels;
}  // namespace page_modules

namespace page_seeing {
extern const double loss;
extern const HostTensor image;
}  // namespace page_seeing

namespace page_sparse {
extern const Symbol words, table;
extern const Tensor numbers, rows;
}  // namespace page_sparse

namespace page_tape {
extern const NDArray images, labels;
}  // namespace page_tape

}  // namespace bindery
