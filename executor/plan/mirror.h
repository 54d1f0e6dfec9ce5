// Mirror: how much of what forward computes is computed again in backward, in place of being kept between (the name is
// MXNet's). The bits are the same; memory is paid for with time. What is cheap for its bytes goes first
// (symbol/passes/recompute.h, docs/mirror.md).
#pragma once

#include <cstdint>

namespace bindery {

struct Mirror {
  // Of `bytes`: what memory there is, found out by whoever trains (TrainerOptions, TrainedModelOptions: memory_limit).
  static constexpr int64_t kAutomatic = -1;

  // Working memory of a training program (Plan::arena_bytes) that it may take on a device; 0: without a limit. As
  // little is computed again as keeps it so. Where it cannot be kept, binding throws DeviceError with the least; but for
  // a batch smaller than the described one (the last of an epoch), whose kernels may want more, the least is taken.
  int64_t bytes = 0;
  double share = 1;    // the same, as a share of what the program takes without; above 0. With `bytes`: the smaller
  bool least = false;  // as little memory as it can take, whatever the time

  bool IsOn() const { return bytes != 0 || share < 1 || least; }
  bool operator==(const Mirror&) const = default;
};

// Throws Error for a number that is none.
void CheckMirror(const Mirror& mirror);

}  // namespace bindery
