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

// Words of the sample that an element belongs to. They are drawn four by four: the last four are kept.
class WordsOf {
 public:
  __device__ WordsOf(const PhiloxKey& key, const StepBlock& step) : key_(key), step_(step) {}
  // The words are those of this sample from now on.
  __device__ void Enter(uint64_t sample) {
    if (sample != sample_) drawn_ = -1;
    sample_ = sample;
  }
  // Word i.
  __device__ uint32_t operator()(int64_t i) {
    if (drawn_ != i / 4) {
      drawn_ = i / 4;
      words_ = Philox4x32(
          {static_cast<uint32_t>(drawn_), static_cast<uint32_t>(sample_),
           static_cast<uint32_t>(sample_ >> 32) ^ (step_.micro_batch << 16), static_cast<uint32_t>(step_.step)},
          key_);
    }
    return words_[static_cast<size_t>(i % 4)];
  }
  __device__ uint64_t Two(int64_t i) {
    const uint64_t first = (*this)(2 * i);
    return first << 32 | (*this)(2 * i + 1);
  }

 private:
  const PhiloxKey key_;
  const StepBlock& step_;
  uint64_t sample_ = 0;
  int64_t drawn_ = -1;
  PhiloxBlock words_ = {};
};
// Which of its sample's elements element `at` is.
__device__ inline int64_t EnterSample(const Words& words, int64_t at, WordsOf* word) {
  const int64_t row = words.inner.Of(at), outer = words.samples.Of(row);
  word->Enter(words.per_sample ? static_cast<uint64_t>(words.step->sample_offset + row - outer * words.samples.by) : 0);
  return outer * words.inner.by + at - row * words.inner.by;
}

// The upper 64 bits of a product.
__device__ inline uint64_t High(uint64_t a, uint64_t b) {
  const uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & 0xffffffffu);
  return a1 * b1 + (middle >> 32) + (other >> 32);
}

// What the categories of a row weigh, of logarithms beside the largest.
struct Weights {
  const SumWeightsArgs& args;
  int64_t first;
  double most;
  template <class Team>
  __device__ Weights(const Team& team, const SumWeightsArgs& a, int64_t row)
      : args(a), first(row * a.categories), most(-std::numeric_limits<double>::infinity()) {
    if (!a.logits) return;
    most = team.Join(
        a.categories, most,
        [&](double* so_far, int64_t k) { *so_far = std::fmax(*so_far, Number(args.in, first + k)); },
        [](double x, double y) { return std::fmax(x, y); });
  }
  __device__ double operator()(int64_t k) const {
    const double x = Number(args.in, first + k);
    return args.logits ? std::exp(x - most) : std::fmax(x, 0.0);
  }
};

// Of a row that is a block's all threads look at weights, and one adds up: as the host does, so the host's categories
// are drawn.
template <class Block>
__device__ void Run(const Block& block, const SumWeightsArgs& args) {
  if (!args.rows.by_block) {
    return ForAll(block, args.rows.count, [&](int64_t row) {
      const Weights weight(ThreadTeam(), args, row);
      double sum = 0;
      for (int64_t k = 0; k < args.categories; ++k) args.sums[weight.first + k] = sum += weight(k);
    });
  }
  constexpr int64_t kRun = SumWeightsArgs::kRun;
  struct Fetched {
    double of[kRun];
  };
  Fetched& fetched = block.template Shared<Fetched>();
  typename Block::template Own<double> sum(block);
  for (int64_t row = block.index(); row < args.rows.count; row += block.count()) {
    const Weights weight(BlockTeam<Block>{block}, args, row);
    block.Each([&](int thread) { sum[thread] = 0; });
    for (int64_t begin = 0; begin < args.categories; begin += kRun) {
      const int64_t n = args.categories - begin < kRun ? args.categories - begin : kRun;
      block.Each([&](int thread) {
        for (int64_t i = thread; i < n; i += block.threads()) fetched.of[i] = weight(begin + i);
      });
      block.Each([&](int thread) {
        for (int64_t i = 0; thread == 0 && i < n; ++i) fetched.of[i] = sum[thread] += fetched.of[i];
      });
      block.Each([&](int thread) {
        for (int64_t i = thread; i < n; i += block.threads()) args.sums[weight.first + begin + i] = fetched.of[i];
      });
    }
  }
}

// The category of element i of the output by 53 random bits: the first whose sum is beyond what they say, or the last.
__device__ inline int64_t Category(const DrawArgs& args, int64_t i, uint64_t bits) {
  const int64_t categories = static_cast<int64_t>(args.range);
  const double* const sums = args.sums + i / args.draws * categories;
  const double wanted = static_cast<double>(bits >> 11) * 0x1p-53 * sums[categories - 1];
  int64_t first = 0;
  for (int64_t n = categories - 1; n > 0;) {
    const int64_t half = n / 2;
    if (wanted < sums[first + half]) {
      n = half;
    } else {
      first += half + 1;
      n -= half + 1;
    }
  }
  return first;
}

template <class Block>
__device__ void Run(const Block& block, const DrawArgs& args) {
  const PhiloxKey key = KeyOf(args.words);
  ForAll(block, args.n, [&](int64_t at) {
    WordsOf word(key, *args.words.step);
    const int64_t i = EnterSample(args.words, at, &word);
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
__device__ void Run(const Block& block, const DropoutArgs& args) {
  const PhiloxKey key = KeyOf(args.words);
  ForFloats(args.x.dtype, [&]<class Value>() {
    const Value a = static_cast<Value>(args.a);
    ForAll(block, (args.n + DropoutArgs::kPack - 1) / DropoutArgs::kPack, [&](int64_t pack) {
      WordsOf word(key, *args.words.step);
      const int64_t first = pack * DropoutArgs::kPack;
      for (int64_t at = first; at < args.n && at < first + DropoutArgs::kPack; ++at) {
        const bool stays = static_cast<double>(word(EnterSample(args.words, at, &word)) >> 8) >= args.least;
        if (args.mask) args.mask[at] = stays;
        if (!args.y.data) continue;
        PutWrapped(args.y.data, args.y.dtype, at, Element<Value>(args.x, at) * (stays ? a : Value{0}));
      }
    });
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
