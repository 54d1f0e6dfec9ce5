// A stand-in for cuBLASLt (engine/cuda/cublaslt_api.h) on the fake's GPUs: products by plain loops in double, rounded
// once, on its streams, captured or not. Whatever is linked with the fake finds it (install.cc).
//
// It refuses, and reports as a violation, what cuBLASLt refuses or what would be silently wrong there: types and
// computations that do not go together, leading dimensions that are too small, attributes of another size, epilogues
// that it does not know or that lack their vector, an algorithm of another product, a workspace that is missing, too
// small or not aligned, operands that are aligned less than was promised, descriptors that are no more, calls without
// the context of the handle's GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cuda/cublaslt_api.h"

namespace bindery::cuda::fake {

CublasLtPtr CublasLt();

// What a product was asked for, by cuBLASLt's names.
struct LayoutSeen {
  cudaDataType_t type = {};
  uint64_t rows = 0, columns = 0;
  int64_t ld = 0;
  int32_t batch = 1;
  int64_t stride = 0;
  bool operator==(const LayoutSeen&) const = default;
};
struct OperationSeen {
  cublasComputeType_t compute = {};
  cudaDataType_t scale = {};
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  bool operator==(const OperationSeen&) const = default;
};
struct PreferenceSeen {
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignments[4] = {256, 256, 256, 256};  // of A, B, C, D
  bool operator==(const PreferenceSeen&) const = default;
};
struct PlanSeen {
  OperationSeen operation = {};
  LayoutSeen a = {}, b = {}, c = {}, d = {};
  PreferenceSeen preference = {};
};
// Those that heuristics were asked for, since the last call.
std::vector<PlanSeen> TakePlans();

int64_t Matmuls();  // calls so far: those that are captured count once
void FindNoAlgorithm(bool yes);
int LiveDescriptors();  // of all kinds

}  // namespace bindery::cuda::fake
