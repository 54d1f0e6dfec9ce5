#include "tests/engine/cuda/fake/cublaslt.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/dtype.h"
#include "base/error.h"
#include "tests/engine/cuda/fake/cublaslt_product.h"
#include "tests/engine/cuda/fake/state.h"

namespace bindery::cuda::fake {
namespace {

constexpr uint64_t kMagic = 0x616c676f;
constexpr int64_t kLongSum = 32;  // from this on its algorithm has a workspace

// Handles and descriptors by the address that they are known by.
struct Library {
  std::mutex mutex;
  std::map<cublasLtHandle_t, FakeGpu*> handles;
  std::map<cublasLtMatmulDesc_t, OperationSeen> operations;
  std::map<cublasLtMatrixLayout_t, LayoutSeen> layouts;
  std::map<cublasLtMatmulPreference_t, PreferenceSeen> preferences;
  std::vector<PlanSeen> plans;
  uintptr_t next = 0x1000;  // addresses that nobody can follow
};
Library& TheLibrary() {
  static Library& library = *new Library;  // never destroyed: plans may be static
  return library;
}
std::atomic<int64_t> matmuls = 0;
std::atomic<bool> no_algorithm = false;

cublasStatus_t Reject(const char* call, const std::string& why, cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE) {
  Violation(fmt::format("{}: {}", call, why));
  return status;
}

// ---- handles and descriptors ----

cublasStatus_t Create(cublasLtHandle_t* handle) {
  FakeGpu* const gpu = Current("cublasLtCreate");
  if (!gpu) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (RefuseWhileCapturing("cublasLtCreate") != CUDA_SUCCESS) return CUBLAS_STATUS_ALLOC_FAILED;
  Library& library = TheLibrary();
  const std::lock_guard lock(library.mutex);
  for (const auto& [other, of] : library.handles) {
    if (of == gpu) return Reject("cublasLtCreate", "the GPU has a handle already");
  }
  *handle = reinterpret_cast<cublasLtHandle_t>(library.next += 16);
  library.handles[*handle] = gpu;
  return CUBLAS_STATUS_SUCCESS;
}

const char* GetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    default: return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}

template <class Descriptor, class Seen>
cublasStatus_t Make(std::map<Descriptor, Seen>& all, Descriptor* descriptor, Seen seen) {
  Library& library = TheLibrary();
  const std::lock_guard lock(library.mutex);
  *descriptor = reinterpret_cast<Descriptor>(library.next += 16);
  all[*descriptor] = seen;
  return CUBLAS_STATUS_SUCCESS;
}
template <class Descriptor, class Seen>
cublasStatus_t Destroy(std::map<Descriptor, Seen>& all, Descriptor descriptor, const char* call) {
  const std::lock_guard lock(TheLibrary().mutex);
  return all.erase(descriptor) > 0 ? CUBLAS_STATUS_SUCCESS : Reject(call, "no such descriptor");
}
// f(what is described, set): set(&field) takes the value, whose size must be the field's, and gives the status.
template <class Descriptor, class Seen, class F>
cublasStatus_t SetIn(std::map<Descriptor, Seen>& all, Descriptor descriptor, const char* call, const void* value,
                     size_t bytes, const F& f) {
  const std::lock_guard lock(TheLibrary().mutex);
  const auto found = all.find(descriptor);
  if (found == all.end()) return Reject(call, "no such descriptor");
  return f(found->second, [&](auto* field) {
    if (!value || bytes != sizeof *field) return Reject(call, fmt::format("a value of {} bytes", bytes));
    std::memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t MatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute, cudaDataType_t scale) {
  const bool floats = compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if (!(floats && scale == CUDA_R_32F) && !(compute == CUBLAS_COMPUTE_64F && scale == CUDA_R_64F)) {
    return Reject("cublasLtMatmulDescCreate", "types that do not go together");
  }
  return Make(TheLibrary().operations, operation, OperationSeen{.compute = compute, .scale = scale});
}
cublasStatus_t MatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  return Destroy(TheLibrary().operations, operation, "cublasLtMatmulDescDestroy");
}
cublasStatus_t MatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                      const void* value, size_t bytes) {
  constexpr char kCall[] = "cublasLtMatmulDescSetAttribute";
  return SetIn(TheLibrary().operations, operation, kCall, value, bytes, [&](OperationSeen& seen, const auto& set) {
    switch (attribute) {
      case CUBLASLT_MATMUL_DESC_TRANSA: return set(&seen.transpose_a);
      case CUBLASLT_MATMUL_DESC_TRANSB: return set(&seen.transpose_b);
      case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&seen.epilogue);
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&seen.bias);
      default: return Reject(kCall, "an attribute that the fake does not know");
    }
  });
}

