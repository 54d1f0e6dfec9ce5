// ReplicatedModule: a network with replicas on several devices, called like a function. For loops of one's own: what
// stands between two modules, the loss and the update are the caller's.
//
//   ReplicatedModule net(symbol, {.devices = {Cpu(0), Cpu(1)}, .inputs = DataDesc{"data", {64, 784}}});
//   ReplicatedModule loss(criterion, {.inputs = ListOf(DataDesc{"scores", {64, 10}}, DataDesc{"label", {64}})});
//   net.ZeroGradients();
//   loss.Forward(ListOf(net.Forward(images), labels));
//   net.Backward(loss.Backward()[0]);     // adds up gradients, gives those of its inputs
//   net.Update(0.1 / 64);                 // values -= rate * gradients
//
// A batch is cut along `dimension` into equal shares, but for one sample; with fewer samples than replicas some sit
// out. Outputs and input gradients stay in the pieces that the replicas made until somebody asks for the whole
// (train/module/array.h), so that modules hand them to each other device by device.
//
// Parameters are those of the first replica. Whoever changes them there, a step, the caller, an optimizer on flat
// arrays, the others have them before they compute the next time, and are told only what has changed. Gradients of
// parameters add up over calls of Backward, each times its scale, until ZeroGradients. They are sums over samples of
// what the head gradients and losses make of them: nothing divides them by a number of samples or of replicas.
//
// With `output_device` the module is pinned: it works on devices of its own, and outputs and input gradients come back,
// those to that device, these to where the inputs lay. Modules one behind the other on a device each are a network over
// several devices.
//
// Everything is asynchronous, and whoever reads results waits: errors of a device travel to there. After a Backward
// that failed the gradients are errors, and Update changes nothing, until ZeroGradients. Thread safety: one thread at a
// time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/executor_group.h"
#include "symbol/model.h"
#include "train/module/array.h"
#include "train/module/exchange.h"
#include "train/module/nest.h"

namespace bindery {

struct ModuleOptions {
  std::vector<Device> devices = {Cpu(0)};  // of the replicas; more by AddReplica. Empty: none yet
  std::vector<double> workload = {};       // only ratios matter; empty: equal
  // What Forward takes: arguments of the symbol with the shapes of a usual batch. A leaf without a name is an array
  // that the network does not look at, and must be empty.
  Nest<DataDesc> inputs = {};
  // What Forward gives: names of the symbol's outputs, each once. A leaf without a name is empty. Default: the only
  // output, or a list of all.
  std::optional<Nest<std::string>> outputs = {};
  int dimension = 0;            // along which inputs that have no layout are cut
  bool input_gradients = true;  // of inputs of floating types
  std::string initializer = "xavier";
  std::vector<std::string> fixed_params = {};  // get no gradient
  uint64_t seed = 0;                           // of initial values and random operators
  Exchange exchange = Exchange::kFlat;
  KVStoreType kvstore = KVStoreType::kDevice;  // of Exchange::kStore
  StoreFactory store = {};                     // of Exchange::kStore: one of one's own, for each binding
  // Of Exchange::kFlat: see ExchangeOptions.
  std::function<std::unique_ptr<Collectives>(const std::shared_ptr<Engine>&)> collectives = {};
  std::optional<Device> output_device = {};
  Placements placements = {};  // of parts of each replica (GroupOptions)
  // Runs on each replica's worker before its first use (OnReplicas).
  std::function<void(int replica, Device device)> init = {};
  std::shared_ptr<Engine> engine = nullptr;  // DefaultEngine()
  int threads_per_device = 0;                // GroupOptions
};

// How much a further replica does, and where parts of it lie that have placements.
struct ReplicaOptions {
  double workload = 1;
  std::map<std::string, Device> placements = {};
};

// If a file names devices that this machine has not.
enum class MissingDevices : uint8_t {
  kError,
  kLeaveOut,  // the others do it; if there is none, the first of that kind, else Cpu(0). With a warning in the log
};

struct ModuleLoadOptions {
  std::vector<Device> devices = {};  // in place of the file's
  MissingDevices missing = MissingDevices::kError;
  Exchange exchange = Exchange::kFlat;
  KVStoreType kvstore = KVStoreType::kDevice;
  StoreFactory store = {};
  std::function<std::unique_ptr<Collectives>(const std::shared_ptr<Engine>&)> collectives = {};
  std::function<void(int replica, Device device)> init = {};
  std::shared_ptr<Engine> engine = nullptr;
  int threads_per_device = 0;
};

// One replica's parameters and states, as stored: flat, in the kernels' layouts (ParameterBuffer).
struct ModuleReplica {
  int index = 0;
  Device device = {};
  std::map<std::string, Tensor> params = {}, aux = {};
};

class ReplicatedModule {
 public:
  // Values that the model lacks are initialised. Throws what binding does, and what `init` throws.
  ReplicatedModule(const Model& model, ModuleOptions options);
  ReplicatedModule(const Symbol& symbol, ModuleOptions options)
      : ReplicatedModule(Model{.symbol = symbol}, std::move(options)) {}
  ~ReplicatedModule();
  ReplicatedModule(ReplicatedModule&&) noexcept;
  ReplicatedModule& operator=(ReplicatedModule&&) noexcept;

