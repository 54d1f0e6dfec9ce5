// Private to train/updater: what the host updates at a time.
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "engine/kernels/flat.h"
#include "train/updater/updater.h"

namespace bindery {

// Elements begin..end-1 of a block, as a reduction on the host has them.
struct Updater::Range {
  // The same from some element on.
  struct Addresses {
    std::array<const void*, kMaxDevices> gradients;
    std::array<void*, kMaxDevices> replicas;
    const void* weight;
    std::array<void*, kMaxUpdateStates + 1> states, new_states;  // the optimizer's, then the average
  };

  Addresses At(int64_t element) const {
    Addresses at;
    const int64_t size = SizeOf(block.dtype), offset = (element - begin) * size;
    for (size_t d = 0; d < gradients.size(); ++d) at.gradients[d] = static_cast<const char*>(gradients[d]) + offset;
    for (size_t d = 0; d < replicas.size(); ++d) at.replicas[d] = static_cast<char*>(replicas[d]) + offset;
    at.weight = weights ? static_cast<const char*>(weights) + offset : at.replicas[0];
    const int64_t state = (element - states.begin) * size;
    for (size_t i = 0; i < states.slots[slot].size(); ++i) {
      at.states[i] = static_cast<char*>(states.slots[slot][i].data()) + state;
      at.new_states[i] = static_cast<char*>(states.slots[new_slot][i].data()) + state;
    }
    return at;
  }
  // visit(piece, begin, end) for what the range has of the block's parameters.
  template <class Visit>
  void ForEachPiece(const Visit& visit) const {
    auto piece = std::lower_bound(block.pieces.begin(), block.pieces.end(), begin,
                                  [](const Piece& p, int64_t at) { return p.end <= at; });
    for (; piece != block.pieces.end() && piece->begin < end; ++piece) {
      visit(*piece, std::max(begin, piece->begin), std::min(end, piece->end));
    }
  }

  // Where the first replica is not the weights: what no piece has stays as it is.
  void KeepOthers() const {
    if (!weights) return;
    int64_t at = begin;
    const auto keep = [&](int64_t until) {
      const int64_t size = SizeOf(block.dtype), offset = (at - begin) * size;
      if (at < until) {
        flat::Copy(static_cast<const char*>(weights) + offset, static_cast<char*>(replicas[0]) + offset,
                   (until - at) * size);
      }
    };
    ForEachPiece([&](const Piece&, int64_t first, int64_t last) {
      keep(first);
      at = last;
    });
    keep(end);
  }

  int bucket = 0;
  const BlockState& block;
  int64_t begin = 0, end = 0;
  std::span<const void* const> gradients;
  std::span<void* const> replicas;
  size_t optimizer_states = 0;
  const StateRange& states = block.states[0];
  size_t slot = 0, new_slot = 0;  // of the states: those that hold, and where the new ones go
  const void* weights = nullptr;  // of `begin`; none: those of the first replica, which are updated in place
};

}  // namespace bindery