cublasStatus_t MatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows, uint64_t columns,
                                  int64_t ld) {
  constexpr char kCall[] = "cublasLtMatrixLayoutCreate";
  if (BytesOf(type) == 0) return Reject(kCall, "a type that the fake does not know");
  if (rows < 1 || columns < 1 || ld < static_cast<int64_t>(rows)) return Reject(kCall, "columns overlap");
  return Make(TheLibrary().layouts, layout, LayoutSeen{.type = type, .rows = rows, .columns = columns, .ld = ld});
}
cublasStatus_t MatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return Destroy(TheLibrary().layouts, layout, "cublasLtMatrixLayoutDestroy");
}
cublasStatus_t MatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                                        const void* value, size_t bytes) {
  constexpr char kCall[] = "cublasLtMatrixLayoutSetAttribute";
  return SetIn(TheLibrary().layouts, layout, kCall, value, bytes, [&](LayoutSeen& seen, const auto& set) {
    switch (attribute) {
      case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return set(&seen.batch);
      case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return set(&seen.stride);
      default: return Reject(kCall, "an attribute that the fake does not know");
    }
  });
}

cublasStatus_t MatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return Make(TheLibrary().preferences, preference, PreferenceSeen());
}
cublasStatus_t MatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return Destroy(TheLibrary().preferences, preference, "cublasLtMatmulPreferenceDestroy");
}
cublasStatus_t MatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                            cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                            size_t bytes) {
  constexpr char kCall[] = "cublasLtMatmulPreferenceSetAttribute";
  return SetIn(TheLibrary().preferences, preference, kCall, value, bytes, [&](PreferenceSeen& seen, const auto& set) {
    switch (attribute) {
      case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(&seen.workspace);
      case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set(&seen.reductions);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(&seen.alignments[0]);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(&seen.alignments[1]);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(&seen.alignments[2]);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(&seen.alignments[3]);
      default: return Reject(kCall, "an attribute that the fake does not know");
    }
  });
}

// ---- products ----

// What the descriptors say; false, and a violation, if one of them is not there.
bool Look(const char* call, cublasLtMatmulDesc_t operation, const std::array<cublasLtMatrixLayout_t, 4>& layouts,
          PlanSeen* plan) {
  Library& library = TheLibrary();
  const std::lock_guard lock(library.mutex);
  LayoutSeen* const seen[] = {&plan->a, &plan->b, &plan->c, &plan->d};
  bool found = library.operations.contains(operation);
  for (size_t i = 0; i < layouts.size(); ++i) {
    found = found && library.layouts.contains(layouts[i]);
    if (found) *seen[i] = library.layouts[layouts[i]];
  }
  if (!found) return Reject(call, "no such descriptor"), false;
  plan->operation = library.operations[operation];
  return true;
}

// Matrices of a batch, which may lie one behind the other or between each other's columns.
bool Overlap(const LayoutSeen& l) {
  const auto columns = static_cast<int64_t>(l.columns), rows = static_cast<int64_t>(l.rows);
  return l.batch > 1 && l.stride < l.ld * (columns - 1) + rows && (l.stride < rows || l.ld < l.batch * l.stride);
}

