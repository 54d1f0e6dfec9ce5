// DataParallelExecutorGroup: one symbol bound to several devices. Each batch is split among them by workload, forward
// and backward run on every device at once, outputs and input gradients are merged again, and every device has all
// parameters: for itself, or, as CPUs do, with others that share its memory (docs/group.md). What is computed does not
// depend on the number of devices, up to rounding and but for batch-norm, which normalises by each device's share
// unless it is told to `sync` (docs/step.md).
//
//   DataParallelExecutorGroup group(net, {.devices = {Cpu(0), Cpu(1)},
//                                         .data = {{"data", {64, 1, 28, 28}}}, .labels = {{"softmax_label", {64}}}});
//   group.SetParams(params, aux);
//   group.Forward(batch);  group.Backward();          // asynchronous: reading waits
//   HostTensor p = group.Outputs()[0].ToHost();       // (64, 10), merged along the batch axis
//
// Batches of any size >= 1 may follow each other: a program for new shapes is made on first sight and kept (no need to
// call Reshape). A device whose share is empty sits out: its gradients are zero.
//
// Thread safety: one thread at a time. Results are computed by the devices' workers; an error there is rethrown by
// whatever reads the results (engine/engine.h).
//
// Made of a Feeder (what becomes of a batch before it runs), Bindings (the programs for its shapes) and a Merger (whole
// values and the devices' shares of them), in executor/group.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/device.h"
#include "base/host_tensor.h"
#include "engine/row_tensors.h"
#include "engine/tensor.h"
#include "executor/batch.h"
#include "executor/executor_group.h"
#include "executor/group/bindings.h"
#include "executor/group/feeder.h"
#include "executor/group/merger.h"
#include "executor/group/options.h"
#include "executor/metric.h"
#include "symbol/symbol.h"

namespace bindery {

class DataParallelExecutorGroup final : public ExecutorGroup {
 public:
  // Binds for the shapes given. Throws Error, ShapeError, ModelError; nothing is left behind then.
  DataParallelExecutorGroup(const Symbol& symbol, const GroupOptions& options);
  ~DataParallelExecutorGroup() override;  // waits for what it pushed, for devices that hang, too (engine/engine.h)
  // What the constructor would bind for each device with samples: only compiled, nothing is allocated on a device.
  static std::vector<DevicePlan> MakePlans(const Symbol& symbol, const GroupOptions& options) {
    return Bindings::MakePlans(GroupSpec(symbol, options));
  }
  DataParallelExecutorGroup(const DataParallelExecutorGroup&) = delete;
  DataParallelExecutorGroup& operator=(const DataParallelExecutorGroup&) = delete;

  // --- running ---
  // Mode: training if bound for it, unless said otherwise. Labels may be absent in prediction, and are ignored by a
  // group bound without. Padding rows are left out. Throws DataError, ShapeError for batches that do not fit; whatever
  // it throws, parameters are as they were and later batches run. Once it has begun to bind, earlier results are gone.
  // Arrays may lie on devices, another group's outputs say: `b.Forward({.device_data = a.Outputs()})`.
  void Forward(const BatchPtr& batch, std::optional<Mode> mode = std::nullopt) override;
  using ExecutorGroup::Forward;
  // Forward in training mode and Backward, at once: what a step consists of. Throws what either does.
  void ForwardBackward(const BatchPtr& batch) override;
  // The samples that Forward would compute, of a batch without batch axis 1. Throws what Forward does for a batch that
  // does not fit; without a look at its `values` if these are known to be good.
  int64_t CheckBatch(const Batch& batch, Mode mode, bool values = true) const override;
  // One batch per device, in place of splitting: at least one sample each, and labels for all or for none. nullptr: the
  // device sits out, but not all of them.
  void Forward(const std::vector<BatchPtr>& per_device, std::optional<Mode> mode = std::nullopt) override;
  // Once after a training forward, whose values it uses up: gradients that add up (GradReq::kAdd) do so over pairs of
  // Forward and Backward. Heads that are not loss heads need a gradient of the whole batch's output shape, by position
  // or by output name; those of loss heads are ignored. A head without batch axis passes on what its annotation `merge`
  // implies: all of it (sum), each device's share (mean), all to the first device with samples (first).
  // Also those that lie on devices, as another group's InputGradients() gives them.
  using ExecutorGroup::Backward;
  // Throws what Backward would for the gradient of one head, null: not given.
  void CheckHeadGradient(size_t head, const std::vector<Tensor>* given) const {
    merger_.CheckHeadGradient(*current_, head, given);
  }
  void SetStep(const StepNumber& step) override { feeder_.SetStep(step); }
  // What updates on the devices read in their step blocks: these rates, from now on until the next forward, which
  // brings those of SetStep. Nothing is to be done where it has brought these.
  void SetRates(const StepRates& rates) override;
  // The parts of a step that commit the auxiliary states, unless a gate carries an error, or what a device says of the
  // step (ParameterStore).
  void AppendPublish(const std::vector<VarPtr>& gates, StepParts* parts,
                     std::span<const std::vector<Tensor>> statuses = {}) const {
    store().AppendPublish(bindings_.updated_blocks(), gates, parts, statuses);
  }
  void SetSeed(uint64_t seed) override { spec_.options.seed = seed; }
  void SetWorkload(const std::vector<double>& workload) override;
  // Binds for other shapes, of the same names, dtypes and layouts; parameters stay. The same happens by itself when a
  // batch of another shape comes.
  void Reshape(const std::vector<DataDesc>& data, const std::vector<DataDesc>& labels);

