// Steps of a model: how long, and what they cost besides.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/device.h"
#include "executor/kernel.h"
#include "executor/plan/mirror.h"

namespace bindery::bench {

struct ModelBenchOptions {
  std::string model;
  int64_t batch_size = 64;    // of a step
  int64_t micro_batches = 1;  // that it is cut into
  int64_t block = 0;          // not 0: training in reproducible blocks of that many samples (train/updater/blocks.h)
  bool training = true;
  std::vector<Device> devices = {Cpu(0)};
  int threads = 0;  // per device; 0: the cores, shared out
  int steps = 20, warmup = 3;
  bool per_kernel = false;            // also the kernels one by one
  std::string precision = "float32";  // train/precision.h; or int8, of predictions (train/quantize.h)
  bool derive = true;                 // CompileSwitches
  Mirror mirror = {};
  Tuning tuning = Tuning::kOff;  // CompileSwitches
  bool resident = false;         // the batch lies on the one device from the beginning; else every step copies it there
};

struct KernelTime {
  std::string op, node, implementation;
  double milliseconds = 0;           // median
  double operations = 0, bytes = 0;  // train/trace/call_times.h
};

// Times in milliseconds. A step ends when its results are there. `kernels` is the time of the step's own kernels
// measured in place, one by one, in other steps of the same run, alternating with the ones timed whole: the sum on the
// slowest device, and the update. On GPUs nothing is measured so: what took the host's time would be to enqueue them.
struct ModelBenchResult {
  ModelBenchOptions options;
  int threads = 1;
  double bind_ms = 0;
  double min_ms = 0, median_ms = 0;
  bool has_kernels = false;
  double kernels_min_ms = 0, kernels_median_ms = 0;
  double ratio = 0;  // median over pairs (whole step, kernels of the next) of their quotient
  // Per step.
  double allocations_ours = 0, allocations_libraries = 0, page_faults = 0;
  std::vector<std::pair<const char*, double>> of_gpus = {};  // what CudaCounts has (engine/cuda/report.h)
  int64_t arena_bytes = 0, peak_live_bytes = 0;
  bool plans_equal = false;  // of two binds
  int calls_in_plan = 0, reorders = 0;
  std::vector<KernelTime> kernels = {};
};

ModelBenchResult RunModelBench(const ModelBenchOptions& options);

// Steps of one kind and of another, in turns.
struct PairBenchResult {
  double min_ms = 0, median_ms = 0, other_min_ms = 0, other_median_ms = 0;
  double ratio = 0;  // median of other / one, over pairs of neighbours: how many times as fast
  int64_t arena_bytes = 0, other_arena_bytes = 0;
  int again = 0;          // calls of one that compute a value once more
  bool same_bits = true;  // parameters of both after all steps
};
PairBenchResult RunPairBench(const ModelBenchOptions& options, const ModelBenchOptions& others);

// Nanoseconds per operator of a chain of `length` one-element additions, best of many runs.
double ChainNanoseconds(int length);

}  // namespace bindery::bench
