// A stand-in for NCCL (engine/cuda/nccl_api.h) on the fake's GPUs: bytes that are brought from GPU to GPU, on their
// streams, each of which waits there until the others have come to their part of it. Whatever is linked with the fake
// finds it (install.cc).
//
// It refuses, and reports as a violation, what NCCL refuses or what would hang there: a GPU twice in a communicator,
// calls of several ranks outside of a group, with the stream of another GPU than the communicator's, without that GPU's
// context or while the stream is captured, communicators that are no more, of which only some ranks are aborted, or
// outside of a group. Two ends of different sizes are a violation, and hang; work of two communicators at once on one GPU is
// a violation, too.
#pragma once

#include <cstdint>

#include "engine/cuda/nccl_api.h"

namespace bindery::cuda::fake {

NcclPtr Nccl();

struct NcclCounts {
  int64_t communicators = 0, aborted = 0;  // ranks
  int64_t groups = 0, sends = 0, broadcasts = 0;
};
NcclCounts CountNccl();  // so far

// Of what a group enqueues: the next, once, or one after so many.
enum class NcclFault : uint8_t {
  kNone,
  kHangs,          // until ReleaseNccl, or it is aborted
  kFails,          // until it is aborted, NCCL tells of an error
  kEndsAndFails,   // having brought nothing, and NCCL tells of an error
  kIsNotEnqueued,  // the group returns an error
};
void BreakNccl(NcclFault fault, int skipped = 0);
void ReleaseNccl();
// Groups that end from now on wait, before anything of them is enqueued or is over, until they are let go on.
void HoldGroups(bool yes);
int HeldGroups();           // now
void HoldAborts(bool yes);  // they wait, before anything has ended
int HeldAborts();           // now
void RefuseCommunicators(bool yes);

}  // namespace bindery::cuda::fake
