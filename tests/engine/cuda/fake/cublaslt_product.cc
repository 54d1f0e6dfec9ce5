#include "tests/engine/cuda/fake/cublaslt_product.h"

#include <cstring>
#include <vector>

#include "base/dtype.h"
#include "tests/engine/cuda/fake/numbers.h"

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
  // op of a matrix as rows of `inner` elements: of A its rows, of B its columns, so that sums go along both.
  const auto gather = [&](const char* memory, const LayoutSeen& l, int64_t batch, bool by_column, int64_t outer) {
    std::vector<double> values(static_cast<size_t>(outer * k));
    for (int64_t i = 0; i < outer; ++i) {
      for (int64_t j = 0; j < k; ++j) {
        const int64_t at = batch * l.stride + (by_column ? i * l.ld + j : j * l.ld + i);
        const double value = Number(memory, from, at);
        values[static_cast<size_t>(i * k + j)] = tf32 ? ToTf32(value) : value;
      }
    }
    return values;
  };
  for (int64_t batch = 0; batch < plan.d.batch; ++batch) {
    const std::vector<double> x = gather(from_a, plan.a, batch, plan.operation.transpose_a == CUBLAS_OP_T, m);
    const std::vector<double> y = gather(from_b, plan.b, batch, plan.operation.transpose_b == CUBLAS_OP_N, n);
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t column = 0; column < n; ++column) {
        double sum = 0;
        for (int64_t j = 0; j < k; ++j)
          sum += x[static_cast<size_t>(row * k + j)] * y[static_cast<size_t>(column * k + j)];
        const int64_t at = batch * plan.d.stride + column * plan.d.ld + row;
        if (bias) sum += Number(bias, dtype, row);
        if (adds) sum += Number(to, dtype, at);
        Store(to, dtype, at, sum);
      }
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace bindery::cuda::fake
