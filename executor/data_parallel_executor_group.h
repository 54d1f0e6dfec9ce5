// DataParallelExecutorGroup: one symbol bound to several devices. Each batch is split among them by workload, forward
// and backward run on every device at once, outputs and input gradients are merged again, and every device holds all
// parameters. What is computed does not depend on the number of devices, up to rounding and but for batch-norm, which
// normalises by each device's share unless it is told to `sync` (docs/step.md).
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
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/device.h"
#include "base/host_tensor.h"
#include "engine/payload_pool.h"
#include "engine/tensor.h"
#include "executor/batch.h"
#include "executor/group/metric.h"
#include "executor/group/program_cache.h"
#include "executor/group/replica.h"
#include "executor/group/split_batch.h"
#include "executor/group/step.h"
#include "executor/metric.h"
#include "symbol/symbol.h"

namespace bindery {

// One value for all parameters; or one per argument, in the order of ListArguments, verbatim; or single ones by name on
// top of the default (write for parameters).
using GradRequest = std::variant<GradReq, std::vector<GradReq>, std::map<std::string, GradReq>>;

class DataParallelExecutorGroup;

struct GroupOptions {
  std::vector<Device> devices = {Cpu(0)};  // one may appear twice: two replicas share its worker
  std::vector<double> workload = {};       // only ratios matter; empty: equal
  std::vector<DataDesc> data = {};         // shapes of a whole batch; at least one
  std::vector<DataDesc> labels = {};       // empty: label arguments are bound as zeros, for prediction only
  std::vector<DataDesc> states = {};       // arguments that are neither data, label nor parameter: zero until set
  bool for_training = true;
  bool inputs_need_grad = false;
  // Get no gradient; a normalisation layer all of whose parameters are fixed keeps its statistics.
  std::vector<std::string> fixed_params = {};
  GradRequest grad_req = GradReq::kWrite;
  // Shares parameters, gradients, auxiliary states and working memory with it (same devices and engine). Only read by
  // the constructor.
  DataParallelExecutorGroup* shared_group = nullptr;
  std::shared_ptr<Engine> engine = nullptr;  // default: the shared group's, else DefaultEngine()
  int threads_per_device = 0;                // of CPUs; 0: the cores this process may use, shared out evenly
  uint64_t seed = 0;                         // of random operators
  CompileSwitches switches = {};
  // Host memory for programs of shapes and modes met before; those beyond it are made again when they are met again.
  int64_t program_bytes = ProgramCache::kBytes;
};

// A parameter as the devices hold it: flat storage, in the group's format, equal on all devices.
struct ReplicatedParam {
  std::string name;
  int index = 0;                      // in the order of param_names()
  std::vector<Tensor> values, grads;  // per device; grads empty if its request is null
};

struct SetParamsOptions {
  bool allow_missing = false, allow_extra = false;
};

// What random numbers and divisors depend on, besides the batch. Set by a trainer; otherwise the step counts by itself.
struct StepNumber {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  int64_t batch_size = 0;  // samples of the whole step; 0: of this batch
  // Auxiliary states are not committed with the forward that moves them; micro-batches after the first see them moved.
  // Whoever makes the step commits it (AppendPublish).
  bool tentative = false;
};

class DataParallelExecutorGroup {
 public:
  // Binds for the shapes given. Throws Error, ShapeError, ModelError; nothing is left behind then.
  DataParallelExecutorGroup(const Symbol& symbol, const GroupOptions& options);
  ~DataParallelExecutorGroup();
  // What the constructor would bind for each device with samples: only compiled, nothing is allocated on a device.
  struct DevicePlan {
    Device device;
    SampleRange samples;
    Plan plan;
  };
  static std::vector<DevicePlan> MakePlans(const Symbol& symbol, const GroupOptions& options);
  DataParallelExecutorGroup(const DataParallelExecutorGroup&) = delete;
  DataParallelExecutorGroup& operator=(const DataParallelExecutorGroup&) = delete;

