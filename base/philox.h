// Philox4x32-10: a counter-based random generator. Random bits are a pure function of (key, counter), so a sample's
// dropout mask is the same on any device, in any split and after a resume.
//
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC'11); checked against the
// published Random123 vectors.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace bindery {

struct PhiloxKey {
  uint32_t k0 = 0, k1 = 0;
  bool operator==(const PhiloxKey&) const = default;
};
using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock Philox4x32(PhiloxCounter c, PhiloxKey key) {
  uint32_t k0 = key.k0, k1 = key.k1;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// The key of a named stream: (seed, name) hashed by 64-bit FNV-1a over the seed's 8 bytes and the name.
PhiloxKey StreamKey(uint64_t seed, std::string_view name);

// Uniform in [0, 1) from 32 random bits: the upper 24 as a fraction, exact in float.
constexpr float UniformFloat(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1.0p-24f; }

// A sequential generator over one stream: for initialisers, shuffles and drawn data. Its whole state is `position`.
class PhiloxStream {
 public:
  PhiloxStream(uint64_t seed, std::string_view name, uint64_t position = 0)
      : key_(StreamKey(seed, name)), position_(position) {}
  uint32_t Next();  // 32 random bits
  float Uniform() { return UniformFloat(Next()); }
  float Uniform(float low, float high) { return low + (high - low) * Uniform(); }
  float Normal();              // N(0, 1), Box-Muller; takes two draws
  uint64_t Below(uint64_t n);  // uniform in 0 .. n-1, n >= 1, without bias
  uint64_t position() const { return position_; }

 private:
  PhiloxKey key_;
  uint64_t position_;    // draws taken
  PhiloxBlock block_{};  // the block that holds the draw at position_, once block_valid_
  bool block_valid_ = false;
};

}  // namespace bindery