  // --- running ---
  // Inputs nested as described; of any batch size >= 1, any shapes that fit the network, any type (they are cast), on
  // any devices or on the host. Throws DataError, ShapeError for those that do not fit, Error without replicas.
  Values Forward(const Values& inputs);
  // After a Forward in training mode, once. Gradients of the outputs, nested as these; those of losses are ignored and
  // may be empty; nothing at all, where all are losses. Gives the gradients of the inputs, nested as these, empty where
  // there are none, and adds scale * the gradients of the parameters to those that are there. Parameters that have been
  // changed since Forward count as they are now, on every replica.
  Values Backward(const Values& gradients = {}, double scale = 1);
  // The two halves of it; the second as often as wanted.
  Values InputGradients(const Values& gradients = {});
  void AccumulateGradients(double scale = 1);
  void ZeroGradients();
  void Update(double rate);  // values -= rate * gradients
  // Training mode: random operators draw, batch-norm goes by the batch, and Backward may follow. Else prediction.
  void Train() { training_ = true; }
  void Evaluate() { training_ = false; }
  bool training() const { return training_; }
  void Wait();  // for everything that was pushed; throws the first error since the last call

  // --- parameters ---
  // Gives the first replica's to the others, if anybody has changed either; Forward does it by itself. Returns how many
  // buffers it had to copy.
  int SyncParameters();
  bool NeedsSync() const;
  int64_t num_syncs() const { return num_syncs_; }  // buffers copied so far
  // `aux` empty: states stay as they are.
  void SetParams(const HostTensorMap& args, const HostTensorMap& aux = {}, const SetParamsOptions& options = {});
  HostTensorMap GetParams();                        // waits
  HostTensorMap GetStates();                        // auxiliary ones: running statistics; waits
  HostTensor GetGradient(const std::string& name);  // what has added up; waits. Throws Error for what has none
  // All initial values anew, the states' too.
  void Reset(const std::string& initializer = {}, std::optional<uint64_t> seed = {});
  // After a device failed while parameters were written: what it lost comes from replicas that have it, as it was when
  // they were last told. Waits.
  void Mend();
  // All parameters that have gradients, one behind the other in the order of param_names(), without gaps: plain copies
  // on the first replica's device. What is set, the replicas have from the next Forward on. Where parameters have
  // several types, the copies are float32. Set throws ShapeError unless there are as many elements.
  int64_t num_flat();
  Tensor FlatValues();
  Tensor FlatGradients();
  void SetFlatValues(const Tensor& values);
  void SetFlatGradients(const Tensor& gradients);
  // What is really there: see ParameterBuffer. One buffer for what is trained, if it is of one type.
  const std::vector<ParameterBuffer>& buffers();

