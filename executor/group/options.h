// GroupOptions: how a symbol is bound to a group of devices; and GroupSpec, what that means for this symbol.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/device.h"
#include "engine/engine.h"
#include "executor/batch.h"
#include "executor/group/program_cache.h"
#include "executor/group/split_batch.h"
#include "executor/plan/program.h"
#include "executor/plan/signature.h"
#include "symbol/symbol.h"

namespace bindery {

class DataParallelExecutorGroup;
class ParameterStore;

// What groups that only predict share with the one that they come from: values that nobody changes any more, and, where
// they are bound to the same symbol, its programs.
struct GroupWeights {
  std::shared_ptr<const ParameterStore> store;
  Symbol symbol;
  std::shared_ptr<ProgramCache> programs;
};

// One value for all parameters; or one per argument, in the order of ListArguments, verbatim; or single ones by name on
// top of the default (write for parameters).
using GradRequest = std::variant<GradReq, std::vector<GradReq>, std::map<std::string, GradReq>>;

// Sets the requests of a signature whose roles are known. By default parameters get gradients, unless they are fixed,
// and, if `inputs_need_grad`, data. Throws Error for unknown names and lists of another length.
void ReadGradRequests(const GradRequest& request, bool inputs_need_grad, Signature* signature);

// Parameters are named by patterns: * is any text, ? any character, [...] one of those; and a name fits itself.
bool FitsPattern(const std::string& name, const std::string& pattern);

// Types of parameters, by patterns of their names: the first that fits counts.
using ParamDTypes = std::vector<std::pair<std::string, DType>>;
// Sets them in a signature whose roles are known. Throws Error for a pattern that fits no parameter.
void ReadParamDTypes(const ParamDTypes& dtypes, Signature* signature);

// Devices of parts of the graph, by the name of the placement (symbol/stages.h): one per replica, or one for all.
using Placements = std::map<std::string, std::vector<Device>>;
// The same, from what each replica has, or all. Throws Error where one lacks a name that another has.
Placements PlacementsOf(const std::vector<std::map<std::string, Device>>& per_replica);

struct GroupOptions {
  std::vector<Device> devices = {Cpu(0)};  // one may appear twice: two executors share its worker
  std::vector<double> workload = {};       // only ratios matter; empty: equal
  std::vector<DataDesc> data = {};         // shapes of a whole batch; at least one
  std::vector<DataDesc> labels = {};       // empty: label arguments are bound as zeros, for prediction only
  std::vector<DataDesc> states = {};       // arguments that are neither data, label nor parameter: zero until set
  bool for_training = true;
  bool inputs_need_grad = false;
  // Gradients of tables that are looked up with sparse_grad alone (Embedding, Take) are kept by rows, where the host
  // can address all devices' memory, the request is kWrite, and no group that shares the parameters keeps them whole:
  // there is no array of the whole gradient then, and params() has none (docs/sparse.md).
  bool sparse_gradients = false;
  // Names or patterns. They get no gradient; a normalisation layer all of whose parameters are fixed keeps its
  // statistics.
  std::vector<std::string> fixed_params = {};
  GradRequest grad_req = GradReq::kWrite;
  // Types that parameters are kept in. All other types follow through the graph from these, from those of data and
  // labels, and from what variables declare; float32 where nothing tells. Binding throws ShapeError, naming operator and
  // argument, where they contradict each other. Updaters train float32 and float64: the others' request must be null.
  ParamDTypes param_dtypes = {};
  // Of each device's share, in training; not while values are watched. Mirror::kAutomatic is an error here: it is
  // trainers that find out how much memory there is.
  Mirror mirror = {};
  // Shares parameters, gradients, auxiliary states and working memory with it (same devices and engine). Only read by
  // the constructor.
  DataParallelExecutorGroup* shared_group = nullptr;
  // Of DataParallelExecutorGroup::Weights(): uses these where they are, from an engine and a thread of its own.
  std::shared_ptr<const GroupWeights> weights = nullptr;
  std::shared_ptr<Engine> engine = nullptr;  // default: the shared group's, else DefaultEngine()
  int threads_per_device = 0;                // of CPUs; 0: the cores this process may use, shared out evenly
  uint64_t seed = 0;                         // of random operators
  CompileSwitches switches = {};
  // Gradients are reduced in buckets of about that many bytes, each while backward still computes the next ones; 0: all
  // at once, at its end. The same bits. Default: kBucketBytes where there are several devices and the host cannot
  // address them all, else 0, as CPUs have one lane for both. A shared group's holds.
  std::optional<int64_t> bucket_bytes = std::nullopt;
  static constexpr int64_t kBucketBytes = 4 << 20;
  // Host memory for programs of shapes and modes met before; those beyond it are made again when they are met again.
  int64_t program_bytes = ProgramCache::kBytes;
  // Each device computes what it is given for itself, as a group of it alone would: nothing goes between devices before
  // the update, and those that sit out keep the gradients and candidates of states that they have (train/updater/
  // blocks.h).
  bool independent = false;
  // Not empty: parts of the graph lie on devices of their own in each replica, which `devices` are the rest of
  // (PlacedExecutorGroup, MakeGroup).
  Placements placements = {};
};

// The options of a group, checked and complete. "Inputs" are data, then labels.
struct GroupSpec {
  GroupSpec(const Symbol& symbol, const GroupOptions& options);  // throws Error, ShapeError, ModelError, DeviceError
  GroupSpec(const GroupSpec&) = delete;
  GroupSpec& operator=(const GroupSpec&) = delete;

  int Find(std::string_view argument) const;                                          // its position, or -1
  Mode mode() const { return options.for_training ? Mode::kTrain : Mode::kPredict; }  // unless said otherwise
  size_t num_inputs() const { return options.data.size() + options.labels.size(); }
  const DataDesc& input(size_t i) const;
  std::vector<DataDesc> AllInputs() const;
  GradReq RequestOf(size_t input) const { return signature.arguments[inputs[input]].request; }
  std::vector<Shape> InputShapes() const;  // as described
  // The extent of the batch axes of inputs of these shapes; no value if nothing is batched. Throws ShapeError if they
  // differ.
  std::optional<int64_t> SamplesOf(const std::vector<Shape>& inputs) const;
  // By workload. Where nothing is batched, the first device does all, as with a batch of one.
  std::vector<SampleRange> Split(std::optional<int64_t> samples) const;

  Symbol symbol;
  GroupOptions options;
  int threads = 1;  // of a CPU
  // With what the descriptions say: of inputs all but the shapes that batches have.
  Signature signature = {};
  std::vector<std::string> arg_names = {}, param_names = {};
  std::vector<int> inputs = {}, states = {};  // positions of the arguments that are described
  int unbound_label = -1;                     // an argument of a group bound without labels, if there is one
  bool inputs_add_up = false;                 // some input's gradient is asked for with kAdd
  std::vector<std::string> merge_rules = {};  // per head: "", "sum", "mean", "first"

 private:
  void CheckInputs();
  std::unordered_map<std::string_view, int> positions_;  // of arguments, by name
};

}  // namespace bindery
