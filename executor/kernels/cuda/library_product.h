// Products of plain matrices by cuBLASLt (engine/cuda/cublaslt_api.h), of floats of one type, where it can be had: what
// it takes, what of it is beyond own kernels' terms, and its plans.
//
// An algorithm is chosen by cuBLASLt's heuristics when a kernel is bound, for that GPU: one whose answers are the same in
// every run, for parts of sums are in the workspace or there are none. Where it has none, own kernels do it.
#pragma once

#include <cstdint>
#include <optional>

#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/cuda/product_args.h"

namespace bindery::cuda {

// c (m, n) = a (m, k) b (k, n), row by row, for each of a batch.
struct PlainProduct {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;  // in memory they are (k, m), (n, k)
  int64_t batch = 1, a_stride = 0, b_stride = 0;  // to the next matrix, in elements; of c it is m n
  DType dtype = {};
  bool tf32 = false;  // operands may be rounded to it
};

// Nullopt: it is no such product, or there is no library.
std::optional<PlainProduct> PlainProductOf(const ProductArgs& args, const KernelSpec& spec);

// Of scratch, for what the heuristics may choose.
int64_t WorkspaceBytes(const PlainProduct& product);

// Adds the product with bias and activation. False, and nothing is added: own kernels must do it.
bool AddLibraryProduct(Launches& launches, const PlainProduct& product, const ProductArgs& args);

// ---- for convolutions by a library, too (library_convolution.h) ----

// Output 0 and all inputs are of one type of floats.
bool IsOfOneFloat(const KernelSpec& spec);
// Of a workspace: what cuBLASLt wants, and cuDNN may.
inline constexpr int64_t kWorkspaceAlignment = 256;
// Of one for so many products of numbers; an alignment more must be asked for, since scratch is aligned less.
int64_t UsualWorkspaceBytes(double products);
// It, in scratch: the first place that is aligned so.
char* WorkspaceIn(const Launches& launches);
// Behind it, in place, of all elements of `shape`: what `args` have of bias, along axis 1, addend and activation.
void AddEpilogue(Launches& launches, const ProductArgs& args, const Shape& shape);

}  // namespace bindery::cuda
