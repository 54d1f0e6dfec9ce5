// A product of the fake cuBLASLt: what it computes, and where. Private to the fake.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/engine/cuda/fake/cublaslt.h"
#include "tests/engine/cuda/fake/device.h"

namespace bindery::cuda::fake {

size_t BytesOf(cudaDataType_t type);  // of an element; 0: unknown

// D (m, n) = op(A) (m, k) op(B) (k, n)
struct Extents {
  uint64_t m, n, k, other_k;  // of A, and of B
};
Extents ExtentsOf(const PlanSeen& plan);

struct FakeProduct {
  PlanSeen plan;
  const void *a, *b;
  void* d;
  bool adds;  // to what D is
  void* workspace;
  size_t workspace_bytes;

  Accesses AccessedMemory() const;
  CUresult Run(const FakeGpu& gpu) const;  // fails by what it returns
};

}  // namespace bindery::cuda::fake
