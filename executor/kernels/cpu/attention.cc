// Attention, block by block of 64 queries and 64 keys, with queries side by side: scores (keys, queries) = k q^T, so
// that keys and values are read as they lie, and a softmax over keys works on vectors of queries. Forward the softmax
// is an online one: the greatest score and the sum so far are kept for each query, and what was summed before is scaled
// where a greater one comes.
//
// Bfloat16 is computed in float, but for products where the processor has units for them: these round what they
// multiply, so queries are taken as they are and what scales them scales the scores.
#include "symbol/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/panels.h"
#include "executor/kernels/cpu/simd/bfloat16_products.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/through_float.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

// Queries and keys of one head of one sample that meet.
struct Block {
  int64_t sample, head, query, queries, key, keys;
};

template <class Real, bool kRounds>
struct Scores {
  const LoopsOf<Real>& loops = BestLoops<Real>();
  void (*add_products)(const typename LoopsOf<Real>::Product& p) = loops.add_products;
  AttentionAttrs attrs;
  AttentionForm form;
  Real query_factor, score_factor = 1;  // their product is the scale
  bool is_bool = false;
  std::array<int64_t, 4> mask_strides{};

  Scores(const KernelSpec& spec, const AttentionAttrs& a, int first)  // inputs from `first` on: query, key, value, mask
      : attrs(a), form(FormOf(a, spec.inputs[first].shape, spec.inputs[first + 1].shape, spec.inputs[first + 2].shape)),
        query_factor(static_cast<Real>(form.scale)) {
    if constexpr (kRounds) {
      add_products = BestRoundedProducts();
      std::swap(query_factor, score_factor);
    }
    if (!attrs.masked) return;
    is_bool = spec.inputs[first + 3].dtype == DType::kBool;
    mask_strides = MaskStrides(spec.inputs[first + 3].shape);
  }

  int64_t blocks() const { return CeilDiv(form.queries, kTile); }
  int64_t group() const { return form.heads / form.kv_heads; }
  int64_t Start(const AttentionForm::Strides& strides, int64_t sample, int64_t head, int64_t row) const {
    return sample * strides.sample + head * strides.head + row * strides.row;
  }
  bool IsSmall() const {
    return static_cast<double>(form.samples * form.heads) * static_cast<double>(form.queries) *
               static_cast<double>(form.keys) * static_cast<double>(form.depth + form.width) <=
           4.0 * kSerialElements;
  }
  // The keys that some of a block's queries see.
  KeyRange SeenBy(int64_t query, int64_t queries) const {
    return {SeenKeys(attrs, query, form.keys).first, SeenKeys(attrs, query + queries - 1, form.keys).last};
  }

  template <class F>
  void ForRows(const Block& b, Real* tile, const F& f) const {
    for (int64_t k = 0; k < b.keys; ++k) f(tile + k * kTile);
  }
  void Subtract(const Block& b, Real* tile, const Real* of_queries) const {
    ForRows(b, tile, [&](Real* row) { loops.template BinaryOf<native::fn::Sub>()(row, of_queries, row, kTile); });
  }
  // Of a block's rows of keys or of values and what stands side by side, (width, kTile): tile (keys, kTile).
  void Multiply(const Block& b, const Real* rows, int64_t row_step, int64_t width, const Real* columns,
                Real* tile) const {
    std::fill_n(tile, b.keys * kTile, Real{0});
    add_products({.a = rows,
                  .a_row = row_step,
                  .a_column = 1,
                  .b = columns,
                  .y = tile,
                  .rows = b.keys,
                  .depth = width,
                  .columns = b.queries});
  }
  void Exponentials(const Block& b, Real* tile) const {
    loops.template UnaryOf<native::fn::Exp>()(tile, tile, b.keys * kTile);
  }

