// The frame of a checkpoint file, as told in proto/checkpoint.proto. Private to train/checkpoint_*.cc.
#pragma once

#include <bit>
#include <cstdint>

#include "base/checked.h"

namespace bindery {

static_assert(std::endian::native == std::endian::little, "a checkpoint's bytes are those of memory");

inline constexpr char kCheckpointMagic[8] = {'B', 'N', 'D', 'C', 'K', 'P', 'T', '\n'};
inline constexpr uint32_t kCheckpointVersion = 2;
inline constexpr int64_t kCheckpointAlignment = 4096;         // of tensors
inline constexpr int64_t kMaxCheckpointHeader = 256 << 20;    // bytes; parsed, they take a few times as much
inline constexpr int64_t kMaxCheckpointFields = 1'000'000;    // of the header: tensors and entries of maps
inline constexpr int64_t kMaxCheckpointStep = INT64_MAX / 2;  // what goes on counting must not overflow

struct CheckpointPreamble {
  char magic[8] = {};
  uint32_t version = kCheckpointVersion;
  uint32_t zero = 0;
  int64_t header_bytes = 0;
  int64_t file_bytes = 0;
  uint64_t header_checksum = 0;
  uint64_t checksum = 0;  // of what is above
};
inline constexpr int64_t kPreambleBytes = sizeof(CheckpointPreamble);
inline constexpr int64_t kPreambleChecked = offsetof(CheckpointPreamble, checksum);
static_assert(kPreambleBytes == 48 && kPreambleChecked == 40);

// The position of a tensor that follows byte `end`.
inline int64_t NextTensor(int64_t end) { return RoundUp(end, kCheckpointAlignment); }

}  // namespace bindery
