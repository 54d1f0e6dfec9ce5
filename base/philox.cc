#include "base/philox.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace bindery {

PhiloxKey StreamKey(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&hash](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3u; };
  for (int shift = 0; shift < 64; shift += 8) add(static_cast<uint8_t>(seed >> shift));
  for (char c : name) add(static_cast<uint8_t>(c));
  return {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)};
}

// Draw p is word p % 4 of block p / 4.
uint32_t PhiloxStream::Next() {
  const uint64_t index = position_ / 4;
  if (!block_valid_ || position_ % 4 == 0) {
    block_ = Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0}, key_);
    block_valid_ = true;
  }
  return block_[position_++ % 4];
}

float PhiloxStream::Normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - double{Uniform()}));  // 1 - u is in (0, 1]
  const double angle = 2.0 * std::numbers::pi * double{Uniform()};
  return static_cast<float>(radius * std::cos(angle));
}

// Lemire, "Fast random integer generation in an interval" (2019): the upper half of a product, where the few lower
// halves that would favour some results are drawn again.
uint64_t PhiloxStream::Below(uint64_t n) {
  if (n == 0) Throw("PhiloxStream::Below: expected n >= 1, got 0");
  for (;;) {
    const uint64_t low = Next();
    const uint64_t bits = uint64_t{Next()} << 32 | low;
    const unsigned __int128 product = static_cast<unsigned __int128>(bits) * n;
    const uint64_t fraction = static_cast<uint64_t>(product);
    if (fraction >= n || fraction >= -n % n) return static_cast<uint64_t>(product >> 64);
  }
}

}  // namespace bindery
