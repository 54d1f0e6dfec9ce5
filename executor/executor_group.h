// ExecutorGroup: a symbol bound to replicas, each of which computes its share of every batch. A replica is one device
// (DataParallelExecutorGroup) or, where parts of the graph have devices of their own, several (PlacedExecutorGroup).
// What trains, measures and saves a model does not care which; MakeGroup makes what the options ask for.
//
// What the members do: executor/data_parallel_executor_group.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/device.h"
#include "base/host_tensor.h"
#include "engine/tensor.h"
#include "executor/batch.h"
#include "executor/group/metric.h"
#include "executor/group/options.h"
#include "executor/group/parameter_store.h"
#include "executor/metric.h"
#include "executor/sample_error.h"
#include "executor/step_counter.h"
#include "symbol/infer.h"
#include "symbol/symbol.h"

namespace bindery {

// A parameter as the devices hold it: flat storage, in the group's format, equal on all devices. Devices that share
// memory, as CPUs do, hold it once: their values are one tensor, each by its device's name (Tensor::On), so whoever
// writes one writes what all of them read, and whoever works on each value in turn takes EachOnce of them.
struct ReplicatedParam {
  std::string name;
  int index = 0;                      // in the order of param_names()
  std::vector<Tensor> values, grads;  // per replica; grads empty if its request is null
};

class ExecutorGroup {
 public:
  struct Watched {
    Device device;
    std::string name;
    HostTensor value;
    ValueType type = {};       // where its samples are (SampleView)
    int64_t first_sample = 0;  // of the batch: the first of the device's share
  };

  virtual ~ExecutorGroup() = default;

  // --- running ---
  virtual void Forward(const BatchPtr& batch, std::optional<Mode> mode = std::nullopt) = 0;
  virtual void Forward(const std::vector<BatchPtr>& per_device, std::optional<Mode> mode = std::nullopt) = 0;
  void Forward(Batch batch, std::optional<Mode> mode = std::nullopt) {
    Forward(std::make_shared<const Batch>(std::move(batch)), mode);
  }
  virtual void ForwardBackward(const BatchPtr& batch) = 0;
  virtual int64_t CheckBatch(const Batch& batch, Mode mode, bool values = true) const = 0;
  void Backward() { RunBackward({}); }
  void Backward(const std::vector<HostTensor>& head_gradients);
  void Backward(const std::map<std::string, HostTensor>& head_gradients);
  void Backward(const DeviceArrays& head_gradients);
  virtual void SetStep(const StepNumber& step) = 0;
  virtual void SetRates(const StepRates& rates) = 0;
  virtual void SetSeed(uint64_t seed) = 0;
  // Later batches are shared out by these (GroupOptions::workload); results of the last one are gone, unless that is how
  // it was. Throws Error where SplitBatch would, for another number of them than devices, and with placements, whose
  // parts are bound for their shares; nothing has changed then.
  virtual void SetWorkload(const std::vector<double>& workload);

  // --- results ---
  virtual std::vector<Tensor> Outputs(int begin = 0, int end = -1) const = 0;
  virtual std::vector<std::vector<Tensor>> OutputsPerDevice(int begin = 0, int end = -1) const = 0;
  virtual std::vector<Shape> OutputShapes() const = 0;
  virtual const ValueType& OutputType(int head) const = 0;  // of a replica's share
  virtual std::vector<Tensor> InputGradients() const = 0;
  virtual std::vector<std::vector<Tensor>> InputGradientsPerDevice() const = 0;

  // --- parameters ---
  virtual void SetParams(const HostTensorMap& args, const HostTensorMap& aux, const SetParamsOptions& options = {}) = 0;
  virtual void GetParams(HostTensorMap* args, HostTensorMap* aux, ReplicaMerge merge = ReplicaMerge::kFirst) const = 0;
  virtual HostTensor GetGradient(const std::string& name, int device) const = 0;
  virtual void ZeroGradients() = 0;
  virtual std::vector<ReplicatedParam> params() const = 0;

  // --- states ---
  virtual void SetStates(double value) = 0;
  virtual void SetStates(const DeviceArrays& states) = 0;
  void SetStates(const std::vector<HostTensor>& merged) { SetStates(OnHost(merged)); }
  virtual std::vector<std::vector<Tensor>> States() const = 0;

  // --- metrics and watching ---
  virtual void UpdateMetric(Metric* metric, const std::vector<HostTensor>& labels) const = 0;
  virtual void UpdateMetric(Metric* metric, const LabelLists& pre_sliced) const = 0;
  virtual void PushMetric(const Metric& metric, const std::shared_ptr<Measurement>& measurement, const VarPtr& done,
                          const Tensor& status = {}) const = 0;
  virtual void Watch(const std::string& pattern) = 0;
  virtual const std::string& watch() const = 0;
  virtual std::vector<Watched> WatchedValues() const = 0;

  // --- description ---
  virtual const Symbol& symbol() const = 0;
  virtual const GroupOptions& options() const = 0;
  const std::vector<Device>& devices() const { return options().devices; }  // of the replicas
  virtual int64_t batch_size() const = 0;
  virtual const std::vector<SampleRange>& slices() const = 0;  // by replica
  virtual const std::vector<std::string>& arg_names() const = 0;
  virtual const std::vector<std::string>& param_names() const = 0;
  virtual const std::vector<std::string>& aux_names() const = 0;
  virtual const std::vector<std::string>& output_names() const = 0;
  virtual GradReq grad_req(const std::string& argument) const = 0;
  virtual const std::shared_ptr<Engine>& engine() const = 0;
  virtual int threads_per_device() const = 0;
  // What it is made of: groups that run one behind the other, each with the parameters that are its own, replica by
  // replica. One of a single device each is made of itself.
  virtual std::vector<DataParallelExecutorGroup*> stages() = 0;

 protected:
  // `head_gradients`: one per output, or none at all.
  virtual void RunBackward(const DeviceArrays& head_gradients) = 0;
  DeviceArrays OnHost(const std::vector<HostTensor>& arrays) const;
};

// Throws what the constructors do.
std::unique_ptr<ExecutorGroup> MakeGroup(const Symbol& symbol, const GroupOptions& options);

}  // namespace bindery
