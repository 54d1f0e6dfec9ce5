// What kernels of attention are launched with (args.h).
#pragma once

#include <tuple>

#include "executor/kernels/cuda/args.h"

extern "C" const unsigned long long bindery_cuda_attention[];

namespace bindery::cuda {

// AttentionForm of symbol/ops/attention.h, and what the scores go through. A row is a query of a head of a sample.
struct AttentionShape {
  struct Lay {
    int64_t sample = 0, head = 0, row = 0;
  };
  int64_t heads = 1, kv_heads = 1, queries = 1, keys = 1, depth = 1, width = 1;
  Lay query = {}, key = {}, value = {}, output = {};
  double scale = 1, softcap = 0;
  Source mask = {};
  int64_t mask_strides[4] = {};
  // Query t sees the keys from t + first to before t + last, as far as there are such.
  int64_t first = 0, last = 0;
};

// (query, key, value) -> output, maximum, log_sum. `products` (rows, keys), of queries and keys, and `parts` (rows,
// keys), the probabilities, are scratch, and may be the same memory if they are of one type.
struct AttentionArgs {
  static constexpr const char* kName = "bindery_attention";
  static constexpr const unsigned long long* kImage = bindery_cuda_attention;
  int32_t by_library = 0;  // products are there already, and others multiply `parts` by values
  Rows rows = {};
  AttentionShape shape = {};
  Source query = {}, key = {}, value = {};
  Target out = {}, maximum = {}, log_sum = {};
  Target products = {}, parts = {};
  void Addresses(const auto& visit) {
    VisitIn(visit, query, key, value, shape.mask, out, maximum, log_sum, products, parts);
  }
};

// (dy, query, key, value, output, maximum, log_sum) -> of each query dq [, d scores], and what keys need: `parts` and
// `slopes` (rows, keys), the probabilities and the gradients of products, are scratch; then of each key dk, dv.
// `value_products` (rows, keys) are of dy and values; they and slopes may be the same memory, as products and parts
// may.
struct AttentionGradArgs {
  static constexpr const char* kName = "bindery_attention_grad";
  static constexpr const unsigned long long* kImage = bindery_cuda_attention;
  int32_t of_keys = 0;
  int32_t by_library = 0;  // both products are there already, and others make dq, dk and dv of parts and slopes
  Rows rows = {};
  AttentionShape shape = {};
  Source dy = {}, query = {}, key = {}, value = {}, output = {}, maximum = {}, log_sum = {};
  Target dq = {}, dk = {}, dv = {}, dmask = {};
  Source products = {}, value_products = {};
  Target parts = {}, slopes = {};
  void Addresses(const auto& visit) {
    VisitIn(visit, dy, query, key, value, output, maximum, log_sum, shape.mask, products, value_products, dq, dk, dv,
            dmask, parts, slopes);
  }
};

using AttentionImage = std::tuple<AttentionArgs, AttentionGradArgs>;

}  // namespace bindery::cuda
