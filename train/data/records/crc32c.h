// CRC-32C (Castagnoli; RFC 3720, B.4 has test vectors), and as TFRecord files mask it.
#pragma once

#include <cstdint>
#include <string_view>

namespace bindery {

uint32_t Crc32c(std::string_view bytes);
// A checksum of data that hold checksums; from tensorflow/core/lib/hash/crc32c.h.
inline uint32_t MaskedCrc32c(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace bindery
