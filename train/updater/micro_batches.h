// Micro-batches: a batch in pieces, which are computed one after the other and are one step together
// (Updater::Compute). Working memory is that of a piece.
//
// Thread safety: immutable; any thread may use one.
#pragma once

#include <cstdint>
#include <vector>

#include "base/checked.h"
#include "executor/batch.h"
#include "executor/group/options.h"
#include "executor/group/split_batch.h"
#include "symbol/symbol.h"

namespace bindery {

// In how many pieces batches are cut: `pieces` of `batch_size` samples, and none of any batch larger than those; or,
// where that is one, none at all.
struct MicroBatches {
  static constexpr int64_t kAutomatic = 0;  // in options: the fewest with which what is planned fits (train/memory.h)

  int64_t pieces = 1, batch_size = 1;
  // Not 0: in place of pieces, blocks of that many samples, each computed by one device (train/updater/blocks.h).
  int64_t block = 0;

  // Of a batch of `samples`, at least 1.
  int64_t PiecesOf(int64_t samples) const;
  int64_t largest() const { return CeilDiv(batch_size, pieces); }  // samples of a piece
};

// Is the gradient of this head divided by what a piece has, and not by what the whole batch has: by valid labels, or as
// a mean (IsMean)?
bool IsMeanOfPiece(const NodePtr& head);

// The extent of the descriptions' batch axis; 1 if there is none.
int64_t BatchSizeOf(const std::vector<DataDesc>& descriptions);

// The options for pieces: data and labels are described with `samples` in place of the batch size, and gradients add
// up, where they are asked for in one word. Throws Error for what is of a whole batch: gradients of inputs, and states.
GroupOptions ForMicroBatches(const GroupOptions& whole, int64_t samples);

// The first `samples` samples of a batch, of the group's arrays in its order, in `pieces` pieces of consecutive
// samples, which differ by at most one in size. What lies in host memory is copied; what lies on devices is cut where
// it lies, along its first axis (throws DataError if its samples lie along another one). Arrays without batch axis go
// with every piece. Pieces say where in the batch they begin (Batch::first), so that random numbers are those of the
// whole. One piece: the batch itself.
std::vector<BatchPtr> CutBatch(const BatchPtr& batch, const GroupOptions& group, int64_t samples, int64_t pieces);
// These samples of it alone.
BatchPtr CutBatch(const BatchPtr& batch, const GroupOptions& group, const SampleRange& range);

}  // namespace bindery
