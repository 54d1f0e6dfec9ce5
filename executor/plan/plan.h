// Plan: everything that was decided about a program, as a value. It can be compared, printed (`bindery inspect --plan`)
// and checked (VerifyPlan). Two binds of the same symbol with the same options give equal plans.
//
// A program is a list of calls over values. A value lies in the device's arena, at an offset, while it lives, or in an
// array that outlives the program: an argument, a gradient, an auxiliary state, a derived value. Values that share
// memory on purpose (views, in-place results) share one *storage*: one interval of calls, one range of bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/collective.h"
#include "executor/format.h"
#include "executor/kernel.h"
#include "executor/plan/signature.h"
#include "symbol/infer.h"

namespace bindery {

enum class Place : uint8_t {
  kNone,  // never in memory: nobody reads it
  kArena,
  kArgument,   // slot: index in Plan::arguments
  kGradient,   // slot: index in Plan::gradients
  kAuxiliary,  // slot: index in Plan::auxiliary
  kDerived,    // slot: index in Plan::derived
};

struct PlanValue {
  std::string name = {};  // "conv1_output", "fc1_weight", "conv1_output@aBcd8b" for a reordered copy
  ValueType type = {};
  Format format = {};
  Place place = Place::kNone;
  int slot = -1;     // argument, gradient, auxiliary or derived index
  int storage = -1;  // kArena: index in Plan::storages
  int64_t bytes() const { return StorageBytes(format, type.dtype, type.shape); }
  bool operator==(const PlanValue&) const = default;
};

// A range of arena bytes, in use from the start of call `first` to the end of call `last`.
struct PlanStorage {
  int64_t offset = 0, bytes = 0;
  int first = 0, last = 0;
  bool operator==(const PlanStorage&) const = default;
};

struct PlanCall {
  std::string op = {}, node = {};              // operator and node; "Reorder", "Copy", "AddTo" are the compiler's own
  std::string who = {};                        // what errors call it: of a gradient, the node that the user made
  std::string implementation = {};             // of the kernel
  std::vector<int> inputs = {}, outputs = {};  // values; -1: not given (unused output)
  int scratch = -1;                            // storage
  int threads = 1;
  bool again = false;  // of backward: gives once more what a call of forward gave (Mirror)
  bool operator==(const PlanCall&) const = default;
};

enum class Phase : uint8_t { kForward, kBackward };

// Values that are combined over all devices after a segment: `input` of each device, in device order, into `output`
// of each. Both lie in the arena, which the operations that exchange them name.
struct PlanExchange {
  Collective what = Collective::kAllReduceSum;
  int input = -1, output = -1;
  bool operator==(const PlanExchange&) const = default;
};

// Calls that run without waiting for another device.
struct PlanSegment {
  Phase phase = Phase::kForward;
  int begin = 0, end = 0;                    // calls
  std::vector<PlanExchange> exchanges = {};  // when all devices are through
  bool operator==(const PlanSegment&) const = default;
};

// An argument of the signature, with all that was found out about it.
struct PlanArgument {
  std::string name = {};
  Role role = Role::kParameter;
  int place = -1;  // see Argument
  ValueType type = {};
  Format format = {};  // plain, or the storage format of a parameter
  bool is_parameter() const { return role == Role::kParameter; }
  int64_t bytes() const { return StorageBytes(format, type.dtype, type.shape); }
  bool operator==(const PlanArgument&) const = default;
};

struct PlanState {
  std::string name = {};
  ValueType type = {};  // plain
  bool operator==(const PlanState&) const = default;
};

// What is made of parameters alone, and in predictions of states, and kept beside them, so that not every run makes it.
struct PlanDerived {
  std::string name = {};  // what it is made of, and how: equal names are equal values, in all programs of a group
  int64_t bytes = 0;
  std::vector<int> arguments = {}, states = {};  // that it is made of
  bool operator==(const PlanDerived&) const = default;
};

// A gradient is an array like its argument, or two of a table's (symbol/ops/indexing.h, AsRows): numbers, and rows.
enum class GradientPart : uint8_t { kWhole, kRowNumbers, kRows };

struct PlanGradient {
  int argument = -1;
  GradReq req = GradReq::kWrite;
  bool is_zero = false;  // the heads do not depend on it: nothing computes it, the executor fills it with zero
  GradientPart part = GradientPart::kWhole;
  bool operator==(const PlanGradient&) const = default;
};

struct PlanOutput {
  std::string name = {};
  int value = -1;  // plain, alive to the end of the program
  bool operator==(const PlanOutput&) const = default;
};

struct Plan {
  std::vector<PlanValue> values = {};
  std::vector<PlanStorage> storages = {};
  std::vector<PlanCall> calls = {};
  std::vector<PlanSegment> segments = {};
  std::vector<PlanArgument> arguments = {};  // those of the signature, then head gradients
  std::vector<PlanState> auxiliary = {};
  std::vector<PlanDerived> derived = {};
  std::vector<PlanGradient> gradients = {};  // in the order of arguments
  std::vector<PlanOutput> outputs = {};      // heads of the symbol, in order
  std::vector<int> head_gradients = {};      // per head: the argument that is its gradient, or -1
  std::vector<PlanOutput> observed = {};     // values watched by a monitor, in order of execution
  // Calls [0, derive_calls) make the derived values, and nothing else: they are run when a parameter has changed. The
  // segments have the others.
  int derive_calls = 0;
  std::vector<int> updates = {};  // auxiliary slots whose candidates forward reads and, last, writes
  int64_t arena_bytes = 0;
  int64_t peak_live_bytes = 0;  // the lower bound: most bytes alive at one call
  bool operator==(const Plan&) const = default;

  const PlanArgument& ArgumentOf(const PlanGradient& gradient) const { return arguments[gradient.argument]; }
  std::vector<int> GradientCalls() const;  // per gradient: the call that writes it, -1 if none does
  int64_t GradientBytes(int gradient) const;
};

std::string ToString(const Plan& plan);

// Checks a plan against the rules, whatever made it; throws Error naming the first breach:
//   every value is written before it is read, and once; no two storages that are alive together overlap; storages lie
//   within the arena; scratch belongs to one call; two values of one storage are never both needed with different
//   content; views and in-place pairs have equal formats; segments cover the calls in order and never go back from
//   backward to forward; every gradient asked for fits its argument and is written once, in backward, and every state
//   that is updated once, in forward, after its last reader; derived values are made of parameters, and of states that
//   are not updated, alone, before the first segment, and nothing else of what is made there is read later; what is
//   exchanged lies in the arena.
void VerifyPlan(const Plan& plan);

// Bytes by what they are for. `activations` and `workspace`: arena bytes that hold values and scratch at the call where
// most is alive.
struct MemoryReport {
  int64_t parameters = 0, derived = 0, gradients = 0, auxiliary = 0, inputs = 0, arena = 0, peak_live = 0,
          activations = 0, workspace = 0;
  int64_t total() const { return parameters + derived + gradients + auxiliary + inputs + arena; }
};
// `beside`: plans of devices that share the memory. What one of them has of parameters, and of what is made of these
// alone, is not counted again.
MemoryReport ReportMemory(const Plan& plan, const std::vector<const Plan*>& beside = {});
std::string ToString(const MemoryReport& report);

}  // namespace bindery
