// Scaled dot-product attention that stores no matrix of scores: forward keeps one number per query, the logarithm of
// its sum of exponentials, and backward computes the scores again (Dao et al. 2022, "FlashAttention").
#pragma once

#include <array>

#include "symbol/op_def.h"

namespace bindery {

struct AttentionAttrs {
  int64_t heads = 0, kv_heads = 0;
  double scale = 0, softcap = 0;
  bool causal = false, masked = false;
  int64_t left_window = -1, right_window = -1, offset = 0;
  static FieldList Fields() {
    using A = AttentionAttrs;
    return {{"heads", &A::heads, "of the queries, where the last axis holds all heads"},
            {"kv_heads", &A::kv_heads, "of keys and values, default as the queries'"},
            {"scale", &A::scale, "of the scores; 0: 1 / sqrt(extent of a query)"},
            {"softcap", &A::softcap, "c: scores become c tanh(score / c) before the mask; 0: they do not"},
            {"causal", &A::causal, "no query sees keys behind its own place; as right_window 0"},
            {"masked", &A::masked, "is there a mask?"},
            {"left_window", &A::left_window, "keys seen before a query's place; -1: all"},
            {"right_window", &A::right_window, "keys seen behind it; -1: all"},
            {"offset", &A::offset, "query i has the place of key i + offset"}};
  }
};
struct AttentionGradAttrs : AttentionAttrs {
  bool mask_grad = false;
  static FieldList Fields() {
    return Joined(AttentionAttrs::Fields(),
                  {{"mask_grad", &AttentionGradAttrs::mask_grad, "give the gradient of every score, too"}});
  }
};

// y = softmax(cap(scale q k^T) + mask) v for each sample and head:
//   query (N, H, T, D), key (N, G, S, D), value (N, G, S, E) -> (N, H, T, E),
// or with the heads within the last axis, as projections give them, query (N, T, H D), key (N, S, G D),
// value (N, S, G E) -> (N, T, H E). H is a multiple of G: neighbouring heads share keys and values.
// The mask stretches to (N, H, T, S): bool, true where a query sees a key, or numbers that are added to the scores. A
// query that sees nothing gives 0. A key that a query does not see counts 0 times: if it or its value is not finite,
// the query may give NaN. Of floating point numbers only.
Symbol Attention(const Symbol& query, const Symbol& key, const Symbol& value, const AttentionAttrs& attrs = {},
                 const std::string& name = {});
Symbol Attention(const Symbol& query, const Symbol& key, const Symbol& value, const Symbol& mask, AttentionAttrs attrs,
                 const std::string& name = {});

struct MultiHeadAttentionAttrs {
  int64_t width = 0;                // of the output and of all queries together: a multiple of `heads`; required
  int64_t heads = 1, kv_heads = 0;  // 0: as many
  bool no_bias = false;             // of the four projections
  bool causal = false;
};
// Attention (Vaswani et al. 2017) of projections NAME_query, NAME_key and NAME_value of (N, T, C), (N, S, C') and
// (N, S, C''), projected by NAME_output: (N, T, width). The mask may be empty. NAME must be given.
Symbol MultiHeadAttention(const Symbol& query, const Symbol& key, const Symbol& value, const Symbol& mask,
                          const MultiHeadAttentionAttrs& attrs, const std::string& name);

// What kernels need of the shapes; strides in elements.
struct AttentionForm {
  struct Strides {
    int64_t sample, head, row;
  };
  int64_t samples, heads, kv_heads, queries, keys, depth, width;  // N, H, G, T, S, D, E
  Strides query, key, value, output;
  double scale;
};
AttentionForm FormOf(const AttentionAttrs& attrs, const Shape& query, const Shape& key, const Shape& value);
// Of a mask, per axis of (N, H, T, S): 0 where it is stretched.
std::array<int64_t, 4> MaskStrides(const Shape& mask);
// The keys that a query sees, as far as the windows say: [first, last).
struct KeyRange {
  int64_t first, last;
};
KeyRange SeenKeys(const AttentionAttrs& attrs, int64_t query, int64_t keys);

// (query, key, value [, mask]) -> output, maximum, log_sum (N, H, T), which are hidden
const OpDef& AttentionOp();
// (dy, query, key, value [, mask], output, maximum, log_sum) -> dq, dk, dv [, d scores]
const OpDef& AttentionGradOp();

}  // namespace bindery
