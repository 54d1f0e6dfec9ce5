// Executor: a symbol bound to one device, and nothing between: its arguments, their gradients and its auxiliary states
// are Tensors on that device, which the program reads and writes where they are.
//
//   Executor net(symbol, {.inputs = {{"data", {64, 784}}, {"softmax_label", {64}}}});
//   net.SetParams(params, aux);
//   net.SetInput("data", images);                      // a HostTensor, or a Tensor on any device
//   net.Forward();  net.Backward();                    // asynchronous: reading waits
//   net.ArgumentArray("fc1_weight"), net.GradientArray("fc1_weight"), net.OutputArray(0)    // Tensors
//   HostTensor p = net.Output(0);                      // a copy on the host
//
// Arrays are made (zero) unless they are given: executors that are given the same ones share them, a weight or another
// executor's output say. Whoever else reads or writes an array does so by operations of the engine, as Tensor's methods
// are; then no order has to be kept by hand. Shapes are fixed; Reshape binds for others on the same parameters.
//
// It is what a group's device runs (executor/group/device_executor.h), without batches: for those, for their splitting
// and for shapes that change from call to call there is DataParallelExecutorGroup; for predictions from many threads,
// Predictor. Parameters are plain here, so that they can be seen and shared; where a kernel wants a layout of its own,
// each run reorders them. A group keeps them in the kernels' layouts.
//
// Thread safety: one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/memory/payload_pool.h"
#include "executor/batch.h"
#include "executor/group/input_ranges.h"
#include "executor/group/options.h"
#include "executor/group/step.h"
#include "executor/step_counter.h"

namespace bindery {

using TensorMap = std::map<std::string, Tensor>;

struct ExecutorOptions {
  Device device = Cpu(0);
  // Data, labels and whatever else is no parameter, with their shapes; all other shapes are inferred. Axis 0 is the
  // batch where the layout is empty and the extent is that of the first input; otherwise say so by a layout.
  std::vector<DataDesc> inputs = {};
  // Arrays that exist, by name, on this device and of this engine: they are used where they are. They may be parts of
  // others that begin at multiples of 64 bytes, but not a gradient's.
  TensorMap arguments = {}, gradients = {}, auxiliary = {};
  bool for_training = true;
  // By default all arguments that are neither inputs nor labels get gradients, and those with an array in `gradients`;
  // a map may name inputs, too.
  GradRequest grad_req = GradReq::kWrite;
  ParamDTypes param_dtypes = {};             // GroupOptions; of all arguments that are neither inputs nor labels
  Mirror mirror = {};                        // of training
  std::shared_ptr<Engine> engine = nullptr;  // DefaultEngine()
  int threads = 0;                           // of a CPU; 0: all cores
  uint64_t seed = 0;                         // of random operators
  CompileSwitches switches = {};
};

class Executor {
 public:
  // Throws Error, ShapeError, ModelError, DeviceError.
  Executor(const Symbol& symbol, const ExecutorOptions& options) : Executor(symbol, options, nullptr) {}
  ~Executor();  // waits for what it pushed, for a device that hangs, too (engine/engine.h)
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // One with other inputs, of these shapes: all arrays that keep their shape are shared, and working memory, so results
  // of the one must be read before the other runs. Throws ShapeError if a parameter would change its shape.
  std::unique_ptr<Executor> Reshape(const std::vector<DataDesc>& inputs) const;

  // Training mode if bound for it, unless said otherwise. `inputs`: set before, all or (what it throws) none.
  void Forward(std::optional<Mode> mode = std::nullopt);
  void Forward(const HostTensorMap& inputs, std::optional<Mode> mode = std::nullopt);
  // Once after a forward in training mode, whose values it uses up. Gradients of heads that are no losses, in the order
  // of the heads (those of losses are ignored and may be undefined) or by name; they may lie on any device. Throws
  // Error, ShapeError unless they are there and fit.
  void Backward() { Backward(std::vector<Tensor>()); }
  void Backward(const std::vector<Tensor>& head_gradients);
  void Backward(const Tensor& head_gradient) { Backward(std::vector<Tensor>{head_gradient}); }
  void Backward(const HostTensorMap& head_gradients);
  void Backward(const HostTensor& head_gradient);

