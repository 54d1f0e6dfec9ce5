// Program: the kernels made for a plan. Immutable; shared by threads, executors and devices of one kind.
// Compile makes one from a symbol: expand composites -> gradient -> passes -> inference -> fusion -> recomputation ->
// kernels and formats -> order -> memory plan -> verification. Nothing is allocated on a device and nothing runs.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "executor/kernel.h"
#include "executor/plan/mirror.h"
#include "executor/plan/plan.h"
#include "executor/plan/signature.h"
#include "symbol/symbol.h"

namespace bindery {

// What may be switched without changing what is computed, but for rounding. For tests, debugging and comparison.
struct CompileSwitches {
  KernelPolicy policy = KernelPolicy::kFast;
  bool passes = true, fusion = true, inplace = true, reuse_memory = true;
  bool derive = true;  // what is made of parameters alone is kept until these change: casts, in predictions anything
  bool fold = true;    // in predictions batch-norms become part of the weights before them; needs `derive`
  Tuning tuning = Tuning::kOff;
  bool operator==(const CompileSwitches&) const = default;
};

struct CompileOptions {
  Signature signature = {};  // of the symbol
  Mode mode = Mode::kPredict;
  bool with_backward = false;  // training programs that also compute gradients
  DeviceKind device = DeviceKind::kCpu;
  int threads = 1;
  bool plain_parameters = false;  // where the signature has no format, for a group of several kinds of devices
  int devices = 1;                // that take part: with more than one, across-device operators cut segments
  Mirror mirror = {};             // of training programs with backward; not automatic
  CompileSwitches switches = {};
  std::string observe = {};  // a regular expression on value names; matching values are kept, plain
  bool operator==(const CompileOptions&) const = default;
};

struct Program {
  Plan plan;
  std::vector<Kernel> kernels = {};  // per call
};

// Throws ShapeError, ModelError, Error. The symbol's heads become outputs.
std::shared_ptr<const Program> Compile(const Symbol& symbol, const CompileOptions& options);

// A program bound to addresses: the flat list of prepared calls. Belongs to one device; runs in its worker.
class Instance {
 public:
  struct Addresses {
    char* arena = nullptr;
    std::vector<void*> arguments = {}, gradients = {}, auxiliary = {}, derived = {};  // by slot; null where unused
    const StepBlock* step = nullptr;
    Stream* stream = nullptr;
  };
  Instance(std::shared_ptr<const Program> program, const Addresses& addresses);

  // Puts the calls of a segment into the stream, in order; allocates nothing of its own. An exception leaves at the
  // failing call, with the node's name in front of the message. `times`, for benchmarks, gets nanoseconds per call
  // (sized to the number of calls).
  void Run(int segment, std::vector<int64_t>* times = nullptr) const {
    const PlanSegment& all = program_->plan.segments[segment];
    RunCalls(all.begin, all.end, times);
  }
  void RunCalls(int begin, int end, std::vector<int64_t>* times = nullptr) const;
  // The node that is run, `Convolution "conv1"`; "" while there is none. Any thread.
  std::string At() const;
  const Program& program() const { return *program_; }
  void* AddressOf(int value) const;

 private:
  std::shared_ptr<const Program> program_;
  Addresses addresses_;
  std::vector<Call> calls_;
  mutable std::atomic<int> at_{-1};  // the call that is run
};

}  // namespace bindery
