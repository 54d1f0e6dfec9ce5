// Derived values (Plan::derived): what programs make of parameters alone and keep, a Cast of weights to bfloat16 say,
// or weights with a batch-norm folded in, made of running statistics, too.
//
// They lie beside the parameters, once for all programs of a store that want the same one, whatever their shapes and
// modes, and for all devices that share memory, unless states are in them, which each device has for itself: whichever
// device runs first makes them. Before it runs forward, a program makes anew what has become old: a value is, when an
// operation that writes the block that one of its parameters lies in has been pushed since (Engine::Version), whatever
// it was, an update, a SetParams or somebody's own, and also if it failed; or when the values themselves have failed.
// So in training they are made once per update, for all micro-batches, and in prediction once. Nobody sees them: files,
// names and GetParams know of the parameters alone.
//
// What fails, or is skipped, here or in the parameters, fails whoever reads the values, until somebody has seen it:
// from the next forward on they are made anew.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/memory/storage.h"
#include "executor/plan/program.h"

namespace bindery {

// All derived values in one memory of a store. Either of one engine, used by one thread at a time; or those of
// parameters that never change any more: then engines and threads share them, each value is made once, by whoever needs
// it first, and `var` is null.
struct DerivedValues {
  struct Value {
    std::shared_ptr<Chunk> chunk;
    bool is_made = false;
    std::vector<std::optional<uint64_t>> made_of = {};  // versions of its sources
  };
  std::mutex mutex;  // of those that are shared
  VarPtr var;        // of all of them
  std::optional<uint64_t> version;
  std::map<std::string, Value> values;  // by name
};

// Makes those of one program, bound to one device. Thread safety: that of its executor.
class Derivation {
 public:
  // Makes room. `index`: the device's among the store's; `arguments` and `states`: variables of the plan's. Throws
  // DeviceError; what was made stays then.
  Derivation(std::shared_ptr<Engine> engine, Device device, int index, std::shared_ptr<DerivedValues> all,
             std::shared_ptr<const Program> program, const std::vector<VarPtr>& arguments,
             const std::vector<VarPtr>& states);

  std::vector<void*> Addresses() const;  // by slot
  void SetInstance(std::shared_ptr<const Instance> instance, VarPtr arena);
  // What whoever reads the values reads; null where they are there when Run is over.
  const VarPtr& var() const { return all_->var; }
  // Pushes what makes those that are old, if any is, by the calls of the instance. Allocates nothing once it is warm.
  // Of shared values: waits, and throws what the kernels threw.
  void Run();

 private:
  struct Slot {
    DerivedValues::Value* value;
    std::vector<size_t> sources;  // in sources_
  };
  struct Way {  // to make some of them
    std::vector<bool> old;
    bool is_all;  // nothing else in that memory is kept
    PreparedPtr operation;
  };
  void FindOld();
  void RunShared();
  Operation MakeOperation(VarPtr written, bool is_all) const;
  std::vector<std::pair<int, int>> CallsOfOld(bool* use_arena) const;

  std::shared_ptr<Engine> engine_;
  Device device_;
  std::shared_ptr<DerivedValues> all_;
  std::shared_ptr<const Program> program_;
  std::shared_ptr<const Instance> instance_;
  VarPtr arena_;
  std::vector<VarPtr> sources_;  // blocks of the parameters and states
  std::vector<Slot> slots_;
  std::vector<std::optional<uint64_t>> now_;  // versions of the sources
  std::vector<bool> old_;                     // by slot
  bool are_made_ = false;                     // of shared ones: all
  std::vector<Way> ways_;
};

}  // namespace bindery
