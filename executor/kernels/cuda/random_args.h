// What kernels of random numbers are launched with (args.h).
#pragma once

#include <tuple>

#include "executor/kernels/cuda/args.h"
#include "executor/step_block.h"

extern "C" const unsigned long long bindery_cuda_random[];

namespace bindery::cuda {

// Whose random words are drawn: a node's (base/philox.h), of the step's seed, for elements (outer, samples, inner).
struct Words {
  static constexpr int kMaxName = 2048;
  const StepBlock* step = nullptr;
  Divisor samples = {}, inner = {};
  int32_t per_sample = 0;  // else all samples draw the same
  int32_t name_length = 0;
  char name[kMaxName] = {};
};

enum class Draw : int32_t { kUniform, kNormal, kInt, kBernoulli, kMultinomial, kMask };

struct DrawArgs {
  static constexpr const char* kName = "bindery_draw";
  static constexpr const unsigned long long* kImage = bindery_cuda_random;
  Draw what = {};
  Words words = {};
  int64_t n = 0;
  double a = 0, b = 0;  // low and range; mean and scale; the least word, of 24 bits, of a mask
  int64_t low = 0;      // of whole numbers
  uint64_t range = 0;   // how many; of kMultinomial: the categories
  Source in = {};       // probabilities
  // kMultinomial: what SumWeightsArgs makes of each row, which is drawn from `draws` times.
  const double* sums = nullptr;
  int64_t draws = 1;
  Target out = {};
  void Addresses(const auto& visit) { VisitIn(visit, words.step, in, sums, out); }
};

// sums[k] of each row of (rows, categories) = what the categories up to k weigh, added in their order.
struct SumWeightsArgs {
  static constexpr const char* kName = "bindery_sum_weights";
  static constexpr const unsigned long long* kImage = bindery_cuda_random;
  static constexpr int64_t kRun = 1024;  // categories that a block looks at together
  int32_t logits = 0;
  Rows rows = {};
  int64_t categories = 0;
  Source in = {};
  double* sums = nullptr;
  void Addresses(const auto& visit) { VisitIn(visit, in, sums); }
};

// Dropout whose elements have a decision each: y = x mask a, of a mask that is drawn as by DrawArgs. Both are written,
// unless nobody reads them: null.
struct DropoutArgs {
  static constexpr const char* kName = "bindery_dropout";
  static constexpr const unsigned long long* kImage = bindery_cuda_random;
  static constexpr int kPack = 4;  // neighbours that a thread decides about: as many words as are drawn at once
  Words words = {};
  int64_t n = 0;
  double least = 0, a = 1;  // the least word, of 24 bits, of what stays
  Source x = {};
  uint8_t* mask = nullptr;
  Target y = {};
  void Addresses(const auto& visit) { VisitIn(visit, words.step, x, mask, y); }
};

// y = x mask a, the mask's shape stretched to x's.
struct DropArgs {
  static constexpr const char* kName = "bindery_drop";
  static constexpr const unsigned long long* kImage = bindery_cuda_random;
  Grid grid = {};
  Strides mask_strides = {};
  Source x = {};
  const uint8_t* mask = nullptr;
  Target y = {};
  double a = 1;
  void Addresses(const auto& visit) { VisitIn(visit, x, mask, y); }
};

using RandomImage = std::tuple<DrawArgs, SumWeightsArgs, DropoutArgs, DropArgs>;

}  // namespace bindery::cuda
