// Executor: a symbol bound to one device. A group of one with a face for direct use: named inputs, outputs, gradients.
//
//   Executor executor(net, {.inputs = {{"data", {1, 1, 28, 28}}}, .for_training = false});
//   executor.SetParams(model.params, model.aux);
//   executor.SetInput("data", image);
//   executor.Forward();
//   HostTensor p = executor.Output(0);
//
// Arguments named in `inputs` are set by SetInput; all others are parameters, their shapes inferred. Inputs may change
// their shapes from run to run; parameters stay.
//
// Thread safety: one thread at a time.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/data_parallel_executor_group.h"

namespace bindery {

struct ExecutorOptions {
  Device device = Cpu(0);
  // Axis 0 is the batch where the layout is empty and the extent is that of the first input; otherwise say so by a
  // layout.
  std::vector<DataDesc> inputs = {};
  bool for_training = true;
  GradRequest grad_req = GradReq::kWrite;  // by default parameters get gradients; a map may name inputs too
  std::shared_ptr<Engine> engine = nullptr;
  int threads = 0;  // 0: all cores
  uint64_t seed = 0;
  CompileSwitches switches = {};
};

class Executor {
 public:
  Executor(const Symbol& symbol, const ExecutorOptions& options);

  // Throws Error for a name that is not an input.
  void SetInput(const std::string& name, HostTensor value);
  void SetInput(const std::string& name, const Tensor& value);  // that lies on any device of the engine
  void SetParams(const HostTensorMap& args, const HostTensorMap& aux = {}, const SetParamsOptions& options = {}) {
    group_->SetParams(args, aux, options);
  }
  void GetParams(HostTensorMap* args, HostTensorMap* aux = nullptr) const { group_->GetParams(args, aux); }

  // Inputs never set are zero. Training mode if bound for it, unless said otherwise.
  void Forward(std::optional<Mode> mode = std::nullopt);
  void Forward(const HostTensorMap& inputs, std::optional<Mode> mode = std::nullopt);
  // Gradients of heads that are no losses, by output name; one tensor for a symbol of one head.
  void Backward(const std::map<std::string, HostTensor>& head_gradients = {}) { group_->Backward(head_gradients); }
  void Backward(const HostTensor& head_gradient) { group_->Backward(std::vector<HostTensor>{head_gradient}); }
  void Backward(const Tensor& head_gradient) { group_->Backward(DeviceArrays({head_gradient})); }

  HostTensor Output(int index) const;  // waits
  HostTensor Output(const std::string& name) const;
  std::vector<HostTensor> Outputs() const;
  HostTensor Gradient(
      const std::string& argument) const;  // of a parameter or an input; waits; throws Error if its request is null

  DataParallelExecutorGroup& group() { return *group_; }
  const DataParallelExecutorGroup& group() const { return *group_; }
  const Plan& plan() const { return group_->plan(); }
  MemoryReport memory() const { return group_->memory(); }

 private:
  size_t PlaceOf(const std::string& input) const;  // throws Error for a name that is not an input
  // The inputs, to be changed. Copies them only if a step may still read them, without those that are about to be
  // `set`.
  Batch* Inputs(const std::vector<size_t>& set);

  std::unique_ptr<DataParallelExecutorGroup> group_;
  std::vector<std::string> input_names_;
  std::shared_ptr<Batch> batch_;               // the inputs as set
  std::shared_ptr<std::atomic<int>> readers_;  // steps that were pushed with batch_ and have not loaded it
};

}  // namespace bindery
