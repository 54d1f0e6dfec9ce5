// Offsets for storages with known lifetimes, in one arena.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/plan/plan.h"

namespace bindery {

inline constexpr int64_t kArenaAlignment = 64;

// Sets every storage's offset; returns the arena's size. Storages are placed one after the other in the smallest gap
// between those that are alive at the same time, or above them (best fit). The result is the best of several orders of
// placement: by size, by size times lifetime, by lifetime (up to a few thousand storages only: these take quadratic
// time), by first use, by last use; the first that meets the lower bound ends the search. With `reuse` off, each
// storage has bytes of its own.
int64_t AssignOffsets(std::vector<PlanStorage>* storages, bool reuse);
// Bytes alive in each call, rounded up to the alignment, to the last one that has any.
std::vector<int64_t> LiveBytes(const std::vector<PlanStorage>& storages);
// The most of them: no assignment can do with less.
int64_t PeakLiveBytes(const std::vector<PlanStorage>& storages);

}  // namespace bindery
