#include "tests/engine/cuda/fake/cublaslt_product.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/dtype.h"
#include "tests/engine/cuda/fake/numbers.h"
#include "tests/engine/cuda/fake/sums.h"

namespace bindery::cuda::fake {
namespace {

DType DTypeOf(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_64F: return DType::kFloat64;
    case CUDA_R_16BF: return DType::kBFloat16;
    case CUDA_R_16F: return DType::kFloat16;
    default: return DType::kFloat32;
  }
}

// From its first element to its last.
size_t SpanOf(const LayoutSeen& l) {
  const int64_t elements =
      (l.batch - 1) * l.stride + l.ld * (static_cast<int64_t>(l.columns) - 1) + static_cast<int64_t>(l.rows);
  return static_cast<size_t>(elements) * BytesOf(l.type);
}
CUdeviceptr Address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

}  // namespace

size_t BytesOf(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_64F: return 8;
    case CUDA_R_32F: return 4;
    case CUDA_R_16BF:
    case CUDA_R_16F: return 2;
    default: return 0;
  }
}

Extents ExtentsOf(const PlanSeen& p) {
  const bool a = p.operation.transpose_a == CUBLAS_OP_T, b = p.operation.transpose_b == CUBLAS_OP_T;
  return {a ? p.a.columns : p.a.rows, b ? p.b.rows : p.b.columns, a ? p.a.rows : p.a.columns,
          b ? p.b.columns : p.b.rows};
}

Accesses FakeProduct::AccessedMemory() const {
  Accesses accesses = {
      {Address(a), SpanOf(plan.a), false}, {Address(b), SpanOf(plan.b), false}, {Address(d), SpanOf(plan.d), true}};
  if (workspace_bytes > 0) accesses.push_back({Address(workspace), workspace_bytes, true});
  if (plan.operation.bias)
    accesses.push_back({Address(plan.operation.bias), plan.d.rows * BytesOf(plan.d.type), false});
  return accesses;
}

CUresult FakeProduct::Run(const FakeGpu& gpu) const {
  constexpr char kWhat[] = "cublasLtMatmul";
  const DType dtype = DTypeOf(plan.d.type), from = DTypeOf(plan.a.type);
  const void* const bias_address = plan.operation.bias;
  const char* const from_a = Resolve(gpu, Address(a), SpanOf(plan.a), kWhat);
  const char* const from_b = Resolve(gpu, Address(b), SpanOf(plan.b), kWhat);
  char* const to = Resolve(gpu, Address(d), SpanOf(plan.d), kWhat);
  const char* const bias =
      bias_address ? Resolve(gpu, Address(bias_address), plan.d.rows * BytesOf(plan.d.type), kWhat) : nullptr;
  char* const work = workspace_bytes > 0 ? Resolve(gpu, Address(workspace), workspace_bytes, kWhat) : nullptr;
  if (!from_a || !from_b || !to || (bias_address && !bias) || (workspace_bytes > 0 && !work)) {
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  if (work) std::memset(work, 0xff, workspace_bytes);
  const Extents e = ExtentsOf(plan);
  const auto m = static_cast<int64_t>(e.m), n = static_cast<int64_t>(e.n), k = static_cast<int64_t>(e.k);
  const bool tf32 = plan.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const auto at = [](const LayoutSeen& l, int64_t batch, int64_t row, int64_t column) {
    return batch * l.stride + column * l.ld + row;
  };
  const auto read = [&](const char* memory, int64_t place) {
    const double value = Number(memory, from, place);
    return tf32 ? ToTf32(value) : value;
  };
  const bool a_turned = plan.operation.transpose_a == CUBLAS_OP_T, b_turned = plan.operation.transpose_b == CUBLAS_OP_T;
  std::vector<double> of_b(static_cast<size_t>(k * n)), sums(static_cast<size_t>(n));  // (k, n), and a row of d
  for (int64_t batch = 0; batch < plan.d.batch; ++batch) {
    for (int64_t j = 0; j < k; ++j) {
      for (int64_t column = 0; column < n; ++column) {
        of_b[static_cast<size_t>(j * n + column)] =
            read(from_b, b_turned ? at(plan.b, batch, column, j) : at(plan.b, batch, j, column));
      }
    }
    for (int64_t row = 0; row < m; ++row) {
      std::fill(sums.begin(), sums.end(), 0);
      for (int64_t j = 0; j < k; ++j) {
        AddScaled(read(from_a, a_turned ? at(plan.a, batch, j, row) : at(plan.a, batch, row, j)), of_b.data() + j * n,
                  sums.data(), n);
      }
      for (int64_t column = 0; column < n; ++column) {
        double sum = sums[static_cast<size_t>(column)];
        const int64_t place = at(plan.d, batch, row, column);
        if (bias) sum += Number(bias, dtype, row);
        if (adds) sum += Number(to, dtype, place);
        Store(to, dtype, place, sum);
      }
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace bindery::cuda::fake