  // --- running ---
  // Mode: training if bound for it, unless said otherwise. Labels may be absent in prediction, and are ignored by a
  // group bound without. Padding rows are left out. Throws DataError, ShapeError for batches that do not fit; whatever
  // it throws, parameters are as they were and later batches run. Once it has begun to bind, earlier results are gone.
  void Forward(const BatchPtr& batch, std::optional<Mode> mode = std::nullopt);
  void Forward(Batch batch, std::optional<Mode> mode = std::nullopt);
  // Forward in training mode and Backward, at once: what a step consists of. Throws what either does.
  void ForwardBackward(const BatchPtr& batch);
  // The samples that Forward would compute, of a batch without batch axis 1. Throws what Forward does for a batch that
  // does not fit.
  int64_t CheckBatch(const Batch& batch, Mode mode) const;
  // One batch per device, in place of splitting: at least one sample each, and labels for all or for none.
  void Forward(const std::vector<BatchPtr>& per_device, std::optional<Mode> mode = std::nullopt);
  // Once after a training forward, whose values it uses up: gradients that add up (GradReq::kAdd) do so over pairs of
  // Forward and Backward. Heads that are not loss heads need a gradient of the whole batch's output shape, by position
  // or by output name; those of loss heads are ignored. A head without batch axis passes on what its annotation `merge`
  // implies: all of it (sum), each device's share (mean), all to the first device with samples (first).
  void Backward() { RunBackward({}); }
  void Backward(const std::vector<HostTensor>& head_gradients);
  void Backward(const std::map<std::string, HostTensor>& head_gradients);
  void SetStep(const StepNumber& step);
  // The parts of a step that commit the auxiliary states, unless a gate carries an error.
  void AppendPublish(const std::vector<VarPtr>& gates, StepParts* parts) const {
    store_->AppendPublish(updated_blocks_, gates, parts);
  }
  void SetSeed(uint64_t seed) { options_.seed = seed; }
  // Binds for other shapes, of the same names, dtypes and layouts; parameters stay. The same happens by itself when a
  // batch of another shape comes.
  void Reshape(const std::vector<DataDesc>& data, const std::vector<DataDesc>& labels);

  // --- results of the last Forward / Backward ---
  // Heads begin..end-1 (-1: all), each merged along its batch axis on device 0; a head without batch axis by its
  // annotation `merge`. Tensors of their own: later steps do not change them.
  std::vector<Tensor> Outputs(int begin = 0, int end = -1) const;
  std::vector<std::vector<Tensor>> OutputsPerDevice(int begin = 0, int end = -1) const;  // [head][device with samples]
  std::vector<Shape> OutputShapes() const;  // of a whole batch; known before running
  // In the order of the data descriptions. Throws Error unless bound with inputs_need_grad (or a request for that
  // input). With GradReq::kAdd they add up over batches of one shape and split, and start from zero with another.
  std::vector<Tensor> InputGradients() const;
  std::vector<std::vector<Tensor>> InputGradientsPerDevice() const;  // [data][device with samples]

  // --- parameters ---
  // Unknown and missing names are errors (Error), unless allowed; missing is reported first. Casts to the bound dtype.
  void SetParams(const HostTensorMap& args, const HostTensorMap& aux, const SetParamsOptions& options = {});
  // Plain, from one replica (all are equal). Entries that are there already give the dtype.
  void GetParams(HostTensorMap* args, HostTensorMap* aux) const;
  // Plain; one device's share. Of a parameter, or of an input after Backward (data, label or state, if one is asked
  // for).
  HostTensor GetGradient(const std::string& name, int device) const;
  void ZeroGradients();  // all of them, inputs' too; for GradReq::kAdd
  std::vector<ReplicatedParam> params() const;
  ParameterStore& store() { return *store_; }
  const ParameterStore& store() const { return *store_; }

  // --- states ---
  void SetStates(double value);
  void SetStates(const std::vector<HostTensor>& merged);               // split like data
  void SetStates(const std::vector<std::vector<Tensor>>& per_device);  // [state][device with samples]
  std::vector<std::vector<Tensor>> States() const;

  // --- metrics and watching ---
  // Labels of the last batch, whole (split like data) or, pre-sliced, one list per device with samples. Waits for the
  // outputs.
  void UpdateMetric(Metric* metric, const std::vector<HostTensor>& labels) const;
  void UpdateMetric(Metric* metric, const std::vector<std::vector<HostTensor>>& pre_sliced) const;
  // The same without waiting, for the last training step: `measurement` gets its partials when `done` is written, which
  // carries the metric's error. It must live until then. Allocates nothing once it is warm, unless labels are
  // batched along another axis than 0 and have to be cut.
  void PushMetric(const std::shared_ptr<Measurement>& measurement, const VarPtr& done) const;
  // Values whose names match the regular expression are kept by the next steps ("" stops). Another program does that;
  // the normal one is not slowed down.
  void Watch(const std::string& pattern);
  const std::string& watch() const { return watch_; }
  struct Watched {
    Device device;
    std::string name;
    HostTensor value;
  };
  std::vector<Watched> WatchedValues() const;  // of the last step; waits

  // --- description ---
  const Symbol& symbol() const { return symbol_; }
  const GroupOptions& options() const { return options_; }
  const std::vector<Device>& devices() const { return options_.devices; }
  int64_t batch_size() const { return current_->samples; }
  const std::vector<SampleRange>& slices() const { return current_->ranges; }
  const std::vector<std::string>& arg_names() const { return arg_names_; }
  const std::vector<std::string>& param_names() const { return param_names_; }
  const std::vector<std::string>& aux_names() const { return aux_names_; }
  const std::vector<std::string>& output_names() const { return output_names_; }
  GradReq grad_req(const std::string& argument) const;
  MemoryReport memory(int device = 0) const;  // of the current binding
  const Plan& plan(int device = 0) const;     // of the current binding; device: index among those with samples
  const ProgramCache& programs() const { return programs_; }
  const std::vector<std::unique_ptr<Replica>>& replicas() const { return replicas_; }
  const GroupStep& step() const { return *current_->step; }
  const std::shared_ptr<Engine>& engine() const { return engine_; }
  int threads_per_device() const { return threads_; }

