#include "executor/kernels/cuda/library_product.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "base/checked.h"
#include "base/log.h"
#include "engine/cuda/cublaslt_api.h"
#include "executor/kernels/cuda/elementwise_args.h"
#include "executor/kernels/native_functions.h"

namespace bindery::cuda {
namespace {

// What NVIDIA recommends for GPUs of capability 9.0, and what is enough where a product is small. It is said before it is
// known which GPU it will be.
constexpr int64_t kWorkspace = int64_t{32} << 20, kSmallWorkspace = int64_t{1} << 20;
constexpr double kSmall = 1 << 24;  // products of numbers

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return CUDA_R_64F;
    case DType::kBFloat16: return CUDA_R_16BF;
    case DType::kFloat16: return CUDA_R_16F;
    default: return CUDA_R_32F;
  }
}

// Frees by a function of the table.
template <class Opaque>
using Owned = std::unique_ptr<Opaque, cublasStatus_t (*)(Opaque*)>;

}  // namespace

// cuBLASLt's matrices are column by column, and so seen ours are transposed: it computes c^T = b^T a^T, its A is our b,
// its B our a. No order of rows is asked for, as it has no epilogues there.
class LibraryProduct {
 public:
  // `bias` (n), or null. Throws DeviceError, naming the call, if the library refuses something; null if it has no
  // algorithm. In the GPU's context.
  static std::shared_ptr<const LibraryProduct> Make(CublasLtPtr api, cublasLtHandle_t handle,
                                                    const PlainProduct& product, const void* bias) {
    std::shared_ptr<LibraryProduct> made(new LibraryProduct(std::move(api), handle));
    made->Describe(product, bias);
    return made->Choose(product) ? made : nullptr;
  }

  size_t workspace() const { return workspace_; }

  // Addresses: a, b, c, the workspace.
  static std::string Run(const void* plan, std::span<void* const> addresses, CUstream stream) {
    const auto& self = *static_cast<const LibraryProduct*>(plan);
    const bool is_double = self.scale_ == CUDA_R_64F;
    const float one = 1, kept = self.adds_ ? 1 : 0;
    const double double_one = 1, double_kept = kept;
    // Its C is our c, too; with a factor of 0 it is not read.
    const cublasStatus_t status =
        self.api_->matmul(self.handle_, self.operation_.get(), is_double ? static_cast<const void*>(&double_one) : &one,
                          addresses[1], self.a_.get(), addresses[0], self.b_.get(),
                          is_double ? static_cast<const void*>(&double_kept) : &kept, addresses[2], self.d_.get(),
                          addresses[2], self.d_.get(), &self.algorithm_, addresses[3], self.workspace_, stream);
    return status == CUBLAS_STATUS_SUCCESS ? "" : self.api_->get_status_name(status);
  }

 private:
  LibraryProduct(CublasLtPtr api, cublasLtHandle_t handle)
      : api_(std::move(api)), handle_(handle), operation_(nullptr, api_->matmul_desc_destroy),
        a_(nullptr, api_->matrix_layout_destroy), b_(nullptr, api_->matrix_layout_destroy),
        d_(nullptr, api_->matrix_layout_destroy) {}

  void CheckStatus(cublasStatus_t status, const char* call) const {
    if (status != CUBLAS_STATUS_SUCCESS) Throw<DeviceError>("{}: {}", call, api_->get_status_name(status));
  }