  // The block's scores (keys, kTile) from its scaled queries side by side, (D, kTile). `slopes`, if not null, gets the
  // derivative of what caps them.
  void Compute(const Arguments& args, int first, const Block& b, const Real* columns, Real* tile, Real* slopes) const {
    const Real* keys = args.in<Real>(first + 1) + Start(form.key, b.sample, b.head / group(), b.key);
    Multiply(b, keys, form.key.row, form.depth, columns, tile);
    if (score_factor != 1) loops.scale(tile, tile, b.keys * kTile, score_factor);
    if (attrs.softcap > 0) {
      const Real cap = static_cast<Real>(attrs.softcap);
      const int64_t n = b.keys * kTile;
      loops.scale(tile, tile, n, 1 / cap);
      loops.activation[native::ActivationFunctions::Find(native::fn::Tanh::kName)](tile, tile, n);
      for (int64_t i = 0; i < n && slopes; ++i) slopes[i] = 1 - tile[i] * tile[i];
      loops.scale(tile, tile, n, cap);
    }
    if (attrs.masked) is_bool ? Mask<bool>(args, first, b, tile) : Mask<Real>(args, first, b, tile);
    constexpr Real kHidden = -std::numeric_limits<Real>::infinity();
    for (int64_t q = 0; q < b.queries; ++q) {
      const KeyRange seen = SeenKeys(attrs, b.query + q, form.keys);
      const int64_t before = std::clamp<int64_t>(seen.first - b.key, 0, b.keys);
      const int64_t behind = std::clamp<int64_t>(seen.last - b.key, 0, b.keys);
      for (int64_t k = 0; k < before; ++k) tile[k * kTile + q] = kHidden;
      for (int64_t k = behind; k < b.keys; ++k) tile[k * kTile + q] = kHidden;
    }
  }

 private:
  template <class M>
  void Mask(const Arguments& args, int first, const Block& b, Real* tile) const {
    const auto& [sample, head, query, key] = mask_strides;
    const M* mask = args.in<M>(first + 3) + b.sample * sample + b.head * head + b.query * query + b.key * key;
    for (int64_t k = 0; k < b.keys; ++k) {
      for (int64_t q = 0; q < b.queries; ++q) {
        const M own = mask[k * key + q * query];
        Real& score = tile[k * kTile + q];
        if constexpr (std::is_same_v<M, bool>) {
          if (!own) score = -std::numeric_limits<Real>::infinity();
        } else {
          score += own;
        }
      }
    }
  }
};

// A thread's part of the scratch memory, handed out piece by piece.
template <class Real>
struct Pieces {
  Real* next;
  Real* Take(int64_t elements) { return std::exchange(next, next + elements); }
};