 private:
  // The group bound for one set of shapes.
  struct Binding {
    Mode mode = Mode::kPredict;
    std::string watch;
    std::vector<Shape> shapes = {};        // data, then labels
    std::vector<SampleRange> ranges = {};  // per device
    bool cut_beforehand = false;           // ranges as the caller cut them, not by workload
    int64_t samples = 0;
    std::unique_ptr<GroupStep> step = nullptr;
    std::unique_ptr<GroupMetric> metric = nullptr;  // made when it is first measured
    int addresses = 0;                              // sum of the replicas' addresses_version() when bound
  };

  struct Unbound {};
  DataParallelExecutorGroup(const Symbol& symbol, const GroupOptions& options, Unbound);
  void CheckOptions();
  void ResolveGradRequests();
  void ReadGradRequests();
  const DataDesc& InputDesc(size_t i) const;  // data, then labels
  std::vector<Shape> DescribedShapes() const;
  // The extent of the batch axes; no value if nothing is batched. Throws ShapeError if they differ.
  std::optional<int64_t> SamplesOf(const std::vector<Shape>& shapes) const;
  std::vector<SampleRange> Split(std::optional<int64_t> samples) const;  // by workload
  // The shapes that a batch is computed in: its own, without padding rows. Throws DataError unless it can run in
  // `mode`.
  void ShapesOf(const Batch& batch, Mode mode, std::vector<Shape>* shapes) const;
  // Finds or makes the binding and makes it the current one, of which nothing has run yet; `ranges` if not the usual
  // split. What throws leaves the current one in place.
  Binding* Bind(const std::vector<Shape>& shapes, Mode mode, const std::vector<SampleRange>* ranges = nullptr);
  std::unique_ptr<Binding> MakeBinding(const std::vector<Shape>& shapes, Mode mode,
                                       const std::vector<SampleRange>& ranges);
  // Compiles for a share of a batch of `samples`. Throws unless its outputs can be merged and its parameters are those
  // of the whole batch.
  std::shared_ptr<const Program> CompileShare(const std::vector<Shape>& shapes, Mode mode, int64_t samples,
                                              const CompileOptions& options) const;
  CompileOptions OptionsFor(DeviceKind device, const std::vector<Shape>& shapes, Mode mode, int64_t share,
                            int64_t devices) const;  // that have a share
  int AddressesVersion() const;
  void CheckMergeable(const Plan& plan, const Graph& graph, const NodeTypes& types) const;
  // Loads `batches[d]` (one for all if there is only one) and runs forward.
  void Run(std::span<const BatchPtr> batches, Mode mode, bool with_backward);
  // Per head, nullptr: none given; or empty: none at all.
  void RunBackward(std::span<const HostTensor* const> head_gradients);
  void PushHeadGradient(int head, const HostTensor& gradient);
  Tensor Merge(std::vector<Tensor> parts, ValueType type, const std::string& rule) const;
  int CheckHeads(int begin, int end) const;      // the resolved end
  const ValueType& TypeOf(int head) const;       // on the first device
  const GroupStep& Ran(const char* what) const;  // throws Error unless forward has run
  void Measure(Metric* metric, const std::shared_ptr<Measurement>& measurement) const;
  GroupMetric& MetricOf(const Measurement& measurement) const;  // of the current binding, for these labels

  Symbol symbol_;
  GroupOptions options_;
  std::shared_ptr<Engine> engine_;
  int threads_ = 1;
  std::vector<std::string> arg_names_, param_names_, aux_names_, output_names_;
  std::set<std::string> unbound_labels_;  // arguments of a group bound without labels
  std::map<std::string, GradReq> grad_req_;
  std::vector<std::string> merge_rules_;  // per head: "", "sum", "mean", "first"
  std::shared_ptr<ParameterStore> store_;
  std::vector<int> updated_blocks_;  // of the store, by training
  std::vector<std::shared_ptr<Arena>> arenas_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  ProgramCache programs_;
  std::list<std::unique_ptr<Binding>> bindings_;  // most recently used first
  Binding* current_ = nullptr;
  bool ran_forward_ = false, ran_backward_ = false;  // of the current binding, since it became that
  std::string watch_;
  std::optional<StepNumber> step_;
  PayloadPool<StepInput> step_inputs_;
  std::vector<Shape> batch_shapes_;  // of the last batch; kept so that a step allocates nothing
  uint64_t steps_ = 0;               // training forwards so far, where nobody sets the step
  uint64_t predictions_ = 0;         // since the last step
  bool inputs_add_up_ = false;       // some input's gradient is asked for with kAdd
  // The shapes and ranges of the batches whose gradients have been added up there.
  std::pair<std::vector<Shape>, std::vector<SampleRange>> added_up_;
};

}  // namespace bindery