// Why cuBLASLt would not take it; null: it does.
const char* Fault(const PlanSeen& p) {
  const OperationSeen& o = p.operation;
  const bool widens = BytesOf(p.a.type) == 2 && p.d.type == CUDA_R_32F;
  if (p.b.type != p.a.type || (p.d.type != p.a.type && !widens)) return "matrices of different types";
  if ((o.compute == CUBLAS_COMPUTE_64F) != (p.a.type == CUDA_R_64F))
    return "matrices of another type than computed with";
  if (o.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && p.a.type != CUDA_R_32F) return "TF32 for 16 bits";
  if (!(p.c == p.d)) return "C and D are different";
  const Extents e = ExtentsOf(p);
  if (p.d.rows != e.m || p.d.columns != e.n || e.k != e.other_k) return "shapes that do not go together";
  if (p.a.batch != p.d.batch || p.b.batch != p.d.batch || p.d.batch < 1) return "batches of different sizes";
  if (Overlap(p.d)) return "outputs that overlap";
  if (o.epilogue != CUBLASLT_EPILOGUE_DEFAULT && o.epilogue != CUBLASLT_EPILOGUE_BIAS) return "an unknown epilogue";
  if (o.epilogue == CUBLASLT_EPILOGUE_BIAS && (!o.bias || p.a.type == CUDA_R_64F)) return "a bias that cannot be";
  return nullptr;
}

// Of the product that an algorithm is for.
uint64_t KeyOf(const PlanSeen& p) {
  uint64_t key = kMagic;
  const Extents e = ExtentsOf(p);
  for (const uint64_t part :
       {e.m, e.n, e.k, static_cast<uint64_t>(p.a.type), static_cast<uint64_t>(p.d.type),
        static_cast<uint64_t>(p.d.batch), uint64_t{p.operation.epilogue}, static_cast<uint64_t>(p.operation.compute)}) {
    key = std::rotl(key, 9) * 0x9e3779b97f4a7c15u + part;
  }
  return key;
}

// The handle's GPU, where it is the calling thread's; null, and a violation, else.
FakeGpu* GpuOf(cublasLtHandle_t handle, const char* call) {
  FakeGpu* const current = Current(call);
  const std::lock_guard lock(TheLibrary().mutex);
  const auto found = TheLibrary().handles.find(handle);
  if (found == TheLibrary().handles.end()) return Reject(call, "no such handle"), nullptr;
  if (current && current != found->second) return Reject(call, "a handle of another GPU"), nullptr;
  return current;
}

