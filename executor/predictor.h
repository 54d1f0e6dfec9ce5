// Predictor: a trained model that serves. Any number of threads ask it at once.
//
//   const Predictor predictor("mlp.pb", {.inputs = {{"data", {64, 1, 28, 28}}}});
//   std::vector<HostTensor> scores = predictor.Predict({{"data", images}});   // from any thread, 1 to 64 images
//
// There is one set of weights, in the kernels' layouts, and one set of programs, made for each shape when it first
// comes (and kept, see `program_bytes`). Each call that runs has working memory and input arrays of its own, and an engine
// without threads: it computes in the calling thread, with the team it is given, so calls do not wait for each other.
// A result does not depend on what else runs: bits are those of a single thread.
//
// Weights never change: to serve others, make another Predictor. Thread safe.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "engine/tensor.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/executor.h"
#include "symbol/model.h"

namespace bindery {

struct PredictorOptions {
  Device device = Cpu(0);
  // The arguments that come with a call, with the largest extents that may come. All but the batch's change the program
  // that is run, and may be refused by the network.
  std::vector<DataDesc> inputs = {};
  int calls = 0;    // that run at once; more wait. 0: one for each core, on other devices than CPUs one
  int threads = 0;  // of a CPU, for each call; 0: the cores shared out
  CompileSwitches switches = {};
  int64_t program_bytes = ProgramCache::kBytes;  // of host memory, for programs of shapes met before
};

class Predictor {
 public:
  // Binds for the largest shapes. Of the outputs those are left out that are losses of targets which nobody gives, and
  // values of what is not in the graph. Throws Error for arguments that have neither a value nor a description, and
  // names them; ShapeError, ModelError, DeviceError.
  Predictor(const Model& model, const PredictorOptions& options);
  Predictor(const std::string& path, const PredictorOptions& options) : Predictor(LoadModel(path), options) {}

  // Outputs in the order of output_names(). All inputs that these are computed from are wanted, by name, of any dtype
  // (cast), with at least one sample; other axes may have extents of 0. Throws DataError for names and extents that do
  // not fit, ShapeError for those that the network does not take; what kernels threw, by which no other call is
  // touched.
  std::vector<HostTensor> Predict(const HostTensorMap& inputs) const;
  // The same on the device: inputs lie anywhere and are left alone until it returns (it waits for what writes them);
  // outputs lie on the predictor's device, are computed, and belong to the inputs' engine.
  std::vector<Tensor> Predict(const TensorMap& inputs) const;

  const std::vector<std::string>& output_names() const { return output_names_; }
  const PredictorOptions& options() const { return options_; }
  // Of one call, at the largest shapes: all share the parameters and states, each has the rest.
  const MemoryReport& memory() const { return memory_; }

 private:
  using Group = DataParallelExecutorGroup;
  class Turn;
  template <class Map>
  void CheckInputs(const Map& inputs) const;
  template <class Map>
  std::vector<Tensor> Run(Group* group, Batch batch, const Map& inputs) const;

  PredictorOptions options_;
  Symbol symbol_;
  std::shared_ptr<const GroupWeights> weights_;
  std::vector<std::string> input_names_, output_names_;
  MemoryReport memory_;
  mutable std::mutex mutex_;
  mutable std::condition_variable freed_;
  mutable std::vector<std::unique_ptr<Group>> idle_;  // the last is warmest
  mutable int made_ = 0;                              // idle or running
};

}  // namespace bindery
