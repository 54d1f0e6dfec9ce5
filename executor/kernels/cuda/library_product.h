// Products of plain matrices by cuBLASLt (engine/cuda/cublaslt_api.h), of floats of one type, where it can be had: what
// it takes, what of it is beyond own kernels' terms, and its plans.
//
// An algorithm is chosen by cuBLASLt's heuristics when a kernel is bound, for that GPU: one whose answers are the same in
// every run, for parts of sums are in the workspace or there are none. Where it has none, own kernels do it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/cuda/product_args.h"

namespace bindery::cuda {

// c (m, n) = a (m, k) b (k, n), row by row, for each of a batch.
struct PlainProduct {
  // Of a matrix in memory, in elements: from one of the batch to the next, and from row to row; 0: they are side by side.
  struct Lay {
    int64_t matrix = 0, row = 0;
    uint32_t alignment = 64;  // of its addresses, in bytes: what kernels are bound to has this (executor/kernel.h)

    // It begins so many elements, of so many bytes, behind that.
    void BeginAt(int64_t offset, int64_t bytes);
  };
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;  // in memory they are (k, m), (n, k)
  int64_t batch = 1;                              // of more than one: matrices of c that lie apart
  Lay a = {}, b = {}, c = {};
  DType dtype = {}, out = {};  // of a and b; of c: the same, or float32 of 16 bits
  bool tf32 = false;           // operands may be rounded to it
  bool adds = false;           // to what c is
};

// Nullopt: it is no such product, or there is no library.
std::optional<PlainProduct> PlainProductOf(const ProductArgs& args, const KernelSpec& spec);

// Matrices of a batch: an axis of a launch's grid, which they may be, is no longer than this.
inline constexpr int64_t kMostOfBatch = 65535;
// Of scratch, for what the heuristics may choose.
int64_t WorkspaceBytes(const PlainProduct& product);

// Adds the product with bias and activation. False, and nothing is added: own kernels must do it.
bool AddLibraryProduct(Launches& launches, const PlainProduct& product, const ProductArgs& args);

// ---- for kernels of several products ----

// What the library will do for a product: it may be added any number of times.
class LibraryProduct;
// `bias` (n) of the type of c, or null. Null: there is no library, or it has no algorithm; own kernels must do it.
std::shared_ptr<const LibraryProduct> PlanOf(Launches& launches, const PlainProduct& product,
                                             const void* bias = nullptr);
// `workspace`: of WorkspaceBytes, from WorkspaceIn.
void AddPlan(Launches& launches, const std::shared_ptr<const LibraryProduct>& plan, const void* a, const void* b,
             void* c, void* workspace);

// ---- for convolutions by a library, too (library_convolution.h) ----

// Output 0 and all inputs are of one type of floats.
bool IsOfOneFloat(const KernelSpec& spec);
// Of a workspace: what cuBLASLt wants, and cuDNN may.
inline constexpr int64_t kWorkspaceAlignment = 256;
// Of one for so many products of numbers; an alignment more must be asked for, since scratch is aligned less.
int64_t UsualWorkspaceBytes(double products);
// It, in scratch: the first place from `offset` on that is aligned so.
char* WorkspaceIn(const Launches& launches, int64_t offset = 0);
// Behind it, in place, of all elements of `shape`: what `args` have of bias, along axis 1, addend and activation.
void AddEpilogue(Launches& launches, const ProductArgs& args, const Shape& shape);

}  // namespace bindery::cuda