// (query, key, value [, mask]) -> output, maximum, log_sum
template <class Real, bool kRounds = false>
MaybeKernel MakeAttention(const KernelSpec& spec) {
  const Scores<Real, kRounds> scores(spec, spec.attributes<AttentionAttrs>(), 0);
  const int64_t own = CheckedMul(kTile, CheckedAdd(CheckedAdd(scores.form.depth, scores.form.width), kTile + 4));
  Kernel kernel = PlainKernel(spec, kRounds ? "online bf16" : "online");
  kernel.scratch_bytes = CheckedMul(CheckedMul(own, sizeof(Real)), spec.threads);
  return WithLoop(std::move(kernel), [=](const Arguments& args) {
    const AttentionForm& f = scores.form;
    const auto& loops = scores.loops;
    const auto times = loops.template BinaryOf<native::fn::Mul>();
    const int64_t blocks = scores.blocks(), units = f.samples * f.heads * blocks;
    ParallelFor(units, 1, scores.IsSmall() ? units : 0, [&](int64_t begin, int64_t end, int thread) {
      Pieces<Real> scratch{static_cast<Real*>(args.scratch) + thread * own};
      Real* const columns = scratch.Take(f.depth * kTile);
      Real* const sums = scratch.Take(f.width * kTile);  // of values, weighted, side by side
      Real* const tile = scratch.Take(kTile * kTile);
      Real *max = scratch.Take(kTile), *next = scratch.Take(kTile), *factor = scratch.Take(kTile);
      Real* const total = scratch.Take(kTile);
      for (int64_t unit = begin; unit < end; ++unit) {
        Block b{.sample = unit / blocks / f.heads,
                .head = unit / blocks % f.heads,
                .query = 0,
                .queries = 0,
                .key = 0,
                .keys = 0};
        // The first and the last in turn: later queries see more where they are causal.
        const int64_t turn = unit % blocks;
        b.query = (turn % 2 == 0 ? turn / 2 : blocks - 1 - turn / 2) * kTile;
        b.queries = std::min(kTile, f.queries - b.query);
        const Real* queries = args.in<Real>(0) + scores.Start(f.query, b.sample, b.head, b.query);
        LoadColumns(queries, f.query.row, b.queries, f.depth, scores.query_factor, columns);
        const Real* values = args.in<Real>(2) + scores.Start(f.value, b.sample, b.head / scores.group(), 0);
        std::fill_n(sums, f.width * kTile, Real{0});
        std::fill_n(total, kTile, Real{0});
        std::fill_n(max, kTile, std::numeric_limits<Real>::lowest());
        const KeyRange seen = scores.SeenBy(b.query, b.queries);
        for (b.key = seen.first; b.key < seen.last; b.key += kTile) {
          b.keys = std::min(kTile, seen.last - b.key);
          scores.Compute(args, 0, b, columns, tile, nullptr);
          std::copy_n(max, kTile, next);
          scores.ForRows(b, tile, [&](const Real* row) { loops.max_to(row, next, kTile); });
          loops.template BinaryOf<native::fn::Sub>()(max, next, factor, kTile);
          loops.template UnaryOf<native::fn::Exp>()(factor, factor, kTile);
          std::swap(max, next);
          scores.Subtract(b, tile, max);
          scores.Exponentials(b, tile);
          times(total, factor, total, kTile);
          scores.ForRows(b, tile, [&](const Real* row) { loops.axpy(row, total, kTile, 1); });
          for (int64_t i = 0; i < f.width && b.key > seen.first; ++i) {
            times(sums + i * kTile, factor, sums + i * kTile, kTile);
          }
          scores.add_products({.a = values + b.key * f.value.row,
                               .a_row = 1,
                               .a_column = f.value.row,
                               .b = tile,
                               .y = sums,
                               .rows = f.width,
                               .depth = b.keys,
                               .columns = b.queries});
        }
        Real* y = args.out<Real>(0) + scores.Start(f.output, b.sample, b.head, b.query);
        Real *maximum = args.out<Real>(1), *log_sum = args.out<Real>(2);
        for (int64_t q = 0; q < b.queries; ++q) {
          const bool sees_nothing = total[q] == 0;
          const Real inverse = 1 / total[q];
          for (int64_t i = 0; i < f.width; ++i) {
            y[q * f.output.row + i] = sees_nothing ? 0 : sums[i * kTile + q] * inverse;
          }
          const int64_t row = (b.sample * f.heads + b.head) * f.queries + b.query + q;
          if (maximum) maximum[row] = sees_nothing ? 0 : max[q];
          if (log_sum) log_sum[row] = sees_nothing ? 0 : std::log(total[q]);
        }
      }
    });
  });
}

// A part of backward's work for one head of keys of one sample: the gradients of queries [query, last_query) of some
// heads, those of blocks of keys, or both, of all that meet there. Sums are taken in the same order whatever the parts.
struct Part {
  int64_t sample, head, last_head;
  int64_t query, last_query, block, last_block;
  bool of_queries, of_keys;
};

template <class Real, bool kRounds>
struct Backward {
  Scores<Real, kRounds> scores;
  int output, scores_out;  // input and output numbers

  int64_t key_panels() const { return CeilDiv(scores.form.keys, kTile); }
  int64_t scratch() const {
    const AttentionForm& f = scores.form;
    const int64_t depth = RoundUp(f.depth, kTile), width = RoundUp(f.width, kTile);
    const int64_t both = CheckedAdd(depth, width);
    return CheckedMul(kTile, CheckedAdd(CheckedMul(both, CheckedAdd(key_panels(), 4)), 3 * kTile + 3));
  }