  // --- results of the last Forward / Backward ---
  // Heads begin..end-1 (-1: all), each merged along its batch axis on device 0; a head without batch axis by its
  // annotation `merge`. Tensors of their own: later steps do not change them.
  std::vector<Tensor> Outputs(int begin = 0, int end = -1) const override;
  // [head][device with samples]
  std::vector<std::vector<Tensor>> OutputsPerDevice(int begin = 0, int end = -1) const override;
  std::vector<Shape> OutputShapes() const override;  // of a whole batch; known before running
  const ValueType& OutputType(int head) const override { return current_->OutputType(head); }
  // In the order of the data descriptions. Throws Error unless bound with inputs_need_grad (or a request for that
  // input). With GradReq::kAdd they add up over batches of one shape and split, and start from zero with another.
  std::vector<Tensor> InputGradients() const override;
  std::vector<std::vector<Tensor>> InputGradientsPerDevice() const override;  // [data][device with samples]

  // --- parameters ---
  // Unknown and missing names are errors (Error), unless allowed; missing is reported first. Casts to the bound dtype.
  void SetParams(const HostTensorMap& args, const HostTensorMap& aux, const SetParamsOptions& options = {}) override;
  // Plain, from one replica: all are equal, or that is checked (ReplicaMerge::kCheck: Error for the first difference).
  // Devices that share memory have one replica together, and what is written by one of their tensors is all of theirs.
  // Entries that are there already give the dtype.
  void GetParams(HostTensorMap* args, HostTensorMap* aux, ReplicaMerge merge = ReplicaMerge::kFirst) const override;
  // Plain; one device's share. Of a parameter, or of an input after Backward (data, label or state, if one is asked
  // for).
  HostTensor GetGradient(const std::string& name, int device) const override;
  // Of a table whose gradient is kept by rows, per device with samples, where Backward left them: until it runs again.
  // Throws Error for others.
  std::vector<RowTensors> RowGradients(const std::string& name) const;
  void ZeroGradients() override;  // all of them, inputs' too; for GradReq::kAdd. Rows then are numbered -1
  std::vector<ReplicatedParam> params() const override;
  // What other groups can predict with at the same time (GroupOptions::weights). Waits for the values; from then on
  // nobody may change them.
  std::shared_ptr<const GroupWeights> Weights() const;
  ParameterStore& store() { return *bindings_.store(); }
  const ParameterStore& store() const { return *bindings_.store(); }

  // --- states ---
  // Where what one is set from has failed, every run fails until they are set again. A value is that of all samples;
  // arrays are those of the last batch's, and any others stay. Batches of other sizes and other splits see what was set
  // for the same samples, by their number in the batch, and without a batch axis what the first device has.
  void SetStates(double value) override;
  void SetStates(const DeviceArrays& states) override;
  void CheckStates(const DeviceArrays& states) const;        // throws what SetStates would
  using ExecutorGroup::SetStates;                            // whole ones on the host are split like data
  std::vector<std::vector<Tensor>> States() const override;  // [state][device with samples]

