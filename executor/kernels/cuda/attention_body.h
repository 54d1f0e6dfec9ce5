// Attention, plainly or around products by a library: a row of scores is in memory.
#pragma once

#include <cmath>

#include "executor/kernels/cuda/attention_args.h"
#include "executor/kernels/cuda/exp_sum.h"
#include "executor/kernels/cuda/values.h"

namespace bindery::cuda {

__device__ inline int64_t At(const AttentionShape::Lay& lay, int64_t sample, int64_t head, int64_t row) {
  return sample * lay.sample + head * lay.head + row * lay.row;
}

// One query.
struct QueryPlace {
  int64_t sample, head, kv_head, query;
  __device__ QueryPlace(const AttentionShape& s, int64_t row)
      : sample(row / s.queries / s.heads), head(row / s.queries % s.heads), kv_head(head / (s.heads / s.kv_heads)),
        query(row % s.queries) {}
};

template <class Value>
__device__ Value DotOf(const Source& a, int64_t from_a, const Source& b, int64_t from_b, int64_t n) {
  return SumOf<Value>(ThreadTeam(), n,
                      [&](int64_t i) { return Element<Value>(a, from_a + i) * Element<Value>(b, from_b + i); });
}
// Of a query and a key.
template <class Value, class Args>
__device__ Value ProductOf(const Args& args, const QueryPlace& q, int64_t k) {
  const AttentionShape& s = args.shape;
  return DotOf<Value>(args.query, At(s.query, q.sample, q.head, q.query), args.key, At(s.key, q.sample, q.kv_head, k),
                      s.depth);
}

template <class Value>
struct Score {
  Value score, slope;  // and the derivative of what caps it
};
// product(): of the query and the key, asked for where the windows let the one see the other.
template <class Value, class F>
__device__ Score<Value> ScoreOf(const AttentionShape& s, const QueryPlace& q, int64_t k, const F& product) {
  constexpr Value kUnseen = -std::numeric_limits<Value>::infinity();
  if (k < q.query + s.first || k >= q.query + s.last) return {kUnseen, 1};
  Value score = product() * static_cast<Value>(s.scale), slope = 1;
  if (s.softcap > 0) {
    const Value capped = std::tanh(score / static_cast<Value>(s.softcap));
    slope = 1 - capped * capped;
    score = static_cast<Value>(s.softcap) * capped;
  }
  if (s.mask.data) {
    const int64_t at =
        q.sample * s.mask_strides[0] + q.head * s.mask_strides[1] + q.query * s.mask_strides[2] + k * s.mask_strides[3];
    const Value mask = static_cast<Value>(Number(s.mask, at));
    score += s.mask.dtype != DType::kBool ? mask : mask != 0 ? Value{0} : kUnseen;
  }
  return {score, slope};
}

template <class Block>
__device__ void Run(const Block& block, const AttentionArgs& args) {
  const AttentionShape& s = args.shape;
  ForFloats(args.query.dtype, [&]<class Value>() {
    ForRows(block, args.rows, [&](const auto& team, int64_t row) {
      const QueryPlace q(s, row);
      const int64_t first = row * s.keys;
      Value* const products = static_cast<Value*>(args.products.data) + first;
      using Sum = ExpSum<Value>;
      const Sum sum = team.Join(
          s.keys, Sum::Nothing(),
          [&](Sum* part, int64_t k) {
            const Score<Value> score = ScoreOf<Value>(s, q, k, [&] {
              if (!args.by_library) products[k] = ProductOf<Value>(args, q, k);
              return products[k];
            });
            part->Add(score.score, Value{1});
          },
          [](const Sum& a, const Sum& b) { return Sum::Joined(a, b, Value{1}); });
      const bool sees = sum.max != -std::numeric_limits<Value>::infinity();
      team.ForEach(s.keys, [&](int64_t k) {
        const Score<Value> score = ScoreOf<Value>(s, q, k, [&] { return products[k]; });
        PutWrapped(args.parts.data, args.parts.dtype, first + k,
                   sees ? std::exp(score.score - sum.max) / sum.sum : Value{0});
      });
      team.Once([&] {
        const auto put = [&](const Target& out, Value value) {
          if (out.data) PutWrapped(out.data, out.dtype, row, sees ? value : Value{0});
        };
        put(args.maximum, sum.max);
        put(args.log_sum, std::log(sum.sum));
      });
      if (args.by_library) return;
      const Value* const parts = static_cast<const Value*>(args.parts.data) + first;
      team.ForEach(s.width, [&](int64_t e) {
        const Value y = SumOf<Value>(ThreadTeam(), s.keys, [&](int64_t k) {
          return parts[k] * Element<Value>(args.value, At(s.value, q.sample, q.kv_head, k) + e);
        });
        PutWrapped(args.out.data, args.out.dtype, At(s.output, q.sample, q.head, q.query) + e, y);
      });
    });
  });
}

template <class Value, class Team>
__device__ void OfQuery(const Team& team, const AttentionGradArgs& args, int64_t row) {
  const AttentionShape& s = args.shape;
  const QueryPlace q(s, row);
  const int64_t first = row * s.keys, at = At(s.output, q.sample, q.head, q.query);
  const Value dot = SumOf<Value>(
      team, s.width, [&](int64_t e) { return Element<Value>(args.dy, at + e) * Element<Value>(args.output, at + e); });
  const Value max = Element<Value>(args.maximum, row), log = Element<Value>(args.log_sum, row);
  team.ForEach(s.keys, [&](int64_t k) {
    const Score<Value> score = ScoreOf<Value>(s, q, k, [&] {
      return args.by_library ? Element<Value>(args.products, first + k) : ProductOf<Value>(args, q, k);
    });
    const Value p = std::exp(score.score - max - log);
    if (args.parts.data) PutWrapped(args.parts.data, args.parts.dtype, first + k, p);
    if (!args.slopes.data && !args.dmask.data) return;
    const Value dp = args.by_library
                         ? Element<Value>(args.value_products, first + k)
                         : DotOf<Value>(args.dy, at, args.value, At(s.value, q.sample, q.kv_head, k), s.width);
    const Value ds = p * (dp - dot);
    if (args.dmask.data) PutWrapped(args.dmask.data, args.dmask.dtype, first + k, ds);
    if (args.slopes.data) {
      PutWrapped(args.slopes.data, args.slopes.dtype, first + k, ds * score.slope * static_cast<Value>(s.scale));
    }
  });
  if (args.by_library || !args.dq.data) return;
  const Value* const slopes = static_cast<const Value*>(args.slopes.data) + first;
  team.ForEach(s.depth, [&](int64_t d) {
    const Value sum = SumOf<Value>(ThreadTeam(), s.keys, [&](int64_t k) {
      return slopes[k] * Element<Value>(args.key, At(s.key, q.sample, q.kv_head, k) + d);
    });
    PutWrapped(args.dq.data, args.dq.dtype, At(s.query, q.sample, q.head, q.query) + d, sum);
  });
}

// Row: a key of a head of keys of a sample.
template <class Value, class Team>
__device__ void OfKey(const Team& team, const AttentionGradArgs& args, int64_t row) {
  const AttentionShape& s = args.shape;
  const int64_t k = row % s.keys, group = row / s.keys % s.kv_heads, sample = row / s.keys / s.kv_heads;
  const int64_t heads = s.heads / s.kv_heads, queries = heads * s.queries;
  // The sum over all queries that look at the key, in their order.
  const auto give = [&](const Target& out, int64_t to, int64_t n, const Value* factors, const Source& of,
                        const AttentionShape::Lay& lay) {
    if (!out.data) return;
    team.ForEach(n, [&](int64_t d) {
      const Value sum = SumOf<Value>(ThreadTeam(), queries, [&](int64_t i) {
        const int64_t head = group * heads + i / s.queries, query = i % s.queries;
        const int64_t place = (sample * s.heads + head) * s.queries + query;
        return factors[place * s.keys + k] * Element<Value>(of, At(lay, sample, head, query) + d);
      });
      PutWrapped(out.data, out.dtype, to + d, sum);
    });
  };
  give(args.dk, At(s.key, sample, group, k), s.depth, static_cast<const Value*>(args.slopes.data), args.query, s.query);
  give(args.dv, At(s.value, sample, group, k), s.width, static_cast<const Value*>(args.parts.data), args.dy, s.output);
}

template <class Block>
__device__ void Run(const Block& block, const AttentionGradArgs& args) {
  ForFloats(args.query.dtype, [&]<class Value>() {
    ForRows(block, args.rows, [&](const auto& team, int64_t row) {
      args.of_keys ? OfKey<Value>(team, args, row) : OfQuery<Value>(team, args, row);
    });
  });
}

}  // namespace bindery::cuda