  void Run(const Arguments& args, const Part& part, Real* memory) const {
    const AttentionForm& f = scores.form;
    const int64_t sample = part.sample, kv_head = part.head / scores.group();
    const int64_t depth = RoundUp(f.depth, kTile) * kTile, width = RoundUp(f.width, kTile) * kTile;
    Pieces<Real> scratch{memory};
    Real *const key_grads = scratch.Take(depth * key_panels()), *const value_grads = scratch.Take(width * key_panels());
    Real *const columns = scratch.Take(depth), *const rows = scratch.Take(depth), *const keys = scratch.Take(depth);
    Real* const query_grads = scratch.Take(depth);
    Real *const dy_columns = scratch.Take(width), *const dy_rows = scratch.Take(width);
    Real *const p = scratch.Take(kTile * kTile), *const dp = scratch.Take(kTile * kTile);
    Real* const slopes = scratch.Take(kTile * kTile);
    Real *const maximum = scratch.Take(kTile), *const log_sum = scratch.Take(kTile);
    Real* const dots = scratch.Take(kTile);
    const auto& loops = scores.loops;
    const auto times = loops.template BinaryOf<native::fn::Mul>();
    const auto add = scores.add_products;
    const Real scale = static_cast<Real>(f.scale);
    const Real* all_keys = args.in<Real>(2) + scores.Start(f.key, sample, kv_head, 0);
    const Real* all_values = args.in<Real>(3) + scores.Start(f.value, sample, kv_head, 0);
    if (part.of_keys) {
      const int64_t count = part.last_block - part.block;
      std::fill_n(key_grads + part.block * depth, count * depth, Real{0});
      std::fill_n(value_grads + part.block * width, count * width, Real{0});
    }

    for (int64_t head = part.head; head < part.last_head; ++head) {
      for (int64_t query = part.query; query < part.last_query; query += kTile) {
        Block b{.sample = sample,
                .head = head,
                .query = query,
                .queries = std::min(kTile, f.queries - query),
                .key = 0,
                .keys = 0};
        const Real* q = args.in<Real>(1) + scores.Start(f.query, sample, head, query);
        const int64_t at = scores.Start(f.output, sample, head, query);
        const Real *dy = args.in<Real>(0) + at, *y = args.in<Real>(output) + at;
        LoadColumns(q, f.query.row, b.queries, f.depth, scores.query_factor, columns);
        LoadPanels(q, f.query.row, b.queries, f.depth, scores.query_factor, rows);
        LoadColumns(dy, f.output.row, b.queries, f.width, Real{1}, dy_columns);
        LoadPanels(dy, f.output.row, b.queries, f.width, Real{1}, dy_rows);
        std::fill_n(maximum, 3 * kTile, Real{0});  // and log_sum and dots
        const int64_t row = (sample * f.heads + head) * f.queries + query;
        std::copy_n(args.in<Real>(output + 1) + row, b.queries, maximum);
        std::copy_n(args.in<Real>(output + 2) + row, b.queries, log_sum);
        for (int64_t i = 0; i < b.queries; ++i) {
          dots[i] = static_cast<Real>(loops.dot(dy + i * f.output.row, y + i * f.output.row, f.width));
        }
        std::fill_n(query_grads, depth, Real{0});
        const KeyRange seen = scores.SeenBy(query, b.queries);
        const int64_t last_block = std::min(part.last_block, CeilDiv(seen.last, kTile));
        for (int64_t block = std::max(part.block, seen.first / kTile); block < last_block; ++block) {
          b.key = block * kTile;
          b.keys = std::min(kTile, f.keys - b.key);
          scores.Compute(args, 1, b, columns, p, slopes);
          scores.Subtract(b, p, maximum);
          scores.Subtract(b, p, log_sum);
          scores.Exponentials(b, p);
          if (part.of_keys)
            AddToPanels(add, p, kTile, 1, dy_rows, b.keys, b.queries, f.width, value_grads + block * width);
          scores.Multiply(b, all_values + b.key * f.value.row, f.value.row, f.width, dy_columns, dp);
          scores.Subtract(b, dp, dots);
          times(dp, p, dp, b.keys * kTile);
          if (part.of_queries && scores_out >= 0) StoreScores(args, b, dp);
          if (scores.attrs.softcap > 0) times(dp, slopes, dp, b.keys * kTile);
          if (part.of_keys) AddToPanels(add, dp, kTile, 1, rows, b.keys, b.queries, f.depth, key_grads + block * depth);
          if (!part.of_queries) continue;
          LoadPanels(all_keys + b.key * f.key.row, f.key.row, b.keys, f.depth, Real{1}, keys);
          AddToPanels(add, dp, 1, kTile, keys, b.queries, b.keys, f.depth, query_grads);
        }
        if (Real* out = args.out<Real>(0); out && part.of_queries) {
          StorePanels(query_grads, b.queries, f.depth, scale, out + scores.Start(f.query, sample, head, query),
                      f.query.row);
        }
      }
    }
    for (int64_t block = part.block; block < part.last_block && part.of_keys; ++block) {
      const int64_t key = block * kTile, count = std::min(kTile, f.keys - key);
      if (Real* out = args.out<Real>(1)) {
        StorePanels(key_grads + block * depth, count, f.depth, scores.score_factor,
                    out + scores.Start(f.key, sample, kv_head, key), f.key.row);
      }
      if (Real* out = args.out<Real>(2)) {
        StorePanels(value_grads + block * width, count, f.width, Real{1},
                    out + scores.Start(f.value, sample, kv_head, key), f.value.row);
      }
    }
  }