  void Describe(const PlainProduct& product, const void* bias) {
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    adds_ = product.adds;
    if (product.dtype == DType::kFloat64) {
      compute = CUBLAS_COMPUTE_64F;
      scale_ = CUDA_R_64F;
    } else if (product.tf32) {
      compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    }
    cublasLtMatmulDesc_t operation = nullptr;
    CheckStatus(api_->matmul_desc_create(&operation, compute, scale_), "cublasLtMatmulDescCreate");
    operation_.reset(operation);
    Set<int32_t>(CUBLASLT_MATMUL_DESC_TRANSA, product.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set<int32_t>(CUBLASLT_MATMUL_DESC_TRANSB, product.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (bias) {
      Set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      Set<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);  // of the type of D, if nothing is said
    }
    // A row of ours is a column there.
    const auto layout = [&](Owned<cublasLtMatrixLayoutOpaque_t>* to, DType dtype, int64_t our_rows, int64_t our_columns,
                            const PlainProduct::Lay& lay) {
      cublasLtMatrixLayout_t made = nullptr;
      CheckStatus(api_->matrix_layout_create(&made, TypeOf(dtype), static_cast<uint64_t>(our_columns),
                                             static_cast<uint64_t>(our_rows), lay.row > 0 ? lay.row : our_columns),
                  "cublasLtMatrixLayoutCreate");
      to->reset(made);
      if (product.batch == 1) return;
      const auto set = [&]<class T>(cublasLtMatrixLayoutAttribute_t attribute, T value) {
        CheckStatus(api_->matrix_layout_set_attribute(made, attribute, &value, sizeof value),
                    "cublasLtMatrixLayoutSetAttribute");
      };
      set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(product.batch));
      set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, lay.matrix);
    };
    const auto& p = product;
    layout(&a_, p.dtype, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.b);
    layout(&b_, p.dtype, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.a);
    layout(&d_, p.out, p.m, p.n, p.c);
  }

  template <class T>
  void Set(cublasLtMatmulDescAttributes_t attribute, T value) {
    CheckStatus(api_->matmul_desc_set_attribute(operation_.get(), attribute, &value, sizeof value),
                "cublasLtMatmulDescSetAttribute");
  }

  bool Choose(const PlainProduct& product) {
    cublasLtMatmulPreference_t made = nullptr;
    CheckStatus(api_->matmul_preference_create(&made), "cublasLtMatmulPreferenceCreate");
    const Owned<cublasLtMatmulPreferenceOpaque_t> preference(made, api_->matmul_preference_destroy);
    const auto set = [&]<class T>(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
      CheckStatus(api_->matmul_preference_set_attribute(made, attribute, &value, sizeof value),
                  "cublasLtMatmulPreferenceSetAttribute");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(WorkspaceBytes(product) - kWorkspaceAlignment));
    // Parts of sums in the workspace, in the type that is computed with, added in a step of their own; never in the output,
    // which may be of 16 bits. Sums that have no parts are allowed whatever is said here.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, product.b.alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, product.a.alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, product.c.alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, product.c.alignment);
    cublasLtMatmulHeuristicResult_t result = {};
    int found = 0;
    const cublasStatus_t status = api_->matmul_algo_get_heuristic(handle_, operation_.get(), a_.get(), b_.get(),
                                                                  d_.get(), d_.get(), made, 1, &result, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return false;
    CheckStatus(status, "cublasLtMatmulAlgoGetHeuristic");
    if (found == 0 || result.state != CUBLAS_STATUS_SUCCESS) return false;
    algorithm_ = result.algo;
    workspace_ = result.workspaceSize;
    return true;
  }

  const CublasLtPtr api_;
  const cublasLtHandle_t handle_;
  Owned<cublasLtMatmulDescOpaque_t> operation_;
  Owned<cublasLtMatrixLayoutOpaque_t> a_, b_, d_;  // by its names
  cudaDataType_t scale_ = CUDA_R_32F;
  bool adds_ = false;
  cublasLtMatmulAlgo_t algorithm_ = {};
  size_t workspace_ = 0;
};

void PlainProduct::Lay::BeginAt(int64_t offset, int64_t bytes) {
  while (offset * bytes % alignment != 0) alignment /= 2;
}

std::shared_ptr<const LibraryProduct> PlanOf(Launches& launches, const PlainProduct& product, const void* bias) {
  Gpu& gpu = launches.stream().gpu();
  CublasLtPtr api = CublasLt();
  const cublasLtHandle_t handle = api ? HandleOf(*api, gpu) : nullptr;
  if (!handle) return nullptr;
  const Gpu::Scope scope(gpu);
  try {
    return LibraryProduct::Make(std::move(api), handle, product, bias);
  } catch (const DeviceError& error) {
    static std::atomic<bool> told = false;
    if (!told.exchange(true)) {
      LogLine(LogLevel::kWarning,
              fmt::format("a product on {} is by own kernels, and so may be others: {}", gpu.device, error.message()));
    }
    return nullptr;
  }
}

void AddPlan(Launches& launches, const std::shared_ptr<const LibraryProduct>& plan, const void* a, const void* b,
             void* c, void* workspace) {
  launches.AddCall(&LibraryProduct::Run, "cublasLtMatmul", plan,
                   {const_cast<void*>(a), const_cast<void*>(b), c, plan->workspace() > 0 ? workspace : nullptr});
}

