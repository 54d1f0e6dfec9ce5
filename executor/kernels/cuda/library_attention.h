// Attention's products by cuBLASLt (library_product.h), where it can be had: where matrices lie for it, and its plans.
// The scores are in memory, and an own kernel makes probabilities and slopes of them.
//
// Operands are of the tensors' type, probabilities and slopes, too; what becomes scores keeps the digits of sums.
#pragma once

#include <cstdint>
#include <optional>

#include "executor/kernels/cuda/attention_args.h"
#include "executor/kernels/cuda/launch.h"

namespace bindery::cuda {

// A product is a batch over heads and samples, where one stride leads through all of them. Else it is one over the more
// numerous of both, and each of the others is a call by itself. Queries of heads that share keys are rows of one matrix
// where one stride leads through them; else each of these heads, too, is a call by itself.
struct PlainAttention {
  // Of a matrix in memory, in elements: to that of the next call, to the batch's next, to that of the next head that
  // shares keys, and from row to row.
  struct Lay {
    int64_t call = 0, matrix = 0, head = 0, row = 0;
  };
  // Rows of queries and of keys whose products are scores: of queries and keys, or of outputs and values.
  struct Sides {
    Lay queries = {}, keys = {};
    int64_t columns = 1;
  };
  int64_t calls = 1, batch = 1, heads = 1;
  int64_t queries = 1, keys = 1;  // rows of a matrix
  Sides depth = {}, width = {};
  Lay scores = {};
  int64_t elements = 0;  // of all scores
  DType dtype = {}, sums = {};
  bool tf32 = false;  // operands may be rounded to it
};

// Of tensors of floats of one type. Nullopt: it would be too many calls, or there is no library.
std::optional<PlainAttention> PlainAttentionOf(const AttentionShape& shape, int64_t samples, DType dtype);

// Of scratch, for `count` products that become scores, what is made of them, and the library's workspace.
int64_t ScratchBytes(const PlainAttention& attention, int count);

// Adds all of it. False, and nothing is added: own kernels must do it.
bool AddLibraryAttention(Launches& launches, const PlainAttention& attention, AttentionArgs args);
bool AddLibraryAttention(Launches& launches, const PlainAttention& attention, AttentionGradArgs args);

}  // namespace bindery::cuda
