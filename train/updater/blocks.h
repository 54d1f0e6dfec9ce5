// Blocks: a step that ends in the same bits on any number of devices of one kind, by any workload.
//
// The batch is cut into blocks of a fixed number of samples (the last one may be smaller). Each is computed by itself,
// in the same way by whichever device has it: the same shapes, so the same kernels, one thread, batch-norm by its own
// statistics, random numbers by the sample's place in the batch. A device has some blocks in a row and computes them
// one after the other, in the working memory of one. Their gradients are added up in the order of one binary tree over
// all blocks (train/updater/tree_sum.h), and so are what the devices have left. What the blocks make of auxiliary
// states (running statistics) is gathered, and a step moves them once, to the mean by samples, in the order of blocks.
//
// Blocks are run by themselves: no device waits for another before all are computed. Then the sum is the gradient of
// the first device that has samples, and zero that of all others, and the update is as ever (train/updater/updater.h).
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/memory/storage.h"
#include "engine/step.h"
#include "executor/batch.h"
#include "executor/data_parallel_executor_group.h"
#include "executor/group/options.h"
#include "executor/group/split_batch.h"
#include "train/updater/tree_sum.h"

namespace bindery {

// The options of a group that is to compute in blocks: its arrays are described with a block for each device, each of
// which has one thread and computes for itself. Whoever looks a row of a table up gets a whole gradient. Throws Error
// for `block` < 1 and for what blocks cannot give: placements, states that are carried, gradients of inputs, gradients
// that are added to what is there.
GroupOptions ForBlocks(const GroupOptions& whole, int64_t block);

// Samples 0 .. samples-1, in their order.
std::vector<SampleRange> BlocksOf(int64_t samples, int64_t block);
// For each round, one batch for each of the devices, null for those that sit out: blocks are dealt out in their order,
// so that what a round gives is of consecutive samples. For predictions, which are not added up.
std::vector<std::vector<BatchPtr>> DealBlocks(const BatchPtr& batch, const GroupOptions& group, int64_t samples,
                                              int64_t block);

class BlockStep {
 public:
  // `group`: of one device per replica, bound with ForBlocks; outlives this. `workload` as in GroupOptions: of blocks.
  // Throws Error if the group is not bound so, and ModelError for what is of more samples than a block: heads that
  // divide by a number that is not the batch's (valid labels, means), `sync` batch-norm, states that are no real
  // numbers, and gradients by rows.
  BlockStep(ExecutorGroup* group, int64_t block, const std::vector<double>& workload);
  ~BlockStep();

  int64_t block() const { return block_; }
  const std::vector<double>& workload() const { return workload_; }
  void SetWorkload(const std::vector<double>& workload);  // throws Error where SplitBatch does

  // Of the step that is to be computed: what is to be run, in this order. Throws what CutBatch does.
  struct Piece {
    size_t device = 0;
    std::vector<BatchPtr> batches = {};  // one for each device, but null for all others
  };
  std::vector<Piece> Begin(const BatchPtr& batch, int64_t samples);
  // When forward and backward of a piece have been pushed; and those of all.
  void EndPiece(size_t piece) const;
  void End() const;

 private:
  struct Schedule;
  struct KeptStates;  // what a block makes of the states
  using Tensors = std::vector<Tensor>;

  const Schedule& Of(int64_t samples);
  std::unique_ptr<Schedule> Make(int64_t samples);
  const Tensors& Slot(size_t device, int slot);  // of a device: room for a sum, by block of gradients
  void AppendSum(size_t device, const std::vector<TreeSum::Action>& actions, StepParts* parts);
  void AppendKeep(KeptStates* state, StepParts* parts) const;
  void AppendTop(const std::vector<TreeSum>& of_devices, const Schedule& schedule, StepParts* parts);
  void AppendStates(const Schedule& schedule, StepParts* parts) const;

  DataParallelExecutorGroup& group_;
  const int64_t block_;
  std::vector<double> workload_;
  std::vector<int> gradients_, states_;         // blocks of the group's store that have them
  std::vector<std::vector<Tensors>> slots_;     // by device and slot
  std::list<std::unique_ptr<Schedule>> known_;  // those used last first
};

}  // namespace bindery