  // --- arrays, on the device; Error for unknown names ---
  Tensor ArgumentArray(const std::string& name) const;
  Tensor GradientArray(const std::string& name) const;  // Error, too, if its request is null
  Tensor AuxiliaryArray(const std::string& name) const;
  // A copy, on the device: later runs leave it alone.
  Tensor OutputArray(int index) const;

  // --- from and to the host; what returns a value waits ---
  // Throws SampleError for a value that does not survive its cast, or that an operator cannot take in the mode that it
  // is bound for, or Forward is told.
  void SetInput(const std::string& name, const HostTensor& value) { ArrayToSet(name, value, mode()).CopyFrom(value); }
  void SetInput(const std::string& name, const Tensor& value);
  // Unknown and missing names are errors (Error), unless allowed. Casts to the bound dtype.
  void SetParams(const HostTensorMap& args, const HostTensorMap& aux = {}, const SetParamsOptions& options = {}) {
    store_->SetParams(param_names_, aux_names(), args, aux, options);
  }
  void GetParams(HostTensorMap* args, HostTensorMap* aux = nullptr) const;
  void ZeroGradients() { store_->ZeroGradients(); }  // for GradReq::kAdd; asynchronous
  HostTensor Output(int index) const { return OutputArray(index).ToHost(); }
  HostTensor Output(const std::string& name) const;
  std::vector<HostTensor> Outputs() const;
  HostTensor Gradient(const std::string& argument) const { return GradientArray(argument).ToHost(); }

  // --- description ---
  const std::vector<std::string>& arg_names() const { return arg_names_; }
  const std::vector<std::string>& param_names() const { return param_names_; }  // neither inputs nor labels
  const std::vector<std::string>& aux_names() const { return signature_.auxiliary; }
  const std::vector<std::string>& output_names() const { return signature_.heads; }
  Shape OutputShape(int index) const;
  const Plan& plan() const { return current_->bound->plan(); }  // of the mode that was run last
  MemoryReport memory() const;                                  // of that plan
  const std::shared_ptr<Engine>& engine() const { return engine_; }

 private:
  // The program of one mode.
  struct Bound {
    std::shared_ptr<const BoundProgram> bound = nullptr;
    std::unique_ptr<GroupStep> step = nullptr;
  };
  Executor(const Symbol& symbol, const ExecutorOptions& options, std::shared_ptr<Arena> arena);
  int PositionOf(const std::string& argument) const;  // Error if there is none
  Argument& ArgumentOf(const std::string& name, const char* what);
  void DescribeInputs();
  void DescribeArrays(bool share_blocks);
  void Hold(const Plan& plan);
  Bound& For(Mode mode);
  Mode mode() const { return options_.for_training ? Mode::kTrain : Mode::kPredict; }  // unless said otherwise
  Tensor ArrayToSet(const std::string& name, const Shape& value) const;
  Tensor ArrayToSet(const std::string& name, const HostTensor& value, Mode mode);
  void CheckRan(const char* what) const;

  const Symbol symbol_;
  ExecutorOptions options_;
  const std::shared_ptr<Engine> engine_;
  Signature signature_;
  const std::vector<std::string> arg_names_;
  std::unordered_map<std::string_view, int> positions_;  // of arguments, by name
  std::vector<bool> is_input_;                           // by argument: an input or a label
  std::vector<std::string> param_names_;
  int64_t samples_ = 1;
  std::shared_ptr<ParameterStore> store_;  // of all arguments and states
  std::unique_ptr<DeviceExecutor> executor_;
  Bound bound_[2];  // by mode, when it is wanted
  Bound* current_ = nullptr;
  Mode mode_ = Mode::kPredict;                       // of the last forward
  bool ran_forward_ = false, ran_backward_ = false;  // since
  StepCounter steps_;
  PayloadPool<StepInput> step_inputs_;
  std::optional<InputRanges> ranges_;  // of inputs, and labels that nobody described
};

}  // namespace bindery