  // --- replicas ---
  // One more, with the parameters of the others. What throws leaves everything as it was. Waits. Results of the last
  // Forward are gone.
  ReplicatedModule& AddReplica(Device device, const ReplicaOptions& options = {});
  void SetDevices(std::vector<Device> devices, std::optional<Device> output_device = {});  // others, in their place
  const std::vector<Device>& devices() const { return options_.devices; }
  // Calls it for each replica, in order, in this thread. What it writes, it writes by operations of the engine
  // (Tensor); what it writes on others than the first is lost with the next Forward, but for parameters of replicas
  // whose devices share memory: these are the same (EachOnce), and visited once for each.
  void ForEachReplica(const std::function<void(const ModuleReplica&)>& visit);
  // Runs it on each replica's worker, the thread that gives its device work (of a CPU, that computes), and waits.
  // Throws the first replica's error. For what belongs to a thread: its name, its priority, a library's state.
  void OnReplicas(const std::function<void(int replica, Device device)>& run);

  // --- as a whole ---
  void ConvertTo(DType dtype);  // inputs of floating types, and what follows from them; values are cast. Waits
  // Gives back everything that is on devices but results that others hold; the values wait on the host until they are
  // needed. Waits.
  void ClearState();
  // Another one with equal values, states, gradients and random numbers; on other devices, if any are given. Waits.
  ReplicatedModule Clone(std::vector<Device> devices = {});
  // Symbol, values and states of the first replica, and what the options say of inputs, outputs and devices; gradients
  // are not in it. A program that predicts loads the file like any other model's.
  Model ToModel();
  void Save(const std::string& path) { SaveModel(ToModel(), path); }
  // Throws what LoadModel does, ModelError if it is no module's, and DeviceError for devices that are not there.
  static ReplicatedModule Load(const std::string& path, const ModuleLoadOptions& options = {});

  // --- description ---
  const Symbol& symbol() const { return model_.symbol; }
  const ModuleOptions& options() const { return options_; }
  const std::vector<std::string>& param_names();
  bool by_given_collectives();  // ModuleOptions::collectives are in use
  // What computes, until replicas come or go, types change or the state is cleared. What is done by it, the module
  // does not hear of, but changed values.
  ExecutorGroup& group();

 private:
  struct Bound;  // the group, and what goes with it
  // What is kept while nothing is bound, and goes from one binding to the next.
  struct Contents {
    HostTensorMap params = {}, aux = {}, gradients = {};
    uint64_t steps = 0;  // training runs so far
  };
  ReplicatedModule(const Model& model, ModuleOptions options, Contents contents);
  // A parameter among the flat ones.
  struct FlatPart {
    ParameterExchange::Place place;
    int64_t begin = 0, end = 0;
  };
  std::vector<FlatPart> FlatParts();
  using PartOf = Tensor (ParameterExchange::*)(const ParameterExchange::Place&) const;
  Tensor Flatten(PartOf part_of);
  void SetFlat(const char* what, PartOf part_of, const Tensor& values);
  std::unique_ptr<Bound> Bind(const ModuleOptions& options, const Contents& contents) const;
  Bound& Ready();
  Contents TakeContents();
  void Rebind(ModuleOptions options);
  void RunOn(const std::vector<Device>& devices, size_t first, const std::function<void(int, Device)>& run) const;
  Values Outputs(const Bound& bound) const;
  DeviceArrays HeadGradients(const Bound& bound, const Values& gradients) const;
  Values TakeInputGradients(const Bound& bound) const;

  Model model_;  // without values
  ModuleOptions options_;
  std::shared_ptr<Engine> engine_;
  bool training_ = true;
  Contents contents_;
  std::vector<Device> came_from_ = {};  // the last Forward's inputs, by leaf
  int64_t num_syncs_ = 0;
  std::unique_ptr<Bound> bound_;
};

}  // namespace bindery
