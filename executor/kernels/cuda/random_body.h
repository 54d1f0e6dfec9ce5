// Random numbers: the CPU's words, so the CPU's masks.
#pragma once

#include <cmath>

#include "base/philox.h"
#include "executor/kernels/cuda/random_args.h"
#include "executor/kernels/cuda/values.h"

namespace bindery::cuda {

// StreamKey of base/philox.h, and a step's part in it.
__device__ inline PhiloxKey KeyOf(const Words& words) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&hash](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3u; };
  for (int shift = 0; shift < 64; shift += 8) add(static_cast<uint8_t>(words.step->seed >> shift));
  for (int i = 0; i < words.name_length; ++i) add(static_cast<uint8_t>(words.name[i]));
  return {static_cast<uint32_t>(hash),
          static_cast<uint32_t>(hash >> 32) ^ static_cast<uint32_t>(words.step->step >> 32)};
}

// Word i of the sample that an element belongs to.
struct WordsOf {
  PhiloxKey key;
  const StepBlock& step;
  uint64_t sample;
  __device__ uint32_t operator()(int64_t i) const {
    const PhiloxBlock block =
        Philox4x32({static_cast<uint32_t>(i / 4), static_cast<uint32_t>(sample),
                    static_cast<uint32_t>(sample >> 32) ^ (step.micro_batch << 16), static_cast<uint32_t>(step.step)},
                   key);
    return block[static_cast<size_t>(i % 4)];
  }
  __device__ uint64_t Two(int64_t i) const { return uint64_t{(*this)(2 * i)} << 32 | (*this)(2 * i + 1); }
};

// The upper 64 bits of a product.
__device__ inline uint64_t High(uint64_t a, uint64_t b) {
  const uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & 0xffffffffu);
  return a1 * b1 + (middle >> 32) + (other >> 32);
}

// The category of element i of the output by 53 random bits.
__device__ inline int64_t Category(const DrawArgs& args, int64_t i, uint64_t bits) {
  const int64_t categories = static_cast<int64_t>(args.range), first = i / args.draws * categories;
  const auto at = [&](int64_t k) { return Number(args.in, first + k); };
  double most = -std::numeric_limits<double>::infinity();
  for (int64_t k = 0; k < categories; ++k) most = std::fmax(most, at(k));
  const auto weight = [&](int64_t k) { return args.logits ? std::exp(at(k) - most) : std::fmax(at(k), 0.0); };
  double total = 0;
  for (int64_t k = 0; k < categories; ++k) total += weight(k);
  const double wanted = static_cast<double>(bits >> 11) * 0x1p-53 * total;
  int64_t k = 0;
  for (double sum = weight(0); k < categories - 1 && !(wanted < sum); sum += weight(k)) ++k;
  return k;
}

template <class Block>
__device__ void Run(const Block& block, const DrawArgs& args) {
  const PhiloxKey key = KeyOf(args.words);
  const StepBlock& step = *args.words.step;
  ForAll(block, args.n, [&](int64_t at) {
    const int64_t row = at / args.words.inner, inner = at % args.words.inner;
    const int64_t i = row / args.words.samples * args.words.inner + inner;  // the place in the sample
    const int64_t sample = args.words.per_sample ? step.sample_offset + row % args.words.samples : 0;
    const WordsOf word{key, step, static_cast<uint64_t>(sample)};
    const auto put = [&](double value) { Put(args.out.data, args.out.dtype, at, value); };
    switch (args.what) {
      case Draw::kUniform: return put(args.a + args.b * static_cast<double>(UniformFloat(word(i))));
      case Draw::kNormal: {
        constexpr double kTurn = 6.283185307179586;
        const int64_t first = i - i % 2;
        const double radius = std::sqrt(-2 * std::log((word(first) + 0.5) * 0x1p-32));
        const double angle = word(first + 1) * (kTurn * 0x1p-32);
        return put(args.a + args.b * radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)));
      }
      case Draw::kInt: return put(static_cast<double>(args.low + static_cast<int64_t>(High(word.Two(i), args.range))));
      case Draw::kBernoulli: return put(static_cast<double>(UniformFloat(word(i))) < Number(args.in, at));
      case Draw::kMultinomial: return put(static_cast<double>(Category(args, at, word.Two(i))));
      case Draw::kMask: return put(static_cast<double>(word(i) >> 8) >= args.a);
    }
  });
}

template <class Block>
__device__ void Run(const Block& block, const DropArgs& args) {
  ForFloats(args.x.dtype, [&]<class Value>() {
    const Value a = static_cast<Value>(args.a);
    ForAll(block, args.grid.n, [&](int64_t i) {
      const bool stays = args.mask[PlacesOf(args.grid, i, args.mask_strides).of[0]] != 0;
      PutWrapped(args.y.data, args.y.dtype, i, Element<Value>(args.x, i) * (stays ? a : Value{0}));
    });
  });
}

}  // namespace bindery::cuda
