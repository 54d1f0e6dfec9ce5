// ParameterStore: the parameters, their gradients and the auxiliary states of a group, on each of its devices.
//
// A parameter has one storage format, fixed by the first program that used it and followed by all others of the group.
// Parameters of one dtype that have gradients, or have none, lie one behind the other in one block per device, values
// and gradients in the same order and format: an update or a reduction is one flat loop over a block. Padding is zero
// and stays zero. Auxiliary states are plain, in blocks of their own. In buckets, parameters with gradients lie in the
// order in which the first program's backward finishes these, and a block is a bucket: of the size wanted, or a little
// more.
//
// Devices that share memory, as CPUs do, have the values of parameters once, each by its own name (Tensor::On), and
// once what is made of them alone (derivation.h). Gradients and states are each device's own.
//
// Executors that share a store share the values. Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/step.h"
#include "engine/tensor.h"
#include "executor/group/derivation.h"
#include "executor/group/row_gradient.h"
#include "executor/plan/plan.h"

namespace bindery {

struct StoredParameter {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape = {};  // as users see it
  Format format = {};
  int block = -1;
  int64_t offset = 0;    // in elements, within the block
  int64_t elements = 0;  // of storage, padding included
  bool auxiliary = false;
};

struct SetParamsOptions {
  bool allow_missing = false, allow_extra = false;
};

// How GetParams makes one value of the replicas', which are equal unless somebody has written to one of them alone, or
// are one, where devices share memory.
enum class ReplicaMerge : uint8_t {
  kFirst,  // the first replica's that can be read
  kCheck,  // asks that all are equal, to the bit
};

class ParameterStore {
 public:
  struct Block {
    DType dtype = DType::kFloat32;
    int64_t elements = 0;
    bool auxiliary = false;
    std::vector<Tensor> values = {};     // per device: flat; of parameters, the same where devices share memory
    std::vector<Tensor> gradients = {};  // per device: flat; empty if its parameters have none
    // Per device: what states will be if the step that is running is committed (StepNumber). Empty if none of them is
    // ever updated.
    std::vector<Tensor> candidates = {};
    std::vector<int> parameters = {};  // indices, in order of offset
    // Per device: of a table whose gradient is kept by rows, which is plain, alone in its block and has no `gradients`.
    std::vector<std::shared_ptr<RowGradient>> row_gradients = {};
  };

  // `bucket_bytes`: 0: no buckets.
  ParameterStore(std::shared_ptr<Engine> engine, std::vector<Device> devices, int64_t bucket_bytes = 0);

  // Makes room for what the plan uses and the store does not have. For what it has, dtype, shape and format must agree:
  // throws ShapeError naming the parameter. A gradient asked for a parameter stored without one is made here too; where
  // it is kept by rows, a whole one that the plan computes is an Error. What throws changes nothing.
  void Adopt(const Plan& plan);
  // An array that exists, plain, a tensor for each device, in place of the room that Adopt would make, and before it
  // does. `gradients`: the same for its gradient; none: made if it is asked for.
  void Hold(const std::string& name, const std::vector<Tensor>& values, const std::vector<Tensor>& gradients,
            bool auxiliary);
  // The values as another engine sees them, for programs that only read them; Set throws Error. What writes them must
  // be over. Derived values are made for the view, and shared by views of it.
  static std::shared_ptr<ParameterStore> View(const ParameterStore& store, std::shared_ptr<Engine> engine);

  const std::vector<Device>& devices() const { return devices_; }
  int64_t bucket_bytes() const { return bucket_bytes_; }
  const std::vector<StoredParameter>& parameters() const { return parameters_; }
  std::vector<std::string> NamesOf(const Block& block) const;  // of its parameters
  const std::vector<Block>& blocks() const { return blocks_; }
  const StoredParameter* Find(const std::string& name) const;  // nullptr if absent
  void FillFormats(Signature* signature) const;                // of the parameters that it has; and who is by rows