  void StoreScores(const Arguments& args, const Block& b, const Real* tile) const {
    const AttentionForm& f = scores.form;
    Real* y = args.out<Real>(scores_out);
    if (!y) return;
    y += ((b.sample * f.heads + b.head) * f.queries + b.query) * f.keys + b.key;
    for (int64_t q = 0; q < b.queries; ++q) {
      for (int64_t k = 0; k < b.keys; ++k) y[q * f.keys + k] = tile[k * kTile + q];
    }
  }
};

// (dy, query, key, value [, mask], output, maximum, log_sum) -> dq, dk, dv [, d scores]
template <class Real, bool kRounds = false>
MaybeKernel MakeAttentionGrad(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<AttentionGradAttrs>();
  const Backward<Real, kRounds> backward{Scores<Real, kRounds>(spec, attrs, 1), attrs.masked ? 5 : 4,
                                         attrs.mask_grad ? 3 : -1};
  const int64_t own = backward.scratch();
  Kernel kernel = PlainKernel(spec, kRounds ? "recomputed bf16" : "recomputed");
  kernel.scratch_bytes = CheckedMul(CheckedMul(own, sizeof(Real)), spec.threads);
  const int threads = spec.threads;
  const int64_t all_scores = attrs.mask_grad ? spec.outputs[3].shape.Elements() : 0;
  return WithLoop(std::move(kernel), [=](const Arguments& args) {
    const AttentionForm& f = backward.scores.form;
    if (attrs.mask_grad && args.out<Real>(3)) std::fill_n(args.out<Real>(3), all_scores, Real{0});
    const int64_t group = backward.scores.group(), blocks = backward.scores.blocks(), panels = backward.key_panels();
    const auto for_units = [&](int64_t units, const auto& part_of) {
      ParallelFor(units, 1, backward.scores.IsSmall() ? units : 0, [&](int64_t begin, int64_t end, int thread) {
        Real* const scratch = static_cast<Real*>(args.scratch) + thread * own;
        for (int64_t unit = begin; unit < end; ++unit) backward.Run(args, part_of(unit), scratch);
      });
    };
    const int64_t heads = f.samples * f.kv_heads;
    const auto of_keys = [&](int64_t head, int64_t block, int64_t last_block, bool of_queries) -> Part {
      const int64_t first = head % f.kv_heads * group;
      return {head / f.kv_heads, first, first + group, 0, f.queries, block, last_block, of_queries, true};
    };
    if (heads >= threads) {
      return for_units(heads, [&](int64_t unit) { return of_keys(unit, 0, panels, true); });
    }
    // Too few for all threads: scores twice, by queries and by keys.
    for_units(f.samples * f.heads * blocks, [&](int64_t unit) -> Part {
      const int64_t head = unit / blocks % f.heads, query = unit % blocks * kTile;
      const int64_t last = std::min(query + kTile, f.queries);
      return {unit / blocks / f.heads, head, head + 1, query, last, 0, panels, true, false};
    });
    for_units(heads * panels,
              [&](int64_t unit) { return of_keys(unit / panels, unit % panels, unit % panels + 1, false); });
  });
}

template <KernelMaker kFloat, KernelMaker kDouble, KernelMaker kRounding>
MaybeKernel OfFloats(const KernelSpec& spec) {
  const bool rounds = spec.inputs[0].dtype == DType::kBFloat16 && BestRoundedProducts();
  return rounds ? ThroughFloat(spec, kRounding) : OfReals<kFloat, kDouble>(spec);
}

constexpr KernelEntry kEntries[] = {
    {"Attention", OfFloats<MakeAttention<float>, MakeAttention<double>, MakeAttention<float, true>>},
    {"AttentionGrad", OfFloats<MakeAttentionGrad<float>, MakeAttentionGrad<double>, MakeAttentionGrad<float, true>>},
};

}  // namespace

KernelRows AttentionKernels() { return kEntries; }

}  // namespace bindery::cpu