std::optional<PlainProduct> PlainProductOf(const ProductArgs& args, const KernelSpec& spec) {
  PlainProduct product{.m = args.m, .n = args.n, .k = args.k, .dtype = args.out.dtype, .out = args.out.dtype};
  if (!IsOfOneFloat(spec)) return std::nullopt;
  const auto lies = [](const Matrix& matrix, int64_t row_stride, int64_t column_stride) {
    return matrix.form == Form::kPlain && matrix.period_stride == 0 && matrix.row_stride == row_stride &&
           matrix.column_stride == column_stride;
  };
  product.transpose_a = !lies(args.a, args.k, 1);
  product.transpose_b = !lies(args.b, args.n, 1);
  if (product.transpose_a && !lies(args.a, 1, args.m)) return std::nullopt;
  if (product.transpose_b && !lies(args.b, 1, args.k)) return std::nullopt;
  if (!lies(args.c, args.n, 1) || args.bias_by_row) return std::nullopt;
  // One stride each.
  Grid grid = args.products;
  Strides a = args.a_strides, b = args.b_strides, c = args.c_strides;
  JoinAxes(&grid, {&a, &b, &c});
  if (grid.rank > 1) return std::nullopt;
  if (grid.rank == 1) {
    product.batch = grid.extents[0];
    product.a.matrix = a.of[0];
    product.b.matrix = b.of[0];
    product.c.matrix = c.of[0];
  }
  for (const int64_t extent : {args.m, args.n, args.k, product.batch}) {
    if (extent < 1 || extent > std::numeric_limits<int32_t>::max()) return std::nullopt;
  }
  if (product.batch > kMostOfBatch) return std::nullopt;
  if (!CublasLt()) return std::nullopt;
  product.tf32 = product.dtype == DType::kFloat32 && Tf32IsUsed();
  return product;
}

int64_t WorkspaceBytes(const PlainProduct& p) {
  return UsualWorkspaceBytes(static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) *
                             static_cast<double>(p.batch)) +
         kWorkspaceAlignment;
}

bool AddLibraryProduct(Launches& launches, const PlainProduct& product, const ProductArgs& args) {
  // It documents epilogues of products of doubles nowhere plainly enough.
  const bool adds_bias = args.bias.data && product.dtype == DType::kFloat64;
  const std::shared_ptr<const LibraryProduct> plan = PlanOf(launches, product, adds_bias ? nullptr : args.bias.data);
  if (!plan) return false;
  AddPlan(launches, plan, args.a.source.data, args.b.source.data, args.out.data, WorkspaceIn(launches));
  // Activations not by its epilogue: its relu makes 0 of NaN, which must pass.
  ProductArgs rest = args;
  if (!adds_bias) rest.bias = {};
  AddEpilogue(launches, rest, {args.m, args.n});
  return true;
}

bool IsOfOneFloat(const KernelSpec& spec) {
  const DType dtype = spec.outputs[0].dtype;
  switch (dtype) {
    case DType::kFloat64:
    case DType::kFloat32:
    case DType::kBFloat16:
    case DType::kFloat16: break;
    default: return false;
  }
  return std::ranges::all_of(spec.inputs, [&](const ValueType& input) { return input.dtype == dtype; });
}

int64_t UsualWorkspaceBytes(double products) { return products <= kSmall ? kSmallWorkspace : kWorkspace; }

char* WorkspaceIn(const Launches& launches, int64_t offset) {
  const auto from = static_cast<int64_t>(reinterpret_cast<uintptr_t>(launches.scratch(offset)));
  return launches.scratch(offset + RoundUp(from, kWorkspaceAlignment) - from);
}

void AddEpilogue(Launches& launches, const ProductArgs& args, const Shape& shape) {
  MapArgs map{.family = Family::kActivation,
              .function = args.activation,
              .flat = 1,
              .compute = args.out.dtype,
              .grid = GridOf({args.elements()}),
              .out = args.out};
  map.in[0] = {args.out.data, args.out.dtype};
  map.strides[0].of[0] = 1;
  if (args.bias.data) {
    map.flat = 0;
    map.grid = GridOf(shape);
    map.strides[0] = PlainStrides(shape);
    map.in[map.inputs] = args.bias;
    map.strides[map.inputs++].of[1] = 1;
  }
  if (args.addend.data) {
    map.in[map.inputs] = args.addend;
    map.strides[map.inputs++] = map.strides[0];
  }
  if (map.inputs > 1) map.family = Family::kSum;
  if (map.inputs > 1 || args.activation >= 0) launches.Add(map, args.elements());
}

}  // namespace bindery::cuda