  // Throws Error for names that are missing (reported first) or unknown, unless the options allow them.
  static void CheckNames(const std::vector<std::string>& params, const std::vector<std::string>& auxiliary,
                         const HostTensorMap& args, const HostTensorMap& aux, const SetParamsOptions& options);
  void CheckShapes(const std::vector<std::string>& names, const HostTensorMap& values) const;  // throws ShapeError
  // All that are named, by name. Throws Error for unknown and missing names, unless allowed (missing is reported
  // first), and ShapeError; nothing has changed then.
  void SetParams(const std::vector<std::string>& params, const std::vector<std::string>& auxiliary,
                 const HostTensorMap& args, const HostTensorMap& aux, const SetParamsOptions& options) const;
  // Plain, all of `names`; waits. Entries that are there already give the dtype. kCheck throws Error naming the first
  // that is not equal on all devices, with the element and two devices, and what a replica that failed throws.
  void GetParams(const std::vector<std::string>& names, HostTensorMap* values,
                 ReplicaMerge merge = ReplicaMerge::kFirst) const;

  // Flat storage of one parameter on one device; shares its block's memory and variable.
  Tensor Value(const StoredParameter& parameter, int device) const;
  Tensor Candidate(const StoredParameter& state, int device) const;     // of an auxiliary state that is updated
  Tensor Gradient(const StoredParameter& parameter, int device) const;  // undefined if it has none that is whole
  const std::shared_ptr<DerivedValues>& derived(int device) const { return derived_[static_cast<size_t>(device)]; }
  // nullptr if it has none that is kept by rows.
  std::shared_ptr<RowGradient> Rows(const StoredParameter& parameter, int device) const;

  // To every device, from a plain tensor of any dtype. Throws ShapeError on another shape.
  void Set(const StoredParameter& parameter, const HostTensor& value) const;
  HostTensor Get(const StoredParameter& parameter) const;              // waits; from the first device that can give it
  HostTensor Get(const StoredParameter& parameter, int device) const;  // waits
  HostTensor GetEqual(const StoredParameter& parameter) const;         // waits; of all devices (ReplicaMerge::kCheck)
  HostTensor GetGradient(const StoredParameter& parameter, int device) const;  // waits; throws Error if it has none
  // A device that failed while its values were written has lost them: brings them from one that has them. If none does,
  // they stay lost, or become zero where all of them are about to be `set`. Waits.
  void Mend(bool set = false) const;
  void ZeroGradients() const;  // asynchronous

  // Of the states that a plan updates: the blocks they lie in, and the parts of a step that make candidates of their
  // values at its head and values of their candidates when it is committed: if all are finite, so that a model never
  // keeps others, if the gates are whole, and if what each device reads in `statuses`, where they are given, is good.
  std::vector<int> UpdatedBlocks(const Plan& plan) const;
  void AppendBegin(const std::vector<int>& blocks, StepParts* parts) const;
  void AppendPublish(const std::vector<int>& blocks, const std::vector<VarPtr>& gates, StepParts* parts,
                     std::span<const std::vector<Tensor>> statuses = {}) const;

 private:
  std::vector<PreparedPtr> PrepareZeros(const Block& block) const;
  std::vector<Tensor> ValuesOnce(const StoredParameter& parameter) const;  // each memory's

  std::shared_ptr<Engine> engine_;
  std::vector<Device> devices_;
  std::vector<size_t> holders_;  // per device: the first that shares its memory
  int64_t bucket_bytes_;
  std::vector<StoredParameter> parameters_;
  std::vector<Block> blocks_;
  std::vector<std::shared_ptr<DerivedValues>> derived_;  // per device
  std::unordered_map<std::string, int> index_;
  bool is_view_ = false;
  std::vector<PreparedPtr> zero_gradients_;  // per block with gradients, whole or by rows, and device
};

}  // namespace bindery
