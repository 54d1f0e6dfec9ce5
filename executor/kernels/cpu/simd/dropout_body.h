// Part of loops_body.h: dropout masks. Blocks of Philox4x32-10 (base/philox.h) side by side: each 64-bit lane holds one
// word of one block in its lower half; what gathers in the upper half is ignored by the next multiplication.

typedef uint64_t W __attribute__((vector_size(kBytes)));
constexpr int kWords = kBytes / 8;

// Products of the lower halves.
inline W Times(W a, uint32_t b) { return (W)MultiplyLow32((Register)a, (Register)(W{} + b)); }

struct PhiloxLanes {
  W c0, c1, c2, c3;

  void Round(uint32_t k0, uint32_t k1) {
    const W p0 = Times(c0, 0xD2511F53u), p1 = Times(c2, 0xCD9E8D57u);
    c0 = (p1 >> 32) ^ c1 ^ k0;
    c1 = p1;
    c2 = (p0 >> 32) ^ c3 ^ k1;
    c3 = p0;
  }

  // Four bytes per block, 1 where the upper 24 bits of its word reach the threshold. x < t shows in the difference's
  // sign.
  W Kept(uint32_t threshold) const {
    const auto bit = [threshold](W word) __attribute__((always_inline)) {
      return ((((word >> 8) & 0xffffff) - threshold) >> 63) ^ 1;
    };
    return bit(c0) | bit(c1) << 8 | bit(c2) << 16 | bit(c3) << 24;
  }
};

// 8 kWords elements from block `first` on: even blocks and odd ones apart, so that their results interleave in memory.
inline W MaskOf(const Table::DropoutKey& key, uint32_t first, uint32_t threshold) {
  W even;
  for (int i = 0; i < kWords; ++i) even[i] = first + 2 * static_cast<uint32_t>(i);
  const W zero{};
  PhiloxLanes a{even, zero + key.c1, zero + key.c2, zero + key.c3}, b = a;
  b.c0 += 1;
  uint32_t k0 = key.k0, k1 = key.k1;
  for (int round = 0; round < 10; ++round) {
    a.Round(k0, k1);
    b.Round(k0, k1);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return a.Kept(threshold) | b.Kept(threshold) << 32;
}

void DropoutMask(const Table::DropoutKey& key, int64_t first, int64_t n, uint32_t threshold, uint8_t* mask) {
  constexpr int64_t kStep = 8 * kWords;
  uint32_t block = static_cast<uint32_t>(first / 4);
  int64_t done = 0;
  for (; done + kStep <= n; done += kStep, block += 2 * kWords) {
    const W bytes = MaskOf(key, block, threshold);
    __builtin_memcpy(mask + done, &bytes, kStep);
  }
  if (done < n) {
    const W bytes = MaskOf(key, block, threshold);
    __builtin_memcpy(mask + done, &bytes, static_cast<size_t>(n - done));
  }
}

void MaskedScale(const Real* x, const uint8_t* mask, Real* y, int64_t n, Real factor) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * (mask[i] ? factor : Real{0});
}