cublasStatus_t MatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                      cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                      cublasLtMatmulPreference_t preference, int wanted,
                                      cublasLtMatmulHeuristicResult_t results[], int* found) {
  constexpr char kCall[] = "cublasLtMatmulAlgoGetHeuristic";
  if (!GpuOf(handle, kCall)) return CUBLAS_STATUS_NOT_INITIALIZED;
  PlanSeen plan;
  if (!Look(kCall, operation, {a, b, c, d}, &plan) || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  {
    Library& library = TheLibrary();
    const std::lock_guard lock(library.mutex);
    const auto preferred = library.preferences.find(preference);
    if (preferred == library.preferences.end()) return Reject(kCall, "no such preference");
    plan.preference = preferred->second;
    library.plans.push_back(plan);
  }
  if (const char* const fault = Fault(plan)) return Reject(kCall, fault, CUBLAS_STATUS_NOT_SUPPORTED);
  *found = no_algorithm ? 0 : 1;
  if (no_algorithm) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Extents e = ExtentsOf(plan);
  const bool splits = e.k >= kLongSum && (plan.preference.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  const uint64_t workspace = splits ? std::min<uint64_t>(plan.preference.workspace, e.m * e.n * sizeof(double)) : 0;
  results[0] = {.algo = {.data = {KeyOf(plan), workspace}},
                .workspaceSize = workspace,
                .state = CUBLAS_STATUS_SUCCESS,
                .wavesCount = 1,
                .reserved = {}};
  std::ranges::copy(plan.preference.alignments, results[0].algo.data + 2);
  return CUBLAS_STATUS_SUCCESS;
}

double Scalar(const void* value, cudaDataType_t type) {
  return type == CUDA_R_64F ? *static_cast<const double*>(value)
                            : static_cast<double>(*static_cast<const float*>(value));
}

cublasStatus_t Matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                      cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                      const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                      const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                      cudaStream_t stream_handle) {
  constexpr char kCall[] = "cublasLtMatmul";
  if (!GpuOf(handle, kCall)) return CUBLAS_STATUS_NOT_INITIALIZED;
  PlanSeen plan;
  if (!Look(kCall, operation, {a_layout, b_layout, c_layout, d_layout}, &plan)) return CUBLAS_STATUS_INVALID_VALUE;
  if (const char* const fault = Fault(plan)) return Reject(kCall, fault);
  if (!algorithm || algorithm->data[0] != KeyOf(plan)) return Reject(kCall, "an algorithm of another product");
  if (workspace_bytes < algorithm->data[1]) return Reject(kCall, "the workspace is too small");
  if (algorithm->data[1] > 0 && (!workspace || reinterpret_cast<uintptr_t>(workspace) % 256 != 0)) {
    return Reject(kCall, "the workspace is null or not aligned");
  }
  const void* const operands[] = {a, b, c, d};
  for (size_t i = 0; i < 4; ++i) {
    if (!operands[i] || reinterpret_cast<uintptr_t>(operands[i]) % algorithm->data[2 + i] != 0) {
      return Reject(kCall, "an operand is null or not aligned");
    }
  }
  const double kept = Scalar(beta, plan.operation.scale);
  if (c != d || Scalar(alpha, plan.operation.scale) != 1 || (kept != 0 && kept != 1)) {
    return Reject(kCall, "what the fake does not do", CUBLAS_STATUS_NOT_SUPPORTED);
  }
  FakeProduct product{.plan = plan,
                      .a = a,
                      .b = b,
                      .d = d,
                      .adds = kept == 1,
                      .workspace = workspace,
                      .workspace_bytes = algorithm->data[1]};
  const CUresult result = OnCapturingStream(kCall, stream_handle, [&](FakeStream& stream) {
    stream.Enqueue({[&gpu = stream.gpu, product] { return product.Run(gpu); }, kCall, product.AccessedMemory()});
    return CUDA_SUCCESS;
  });
  ++matmuls;
  return result == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace

CublasLtPtr CublasLt() {
  static const CublasLtPtr api(new CublasLtApi{.create = &Create,
                                               .get_status_name = &GetStatusName,
                                               .matmul_desc_create = &MatmulDescCreate,
                                               .matmul_desc_destroy = &MatmulDescDestroy,
                                               .matmul_desc_set_attribute = &MatmulDescSetAttribute,
                                               .matrix_layout_create = &MatrixLayoutCreate,
                                               .matrix_layout_destroy = &MatrixLayoutDestroy,
                                               .matrix_layout_set_attribute = &MatrixLayoutSetAttribute,
                                               .matmul_preference_create = &MatmulPreferenceCreate,
                                               .matmul_preference_destroy = &MatmulPreferenceDestroy,
                                               .matmul_preference_set_attribute = &MatmulPreferenceSetAttribute,
                                               .matmul_algo_get_heuristic = &MatmulAlgoGetHeuristic,
                                               .matmul = &Matmul});
  return api;
}

std::vector<PlanSeen> TakePlans() {
  const std::lock_guard lock(TheLibrary().mutex);
  return std::exchange(TheLibrary().plans, {});
}
int64_t Matmuls() { return matmuls; }
void FindNoAlgorithm(bool yes) { no_algorithm = yes; }
int LiveDescriptors() {
  const Library& library = TheLibrary();
  const std::lock_guard lock(TheLibrary().mutex);
  return static_cast<int>(library.operations.size() + library.layouts.size() + library.preferences.size());
}

}  // namespace bindery::cuda::fake