  // --- metrics and watching ---
  // Labels of the last batch, whole (split like data) or, pre-sliced, one list per device with samples. Waits for the
  // metric. Programs for the last few metrics are kept with the binding.
  void UpdateMetric(Metric* metric, const std::vector<HostTensor>& labels) const override;
  void UpdateMetric(Metric* metric, const LabelLists& pre_sliced) const override;
  // The same without waiting, for a metric that is a graph, with the labels that the last batch brought to the devices:
  // `measurement` gets its partials when `done` is written, which carries the metric's error; `status`, where there is
  // one, is the only device's, as in GroupMetric::Push. Allocates nothing once it is warm. Throws at once where outputs
  // and labels do not fit the metric, DataError where the last batch had no labels, though there should be some.
  void PushMetric(const Metric& metric, const std::shared_ptr<Measurement>& measurement, const VarPtr& done,
                  const Tensor& status = {}) const override;
  // Values whose names match the regular expression are kept by the next steps ("" stops). Another program does that;
  // the normal one is not slowed down.
  void Watch(const std::string& pattern) override;
  const std::string& watch() const override { return watch_; }
  std::vector<Watched> WatchedValues() const override;  // of the last step; waits

  // --- description ---
  const Symbol& symbol() const override { return spec_.symbol; }
  const GroupOptions& options() const override { return spec_.options; }
  int64_t batch_size() const override { return current_->samples(); }
  const std::vector<SampleRange>& slices() const override { return current_->ranges; }
  const std::vector<std::string>& arg_names() const override { return spec_.arg_names; }
  const std::vector<std::string>& param_names() const override { return spec_.param_names; }
  const std::vector<std::string>& aux_names() const override { return spec_.signature.auxiliary; }
  const std::vector<std::string>& output_names() const override { return spec_.signature.heads; }
  GradReq grad_req(const std::string& argument) const override;
  // Of the current binding; device: index among those with samples. What devices share counts with the first of them.
  MemoryReport memory(int device = 0) const;
  const Plan& plan(int device = 0) const;
  const ProgramCache& programs() const { return *bindings_.programs(); }
  const std::vector<std::unique_ptr<DeviceExecutor>>& executors() const { return bindings_.executors(); }
  const GroupStep& step() const { return *current_->step; }
  const std::shared_ptr<Engine>& engine() const override { return bindings_.engine(); }
  int threads_per_device() const override { return spec_.threads; }
  std::vector<DataParallelExecutorGroup*> stages() override { return {this}; }

 private:
  void Bind(const std::vector<Shape>& shapes, Mode mode, const std::vector<SampleRange>* ranges = nullptr);
  void CarryStates(const Binding& next);  // from the current one
  // Runs forward on the current binding: one batch, or one per device.
  void Run(std::span<const BatchPtr> batches, Mode mode, bool with_backward);
  void RunBackward(const DeviceArrays& head_gradients) override;
  const Binding& Ran(const char* what) const;          // the current one; throws Error unless forward has run
  const Binding& RanBackward(const char* what) const;  // the same of backward
  GroupMetric& MetricOf(const Metric& metric, const LabelLists* lists) const;  // of the current binding

  GroupSpec spec_;
  Bindings bindings_;
  Feeder feeder_;
  Merger merger_;
  std::shared_ptr<Binding> current_;
  int splits_ = 0;                                   // workloads that were set
  bool ran_forward_ = false, ran_backward_ = false;  // of the current binding, since it became that
  bool had_labels_ = false;                          // the last batch that was run
  std::vector<Tensor> rest_;                         // of states: rows of samples behind the batch's; empty: none
  double unseen_states_ = 0;                         // of samples behind those
  std::string watch_;
  StepRange block_;                          // writes the step blocks alone; of no parts until it is needed
  mutable std::vector<Shape> batch_shapes_;  // of the last batch; kept so that a step allocates nothing
  // The shapes and ranges of the batches whose gradients have been added up in inputs' gradients.
  std::pair<std::vector<Shape>, std::vector<SampleRange>> added_up_;
};

}  // namespace bindery
