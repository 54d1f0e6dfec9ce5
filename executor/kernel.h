// Kernel: one operator made ready for exact shapes, dtypes, formats and a number of threads.
//
// Making: a KernelMaker looks at a KernelSpec (everything known at bind), chooses an algorithm, and says which formats
// it takes and gives and how much scratch it needs; or declines, and the next table is asked. The compiler then
// reorders inputs to the formats taken. Binding: `bind` is called once addresses are known and returns a Call, the
// prepared step that the program's list holds. Running: the Call; no decisions, no allocation of ours, no look-ups.
//
// Tables (executor/kernel_table.h): executor/kernels/reference (one plain loop in double per operator: the truth) and
// executor/kernels/cpu (fast).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/device.h"
#include "engine/stream.h"
#include "executor/format.h"
#include "executor/step_block.h"
#include "executor/tuning.h"
#include "symbol/infer.h"
#include "symbol/op_def.h"

namespace bindery {

enum class Mode : uint8_t { kPredict, kTrain };

struct KernelSpec {
  DeviceKind device = DeviceKind::kCpu;  // where it will run
  const OpDef* op = nullptr;
  AnyAttrs attrs = {};
  std::string node_name = {};                        // unique in the program; keys the random numbers
  std::string who = {};                              // what errors call it (Describe); empty: operator and node
  std::vector<ValueType> inputs = {}, outputs = {};  // hidden outputs included; types as inferred
  std::vector<Format> input_formats = {};            // as the producers leave them
  // True for a parameter whose storage format is still open: the format that the kernel asks for becomes the
  // parameter's.
  std::vector<bool> input_is_open = {};
  // True for what predictions make of parameters alone, and for these: a reorder of it is made once, not in each run.
  std::vector<bool> input_is_kept = {};
  bool IsKept(size_t input) const { return input < input_is_kept.size() && input_is_kept[input]; }
  // Wanted formats of outputs, where somebody has a wish (a parameter's gradient: the parameter's format). Following it
  // spares a reorder; not binding.
  std::vector<std::optional<Format>> output_wishes = {};
  // False if nobody reads the output: the kernel gets a null pointer and may skip the work. At least one is used;
  // output 0 always is, unless the operator has several outputs and none of them hidden (the gradients of several
  // inputs).
  std::vector<bool> output_used = {};
  Mode mode = Mode::kTrain;
  std::optional<int64_t> batch = {};  // its extent on the device, if there is one: some attributes follow it
  int threads = 1;                    // the team's size when the kernel runs, on a CPU
  Tuning tuning = Tuning::kOff;

  std::string Who() const;  // what whoever runs it puts before the errors of its kernel, which do not name it
  template <OpAttrs A>
  const A& attributes() const {
    return attrs.get<A>();
  }
};

// Device addresses for one instance of a program. 64-byte aligned. Null for unused outputs.
struct KernelArgs {
  std::span<void*const> inputs = {}, outputs = {};
  void* scratch = nullptr;          // scratch_bytes of the kernel; content undefined, not kept
  const StepBlock* step = nullptr;  // in device memory
  Stream* stream = nullptr;         // where the Call puts its work; a CPU's kernel works at once
};

// Prepared work: enqueues it, at the same addresses each time, reading nothing on the host that changes from step to
// step.
using Call = std::function<void()>;

struct Kernel {
  std::string implementation = {};          // for the plan: "reference", "dnnl brgconv:avx2", "loop"
  std::vector<Format> input_formats = {};   // what it takes
  std::vector<Format> output_formats = {};  // what it gives; opaque ones with their size
  int64_t scratch_bytes = 0;
  int threads = 1;                        // 1 or the whole team
  std::vector<InplacePair> inplace = {};  // pairs that may share memory (formats of both must be equal)
  std::function<Call(const KernelArgs&)> bind = {};
};

using MaybeKernel = std::optional<Kernel>;  // nullopt: declined
using KernelMaker = MaybeKernel (*)(const KernelSpec&);
struct KernelEntry {
  const char* op;
  KernelMaker make;
};

// A user's kernel for a user's operator (see AddOp) on a kind of device, for every policy. Thread safe. A
// std::function, so that it may capture; throws Error if there is one.
void AddKernel(const std::string& op, std::function<MaybeKernel(const KernelSpec&)> make,
               DeviceKind kind = DeviceKind::kCpu);

// Which tables are asked: kFast first the device's own, then `reference`; kReference only the latter.
enum class KernelPolicy : uint8_t { kFast, kReference };
// The kernel for spec.device. Throws Error if no table has one for the operator ('no kernel for operator "X" on cpu
// with dtype ...'). Fast kernels are made for inputs and outputs that have elements; all else is the reference's, which
// the compiler seldom needs (see compile.cc).
Kernel MakeKernel(const KernelSpec& spec, KernelPolicy policy);

// Is there a kernel for the operator at all, for some types?
bool HasKernel(const std::string& op, DeviceKind kind);

// Reorder from one format to another (equal logical shape and dtype), as a kernel with one input and one output.
Kernel MakeReorder(DType dtype, const Shape& shape, const Format& from, const Format& to, int threads,
                   KernelPolicy policy, DeviceKind kind = DeviceKind::kCpu);

}  // namespace bindery
