// A convolution of the fake cuDNN: what it computes, and where. Private to the fake.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/engine/cuda/fake/cudnn.h"
#include "tests/engine/cuda/fake/device.h"

namespace bindery::cuda::fake {

size_t BytesOf(cudnnDataType_t type);  // of an element; 0: unknown
int64_t ElementsOf(const TensorSeen& tensor);

struct FakeConvolution {
  ConvolutionSeen convolution;
  void *x, *w, *y;
  std::vector<void*> added;
  void* workspace;
  size_t workspace_bytes;
  bool tf32;

  Accesses AccessedMemory() const;
  CUresult Run(const FakeGpu& gpu) const;  // fails by what it returns
};

}  // namespace bindery::cuda::fake
