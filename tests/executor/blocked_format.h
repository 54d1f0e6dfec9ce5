// Blocked({0, 1, 2, 3}, {{1, 8}, {0, 8}}): the format that libraries write as ABcd8b8a.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>

#include "executor/format.h"

namespace bindery {

// The axes from the outermost in, then the blocks (axis, size).
inline Format Blocked(std::initializer_list<int> order, std::initializer_list<std::pair<int, int>> blocks) {
  Format format;
  format.kind = Format::Kind::kStrided;
  for (int axis : order) format.order[format.rank++] = static_cast<int8_t>(axis);
  for (auto [axis, size] : blocks) {
    format.block_axis[format.num_blocks] = static_cast<int8_t>(axis);
    format.block_size[format.num_blocks++] = static_cast<int16_t>(size);
  }
  return format;
}

}  // namespace bindery
