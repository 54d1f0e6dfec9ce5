// Part of loops_body.h: dropout masks. Blocks of Philox4x32-10 (base/philox.h) side by side, one per lane.

constexpr int kBlocks = 2 * kLanes;   // enough independent work to hide the multiplications

void DropoutMask(const Loops::DropoutKey& key, int64_t first, int64_t n, uint32_t threshold, uint8_t* mask) {
  for (int64_t done = 0; done < n; done += 4 * kBlocks) {
    uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
    const uint32_t block = static_cast<uint32_t>((first + done) / 4);
    for (int l = 0; l < kBlocks; ++l) {
      c0[l] = block + static_cast<uint32_t>(l);
      c1[l] = key.c1;
      c2[l] = key.c2;
      c3[l] = key.c3;
    }
    uint32_t k0 = key.k0, k1 = key.k1;
    for (int round = 0; round < 10; ++round) {
      for (int l = 0; l < kBlocks; ++l) {
        const uint64_t p0 = uint64_t{0xD2511F53u} * c0[l];
        const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2[l];
        const uint32_t next0 = static_cast<uint32_t>(p1 >> 32) ^ c1[l] ^ k0;
        const uint32_t next2 = static_cast<uint32_t>(p0 >> 32) ^ c3[l] ^ k1;
        c1[l] = static_cast<uint32_t>(p1);
        c3[l] = static_cast<uint32_t>(p0);
        c0[l] = next0;
        c2[l] = next2;
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    // An element is kept if the upper 24 bits of its word reach the threshold; four of them make 32 bits of mask.
    uint32_t kept[kBlocks];
    for (int l = 0; l < kBlocks; ++l) {
      const auto bit = [threshold](uint32_t word) __attribute__((always_inline)) { return uint32_t{(word >> 8) >= threshold}; };
      kept[l] = bit(c0[l]) | bit(c1[l]) << 8 | bit(c2[l]) << 16 | bit(c3[l]) << 24;
    }
    const int64_t left = n - done;
    __builtin_memcpy(mask + done, kept, static_cast<size_t>(left < 4 * kBlocks ? left : 4 * kBlocks));
  }
}

void MaskedScale(const float* x, const uint8_t* mask, float* y, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * (mask[i] ? factor : 0.0f);
}
