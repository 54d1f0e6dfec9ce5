// PlacedExecutorGroup: a symbol parts of which lie on devices of their own in each replica. Nodes annotated with
// ctx_group = "stage1" are computed on the device that `placements` gives "stage1", and what belongs to them lies there:
// parameters, their gradients, running statistics.
//
//   Symbol x = Variable("data");
//   { AttrScope stage({{"ctx_group", "stage1"}});  x = Tanh(FullyConnected(x, {.num_hidden = 512}, "fc1")); }
//   { AttrScope stage({{"ctx_group", "stage2"}});  x = SoftmaxOutput(FullyConnected(x, {.num_hidden = 10}, "fc2")); }
//   PlacedExecutorGroup group(x, {.devices = {Cpu(0), Cpu(2)},  // two replicas, of two devices each
//                                 .placements = {{"stage1", {Cpu(0), Cpu(2)}}, {"stage2", {Cpu(1), Cpu(3)}}}, ...});
//
// The symbol is cut into stages (symbol/stages.h), and each is a DataParallelExecutorGroup on its placement's devices,
// replica by replica; what has no placement is on `devices`. What a stage computes for later ones goes to these, from
// device to device, and gradients come back, all by operations of the engine: nothing waits for the host. The results
// are those of one device, up to rounding.
//
// A value whose samples are folded into an axis with something else cannot cross from stage to stage, and a metric needs
// all heads in one stage. Thread safety: as DataParallelExecutorGroup.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/data_parallel_executor_group.h"
#include "executor/executor_group.h"
#include "symbol/stages.h"

namespace bindery {

class PlacedExecutorGroup final : public ExecutorGroup {
 public:
  // Throws what binding the whole would, Error for a placement that has no devices or that the symbol does not name,
  // and ModelError where the graph cannot be cut.
  PlacedExecutorGroup(const Symbol& symbol, const GroupOptions& options);
  ~PlacedExecutorGroup() override;

  void Forward(const BatchPtr& batch, std::optional<Mode> mode = std::nullopt) override;
  void Forward(const std::vector<BatchPtr>& per_device, std::optional<Mode> mode = std::nullopt) override;
  using ExecutorGroup::Forward;
  void ForwardBackward(const BatchPtr& batch) override;
  int64_t CheckBatch(const Batch& batch, Mode mode, bool values = true) const override;
  using ExecutorGroup::Backward;
  void SetStep(const StepNumber& step) override;
  void SetRates(const StepRates& rates) override;
  void SetSeed(uint64_t seed) override;

  std::vector<Tensor> Outputs(int begin = 0, int end = -1) const override;
  std::vector<std::vector<Tensor>> OutputsPerDevice(int begin = 0, int end = -1) const override;
  std::vector<Shape> OutputShapes() const override;
  const ValueType& OutputType(int head) const override;
  // On the device of the first stage that reads the input.
  std::vector<Tensor> InputGradients() const override;
  std::vector<std::vector<Tensor>> InputGradientsPerDevice() const override;

  void SetParams(const HostTensorMap& args, const HostTensorMap& aux, const SetParamsOptions& options = {}) override;
  void GetParams(HostTensorMap* args, HostTensorMap* aux, ReplicaMerge merge = ReplicaMerge::kFirst) const override;
  HostTensor GetGradient(const std::string& name, int device) const override;
  void ZeroGradients() override;
  std::vector<ReplicatedParam> params() const override;
  // Where an argument or an auxiliary state lies, replica by replica. Throws Error for another name.
  const std::vector<Device>& DevicesOf(const std::string& name) const;

  void SetStates(double value) override;
  void SetStates(const DeviceArrays& states) override;
  using ExecutorGroup::SetStates;
  std::vector<std::vector<Tensor>> States() const override;

  void UpdateMetric(Metric* metric, const std::vector<HostTensor>& labels) const override;
  void UpdateMetric(Metric* metric, const LabelLists& pre_sliced) const override;
  void PushMetric(const Metric& metric, const std::shared_ptr<Measurement>& measurement, const VarPtr& done,
                  const Tensor& status = {}) const override;
  void Watch(const std::string& pattern) override;
  const std::string& watch() const override { return stages_[0].group->watch(); }
  std::vector<Watched> WatchedValues() const override;

  const Symbol& symbol() const override { return spec_.symbol; }
  const GroupOptions& options() const override { return spec_.options; }
  int64_t batch_size() const override { return ranges_.back().end; }
  const std::vector<SampleRange>& slices() const override { return ranges_; }
  const std::vector<std::string>& arg_names() const override { return spec_.arg_names; }
  const std::vector<std::string>& param_names() const override { return spec_.param_names; }
  const std::vector<std::string>& aux_names() const override { return spec_.signature.auxiliary; }
  const std::vector<std::string>& output_names() const override { return spec_.signature.heads; }
  GradReq grad_req(const std::string& argument) const override;
  const std::shared_ptr<Engine>& engine() const override { return engine_; }
  int threads_per_device() const override { return spec_.threads; }
  std::vector<DataParallelExecutorGroup*> stages() override;

 private:
  // What a stage's input is.
  struct Source {
    int data = -1;      // among the batch's data; or
    int crossing = -1;  // what another stage sends
  };
  struct Stage {
    std::vector<Source> data = {};              // by the group's data
    std::vector<int> labels = {}, states = {};  // of the whole, by the group's
    std::unique_ptr<DataParallelExecutorGroup> group = {};
  };
  struct Place {  // of a head: the stage, and which one there
    int stage = 0, index = 0;
  };
  // [crossing][replica with samples]
  using Pieces = std::vector<std::vector<Tensor>>;

  void CheckPlacements();
  void FindWanted();
  const std::vector<Device>& DevicesOfStage(int stage) const;
  void Bind(int stage, const NodeTypes& types);
  DataDesc DescribeCrossing(int crossing, const NodeTypes& types) const;
  void Run(std::span<const BatchPtr> batches, std::vector<SampleRange> ranges, Mode mode);
  BatchPtr BatchOf(const Stage& stage, const Batch& batch, const Pieces& crossed, std::optional<size_t> replica) const;
  void RunBackward(const DeviceArrays& head_gradients) override;
  // Position of the gradient of a stage's data among its InputGradients; -1: none is asked for.
  static int GradientOf(const Stage& stage, size_t data);
  std::pair<size_t, size_t> HeadsOf(int begin, int end) const;
  DataParallelExecutorGroup& OwnerOf(const std::string& name) const;
  const DataParallelExecutorGroup& MetricStage() const;
  void SetStepOfAll();

  GroupSpec spec_;  // of the whole
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Stages> cut_;
  std::vector<Stage> stages_;
  std::vector<Place> heads_;           // of the whole
  std::map<std::string, int> owners_;  // stage, by argument and auxiliary state
  std::vector<bool> returns_;          // by crossing: does a gradient come back?
  Feeder feeder_;                      // checks batches
  Merger merger_;                      // of input gradients
  StepNumber step_{.checked = true};   // of the next training run; stages get parts of batches that were checked here
  bool counts_ = true;                 // by itself: nobody has set the step
  std::vector<SampleRange> ranges_;    // of the last batch, and its mode
  Mode mode_ = Mode::kPredict;
  bool ran_forward_ = false, ran_backward_ = false;
  mutable std::vector<Shape> shapes_;
};

}  // namespace bindery
