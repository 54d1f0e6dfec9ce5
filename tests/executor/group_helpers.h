// Small nets and data for the tests of groups and executors.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/executor.h"
#include "symbol/ops.h"
#include "tests/message_of.h"

namespace bindery {

inline HostTensor RandomTensor(const Shape& shape, uint64_t seed, DType dtype = DType::kFloat32) {
  HostTensor tensor(DType::kFloat32, shape);
  PhiloxStream random(seed, "test data");
  for (float& v : tensor.data<float>()) v = random.Uniform(-1, 1);
  return tensor.Cast(dtype);
}

// data (N, features), label (N) of classes
inline Batch RandomBatch(int64_t samples, int64_t features, int64_t classes, uint64_t seed) {
  Batch batch{.data = {RandomTensor({samples, features}, seed)}, .label = {HostTensor(DType::kFloat32, {samples})}};
  PhiloxStream random(seed, "test labels");
  for (float& v : batch.label[0].data<float>()) v = static_cast<float>(random.Below(static_cast<uint64_t>(classes)));
  return batch;
}

inline Symbol SmallNet(int64_t classes = 3) {
  Symbol x = Tanh(FullyConnected(Variable("data"), {.num_hidden = 5}, "fc1"));
  return SoftmaxOutput(FullyConnected(x, {.num_hidden = classes}, "fc2"), {}, "softmax");
}

// The same random parameters in all; auxiliary means 0, variances 1.
inline void InitialiseEqually(const std::vector<ExecutorGroup*>& groups, uint64_t seed) {
  HostTensorMap args, aux;
  for (DataParallelExecutorGroup* stage : groups[0]->stages()) {
    for (const StoredParameter& p : stage->store().parameters()) {
      if (p.auxiliary) {
        aux[p.name] = HostTensor::Full(p.dtype, p.shape, p.name.ends_with("var") ? 1 : 0);
      } else {
        args[p.name] = RandomTensor(p.shape, StreamKey(seed, p.name).k0, p.dtype);
      }
    }
  }
  for (ExecutorGroup* group : groups) group->SetParams(args, aux);
}

// Those of InitialiseEqually.
inline void Initialise(Executor* executor, uint64_t seed) {
  HostTensorMap args, aux;
  for (const std::string& name : executor->param_names()) {
    const Tensor array = executor->ArgumentArray(name);
    args[name] = RandomTensor(array.shape(), StreamKey(seed, name).k0, array.dtype());
  }
  for (const std::string& name : executor->aux_names()) {
    const Tensor array = executor->AuxiliaryArray(name);
    aux[name] = HostTensor::Full(array.dtype(), array.shape(), name.ends_with("var") ? 1 : 0);
  }
  executor->SetParams(args, aux);
}

inline HostTensor SumOfGradients(const ExecutorGroup& group, const std::string& name) {
  HostTensor sum = group.GetGradient(name, 0);
  for (size_t d = 1; d < group.devices().size(); ++d) {
    const HostTensor part = group.GetGradient(name, static_cast<int>(d));
    for (int64_t i = 0; i < sum.elements(); ++i) sum.Set(i, sum.At(i) + part.At(i));
  }
  return sum;
}

}  // namespace bindery
