#include "train/data/records/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

namespace bindery {
namespace {

// Eight bytes at a time: table k is of a byte with k bytes of zeros behind it (Kounavis and Berry 2005).
using Tables = std::array<std::array<uint32_t, 256>, 8>;
constexpr Tables kTables = [] {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}();

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  static_assert(std::endian::native == std::endian::little);
  uint32_t crc = ~uint32_t{0};
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    uint64_t next;
    std::memcpy(&next, bytes.data(), 8);
    next ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(next >> (8 * k)) & 0xff];
  }
  for (const char c : bytes) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

}  // namespace bindery
