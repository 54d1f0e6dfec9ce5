// What a training takes of the devices' memory, before anything is bound; and what fits: the largest batch, or the
// fewest micro-batches. Programs are compiled to know it, nothing is allocated on a device.
//
//   for (const MemoryNeed& need : PlanMemory(net, {.devices = {Cpu(0)}, .data = {{"data", {64, 1, 28, 28}}}}, &adam))
//     Print(need.device, need.total());
//
// Bytes are those of arrays, programs' working memory and optimizer state: not of batches on the host, of metrics, of
// libraries, nor of the process itself.
//
// Thread safety: functions; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "executor/data_parallel_executor_group.h"
#include "executor/group/options.h"
#include "executor/plan/plan.h"
#include "symbol/symbol.h"
#include "train/optimizers/optimizer.h"
#include "train/updater/micro_batches.h"

namespace bindery {

struct MemoryNeed {
  Device device;
  int64_t samples = 0;        // its share
  MemoryReport program = {};  // what it shares with devices before it is theirs
  int64_t optimizer = 0;      // state, and what the update works in; of the host's, the first device's here
  int64_t total() const { return program.total() + optimizer; }
};

// Of plans as DataParallelExecutorGroup::MakePlans gives them for these options. `optimizer`: null for none; `average`:
// an average of the weights is kept, too.
std::vector<MemoryNeed> NeedsOf(const std::vector<DevicePlan>& plans, const GroupOptions& options,
                                const Optimizer* optimizer, bool average);
// On each device with samples, bound by these options (without placements: throws Error). Throws what binding does.
std::vector<MemoryNeed> PlanMemory(const Symbol& symbol, const GroupOptions& options, const Optimizer* optimizer,
                                   bool average = false);

// What is short where `limit` bytes are what each device has; 0: what there is, which CPUs share: the machine's
// available memory, of a GPU seven eighths of its memory, of a simulated device no end. Empty: it fits.
std::string WhatIsShort(const std::vector<MemoryNeed>& needs, int64_t limit);

// The largest of 1 .. most for which `fits` holds, which is asked about 2 log2(most) times; 0: not even 1. What fits is
// taken to fit for any smaller number.
int64_t LargestThatFits(int64_t most, const std::function<bool(int64_t)>& fits);

// The mirror with which what is bound by these options fits, `limit` as above: none where it fits without, else the
// bytes that are left for working memory, which is logged. Nothing: no mirror does that; `lacking` then says what is
// short with the least.
std::optional<Mirror> FitMirror(const Symbol& symbol, const GroupOptions& options, const Optimizer* optimizer,
                                bool average, int64_t limit, std::string* lacking);

// The fewest micro-batches with which a batch as described by `whole` fits, which is logged. Throws DeviceError where
// not even single samples do, with what they need. An automatic mirror is used, as far as each number needs it.
MicroBatches FitMicroBatches(const Symbol& symbol, const GroupOptions& whole, const Optimizer* optimizer, bool average,
                             int64_t limit);

// How a batch is computed.
struct BatchPlan {
  MicroBatches cut;
  Mirror mirror;  // of what is bound for its pieces; not automatic
};
// What is in a TrainerOptions, checked: `pieces`, or the fewest that fit where it is MicroBatches::kAutomatic, and
// whole.mirror, or one that fits. Of both automatic the mirror comes first: it changes no bit. Throws Error for a number
// below 0 or beyond the samples of a batch, and for a limit where nothing is automatic; DeviceError where nothing fits.
BatchPlan PlanBatch(int64_t pieces, int64_t limit, const Symbol& symbol, const GroupOptions& whole,
                    const Optimizer* optimizer, bool average);

std::string Mebibytes(int64_t bytes);  // "12.3 MiB"

}  // namespace bindery
