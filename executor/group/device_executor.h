// DeviceExecutor: what binds and runs programs on one device. It owns the input arrays and their gradients, shares the
// parameters (ParameterStore) and the arena, and binds programs to them. A group has one for each of its devices
// (executor/group/step.h); an Executor (executor/executor.h) has one and nothing else.
//
// What it runs are parts of a step on its device: one that loads the inputs, one per segment. Not thread safe.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/memory/arena.h"
#include "engine/row_tensors.h"
#include "engine/tensor.h"
#include "executor/batch.h"
#include "executor/group/loader.h"
#include "executor/group/parameter_store.h"
#include "executor/group/split_batch.h"
#include "executor/plan/program.h"

namespace bindery {

// A program bound to one device's addresses.
struct BoundProgram {
  std::shared_ptr<const Program> program;
  std::shared_ptr<const Instance> instance;
  // What its segments use, collected once, since there may be as many of them as layers.
  std::vector<VarPtr> parameters;                // blocks of parameters and states that are read
  std::vector<VarPtr> candidates;                // of states that forward moves
  std::vector<VarPtr> gradients;                 // by gradient of the plan
  std::vector<int> gradient_calls;               // that write them (Plan::GradientCalls)
  std::vector<std::pair<void*, int64_t>> zeros;  // gradients that nothing computes
  // What each backward leaves of tables' gradients that are kept by rows.
  struct Rows {
    std::shared_ptr<RowGradient> gradient;
    HeldRows left = {};
    int numbers = -1, rows = -1;  // among the plan's gradients; the latter -1: nothing computes it, there are no rows
  };
  std::vector<Rows> row_gradients;
  std::unique_ptr<Derivation> derivation;  // null: the program derives nothing
  const Plan& plan() const { return program->plan; }
};

class DeviceExecutor {
 public:
  DeviceExecutor(std::shared_ptr<Engine> engine, std::shared_ptr<ParameterStore> store, int index,
                 std::shared_ptr<Arena> arena);
  ~DeviceExecutor();  // waits for what it pushed; from inside an operation leaves memory to what is still to run

  // The program bound to this device's arrays, for as long as somebody holds it; grows the arena and the input arrays
  // as needed (waits then).
  std::shared_ptr<const BoundProgram> Bind(const std::shared_ptr<const Program>& program);

  // The parts that write the device's samples of a StepInput, and the step block, to their place; until the input
  // arrays move (addresses_version). The last of them writes the inputs.
  StepParts LoadParts(const BoundProgram& bound, SampleRange range, int turn = 0);
  StepParts BlockParts(int turn = 0) { return LoadParts({}, {}, {block_}, turn); }  // the step block alone
  // In device memory: the step block; and the StepRates in it, as bytes.
  const StepBlock* block() const { return static_cast<const StepBlock*>(step_->data()); }
  Tensor Rates() const;
  // Per segment. One part each, but that backward is cut where the last gradient of a bucket is there.
  std::vector<StepParts> SegmentParts(const BoundProgram& bound) const;
  // Whatever runs from now on, until the next call, is one run of this program: it takes a new generation of the arena,
  // and finds derived values that are those of the parameters. Throws what Derivation::Run does.
  void NextRun(const BoundProgram& bound) {
    if (bound.derivation) bound.derivation->Run();
    generation_ = arena_->NextGeneration();
  }

  // Grows by one whenever the input arrays move; programs bound before hold old addresses.
  int addresses_version() const { return addresses_version_; }
  Device device() const { return device_; }
  int index() const { return index_; }
  const std::shared_ptr<Arena>& arena() const { return arena_; }
  // Of the last forward; values in the arena are this device's while it equals arena()->generation().
  uint64_t generation() const { return generation_; }

  // Plain arrays, by position of the argument, of the shape that `bound` has them in. Inputs, states, head gradients.
  Tensor Input(const BoundProgram& bound, int argument) const;
  Tensor InputGradient(const BoundProgram& bound, int argument) const;  // throws Error if none is asked for
  RowTensors RowGradientOf(const BoundProgram& bound, const std::string& name) const;  // throws Error if there is none
  // A plan's value that lies in the arena, where it is: until another program runs there.
  Tensor Value(const BoundProgram& bound, int value) const;
  // A copy of output `i` of the last run, in a tensor of its own.
  Tensor CopyOutput(const BoundProgram& bound, int i) const;
  void ZeroInputGradients();
  // Throws Error unless the arena still holds this device's values.
  void CheckFresh(const char* what) const;

 private:
  struct Buffer {
    std::shared_ptr<Chunk> chunk;
    int64_t bytes = 0;
  };
  // By position of the argument; only inputs have them.
  struct Arrays {
    VarPtr var;
    std::vector<Buffer> buffers = {};
  };
  Arrays& HomeOf(const PlanArgument& input) { return input.role == Role::kState ? states_ : inputs_; }
  // Makes room for one argument, zero-filled where it moves, but for what lay there of a state; nothing is bound to the
  // old place then. What throws changes nothing.
  void Reserve(Arrays* arrays, int argument, int64_t bytes);
  static int RowArrayOf(const PlanGradient& gradient);                                             // in row_gradients_
  void* AddRows(const std::shared_ptr<RowGradient>& of, int gradient, BoundProgram* bound) const;  // their address
  std::shared_ptr<Chunk> NewZeros(int64_t bytes, const VarPtr& var) const;
  StepParts LoadParts(const std::vector<PlanArgument>& arguments, SampleRange range, const std::vector<VarPtr>& written,
                      int turn);
  Tensor ArrayOf(const Arrays& arrays, const BoundProgram& bound, int argument) const;
  Operation PartOf(const BoundProgram& bound, int segment, int begin, int end) const;
  std::vector<VarPtr> Variables() const;  // of all that its programs use; not of parameters alone
  void WaitIdle() const;

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<ParameterStore> store_;
  int index_;
  Device device_;
  std::shared_ptr<Arena> arena_;
  Arrays inputs_, states_, input_gradients_;              // what a load writes anew; what stays until it is set
  VarPtr landed_[Loader::kTurns], block_;                 // order access to landing_ and step_
  std::shared_ptr<Chunk> step_;                           // a StepBlock, in device memory
  std::shared_ptr<Chunk> landing_[Loader::kTurns];        // see Loader
  PreparedPtr zero_input_gradients_;                      // nullptr until it is wanted, and when the arrays move
  std::vector<std::weak_ptr<const BoundProgram>> bound_;  // those that somebody still uses
  uint64_t generation_ = 0;
  int addresses_version_ = 0;
  Arrays row_gradients_;  // numbers and rows of argument a: 2 a, 2 a + 1
};

}  // namespace bindery
