#include "executor/kernels/cuda/library_convolution.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/checked.h"
#include "base/log.h"
#include "engine/cuda/cublaslt_api.h"
#include "engine/cuda/cudnn_api.h"
#include "executor/kernels/cuda/cudnn_descriptor.h"
#include "executor/kernels/cuda/library_product.h"

namespace bindery::cuda {
namespace {

using What = PlainConvolution::What;

// Of operands: what engines ask for at most, and what whatever a kernel is bound to has.
constexpr int64_t kAlignment = 16;
// Engines for tensor cores turn operands to channels last, in the workspace.
constexpr int64_t kMostTurned = int64_t{256} << 20;
// Of tensors; any three numbers.
constexpr int64_t kX = 1, kW = 2, kY = 3;

cudnnDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return CUDNN_DATA_DOUBLE;
    case DType::kBFloat16: return CUDNN_DATA_BFLOAT16;
    case DType::kFloat16: return CUDNN_DATA_HALF;
    default: return CUDNN_DATA_FLOAT;
  }
}

int64_t ElementsOf(const std::vector<int64_t>& extents) { return Shape(extents).Elements(); }

// How an operation and its attributes are called.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
};
const OperationNames& NamesOf(What what) {
  static constexpr OperationNames kForward = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  static constexpr OperationNames kGradData = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
  static constexpr OperationNames kGradWeight = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  return what == What::kForward ? kForward : what == What::kGradData ? kGradData : kGradWeight;
}

// A plan and what it was made of. Run by one thread at a time, that of its stream: plans are not promised to be thread
// safe.
class LibraryConvolution {
 public:
  // `handle`: of the stream. Throws DeviceError, naming the call, if the library refuses something or has no engine. In
  // the GPU's context.
  LibraryConvolution(CudnnPtr api, CudnnHandle& planning, std::shared_ptr<CudnnHandle> handle,
                     const PlainConvolution& convolution)
      : api_(std::move(api)), planning_(planning), handle_(std::move(handle)),
        config_(*api_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "engine configuration"),
        plan_(*api_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan") {
    const std::lock_guard lock(planning_.mutex);
    Choose(Describe(convolution), convolution);
  }

  int64_t workspace() const { return workspace_; }

  // Addresses: x, w, y, the workspace.
  static std::string Run(const void* plan, std::span<void* const> addresses, CUstream stream) {
    const auto& self = *static_cast<const LibraryConvolution*>(plan);
    const CudnnApi& api = *self.api_;
    try {
      CudnnDescriptor pack(api, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "addresses");
      pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::vector{kX, kW, kY});
      pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(addresses.first(3)));
      pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, addresses[3]);
      pack.Finalize();
      const std::lock_guard lock(self.handle_->mutex);
      const cudnnHandle_t handle = self.handle_->handle;
      cudnnStatus_t status = api.set_stream(handle, stream);
      if (status == CUDNN_STATUS_SUCCESS) status = api.execute(handle, self.plan_.get(), pack.get());
      return status == CUDNN_STATUS_SUCCESS ? "" : api.get_error_string(status);
    } catch (const DeviceError& error) {
      return error.message();
    }
  }

 private:
  CudnnDescriptor Make(cudnnBackendDescriptorType_t type, const char* what) const { return {*api_, type, what}; }

  CudnnDescriptor Tensor(int64_t id, DType dtype, const std::vector<int64_t>& extents) const {
    std::vector<int64_t> strides(extents.size(), 1);
    for (size_t axis = extents.size() - 1; axis-- > 0;) strides[axis] = strides[axis + 1] * extents[axis + 1];
    CudnnDescriptor tensor = Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor");
    tensor.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
    tensor.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, TypeOf(dtype));
    tensor.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
    tensor.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, extents);
    tensor.Set(CUDNN_ATTR_TENSOR_STRIDES, strides);
    tensor.Finalize();
    return tensor;
  }

  // The graph of the one operation.
  CudnnDescriptor Describe(const PlainConvolution& c) const {
    CudnnDescriptor convolution = Make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "convolution");
    const bool is_double = c.dtype == DType::kFloat64;
    convolution.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, is_double ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
    convolution.Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
    convolution.Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(c.pad.size()));
    convolution.Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, c.pad);
    convolution.Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, c.pad);
    convolution.Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, c.stride);
    convolution.Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, c.dilate);
    convolution.Finalize();
    const CudnnDescriptor x = Tensor(kX, c.dtype, c.x), w = Tensor(kW, c.dtype, c.w), y = Tensor(kY, c.dtype, c.y);
    const OperationNames& names = NamesOf(c.what);
    CudnnDescriptor operation = Make(names.type, "operation");
    operation.Set(names.convolution, convolution);
    operation.Set(names.x, x);
    operation.Set(names.w, w);
    operation.Set(names.y, y);
    // Of the type that is computed with. With a factor of 0 it does not read what is there.
    if (is_double) {
      operation.Set(names.alpha, 1.0);
      operation.Set(names.beta, 0.0);
    } else {
      operation.Set(names.alpha, 1.0f);
      operation.Set(names.beta, 0.0f);
    }
    operation.Finalize();
    CudnnDescriptor graph = Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph");
    // Before 9.8 it must be told the handle, and since then it may be.
    graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, planning_.handle);
    graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    graph.Finalize();
    return graph;
  }

  // What heuristics name, the best first.
  std::vector<CudnnDescriptor> ConfigsBy(cudnnBackendHeurMode_t mode, const CudnnDescriptor& graph) const {
    CudnnDescriptor heuristics = Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics");
    heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    std::vector<CudnnDescriptor> configs;
    if (heuristics.TryFinalize() != CUDNN_STATUS_SUCCESS) return configs;  // they do not know the like of it
    int64_t count = 0;
    heuristics.Get(CUDNN_ATTR_ENGINEHEUR_RESULTS, nullptr, &count);
    std::vector<cudnnBackendDescriptor_t> descriptors;
    for (int64_t i = 0; i < count; ++i) {
      configs.push_back(Make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "engine configuration"));
      descriptors.push_back(configs.back().get());
    }
    if (count == 0) return configs;
    heuristics.Get(CUDNN_ATTR_ENGINEHEUR_RESULTS, &descriptors, &count);
    configs.erase(configs.begin() + std::min(count, std::ssize(configs)), configs.end());
    return configs;
  }

  struct Notes {
    bool allowed = false, compiles = false;
  };
  Notes NotesOf(const CudnnDescriptor& config, const PlainConvolution& convolution) const {
    const CudnnDescriptor engine = Make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine");
    std::vector<cudnnBackendDescriptor_t> engines = {engine.get()};
    int64_t count = 0;
    config.Get(CUDNN_ATTR_ENGINECFG_ENGINE, &engines, &count);
    constexpr int64_t kMost = 64;  // notes
    Notes notes{.allowed = true};
    for (const auto note : engine.Get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, kMost, &count)) {
      switch (note) {
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        // Of operands, to fewer bits than those of TF32.
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        // In fewer bits than float32.
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        // Their errors go with the largest number of a tile or plane, and what is not finite spreads in it.
        case CUDNN_NUMERICAL_NOTE_FFT:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: notes.allowed = false; break;
        // Of float32 they take TF32.
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
          notes.allowed &= convolution.dtype != DType::kFloat32 || convolution.tf32;
          break;
        default: break;
      }
    }
    notes.allowed &= count <= kMost;
    for (const auto note : engine.Get<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, kMost, &count)) {
      notes.compiles |= note == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    }
    return notes;
  }

  bool TryPlan(const CudnnDescriptor& config, int64_t most) {
    CudnnDescriptor plan = Make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan");
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, planning_.handle);
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (plan.TryFinalize() != CUDNN_STATUS_SUCCESS) return false;  // not of this GPU, or of these libraries
    int64_t count = 0;
    const std::vector<int64_t> bytes = plan.Get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 1, &count);
    if (bytes.empty() || bytes[0] < 0 || bytes[0] > most) return false;
    workspace_ = bytes[0];
    plan_ = std::move(plan);
    return true;
  }

  // The first that may be taken: of those in the library, then of those that are compiled now.
  void Choose(const CudnnDescriptor& graph, const PlainConvolution& convolution) {
    for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      std::vector<CudnnDescriptor> configs = ConfigsBy(mode, graph);
      std::vector<Notes> notes;
      for (const CudnnDescriptor& config : configs) notes.push_back(NotesOf(config, convolution));
      for (const bool compiles : {false, true}) {
        for (size_t i = 0; i < configs.size(); ++i) {
          if (!notes[i].allowed || notes[i].compiles != compiles) continue;
          if (!TryPlan(configs[i], convolution.workspace_bytes - kWorkspaceAlignment)) continue;
          config_ = std::move(configs[i]);
          return;
        }
      }
    }
    Throw<DeviceError>("cuDNN has no engine for it that gives the same bits each time and keeps the digits");
  }

  const CudnnPtr api_;
  CudnnHandle& planning_;
  const std::shared_ptr<CudnnHandle> handle_;
  CudnnDescriptor config_, plan_;
  int64_t workspace_ = 0;
};

// Null: own kernels.
std::shared_ptr<const LibraryConvolution> PlanOf(const CudaStream& stream, const PlainConvolution& convolution) {
  Gpu& gpu = stream.gpu();
  CudnnPtr api = Cudnn();
  if (!api) return nullptr;
  CudnnHandle* const planning = PlanningHandleOf(*api, gpu);
  std::shared_ptr<CudnnHandle> handle = planning ? HandleOf(*api, gpu, &stream) : nullptr;
  if (!handle) return nullptr;
  const Gpu::Scope scope(gpu);
  try {
    auto made = std::make_unique<const LibraryConvolution>(std::move(api), *planning, std::move(handle), convolution);
    // What a plan has loaded or compiled is the context's, and whoever lets go of it last may be any thread.
    return {made.release(), [&gpu](const LibraryConvolution* plan) {
              const Gpu::Scope its(gpu);
              delete plan;
            }};
  } catch (const DeviceError& error) {
    static std::atomic<bool> told = false;
    if (!told.exchange(true)) {
      LogLine(LogLevel::kWarning, fmt::format("a convolution on {} is by own kernels, and so may be others: {}",
                                              gpu.device, error.message()));
    }
    return nullptr;
  }
}

int64_t WorkspaceBytes(const PlainConvolution& c) {
  int64_t bytes =
      UsualWorkspaceBytes(static_cast<double>(ElementsOf(c.y)) * static_cast<double>(ElementsOf(c.w) / c.w[0]));
  if (c.tf32 || c.dtype == DType::kBFloat16 || c.dtype == DType::kFloat16) {
    const int64_t elements = ElementsOf(c.x) + ElementsOf(c.w) + ElementsOf(c.y);
    bytes += std::min(RoundUp(elements * SizeOf(c.dtype), kWorkspaceAlignment), kMostTurned);
  }
  return bytes + kWorkspaceAlignment;
}

}  // namespace

std::optional<PlainConvolution> PlainConvolutionOf(const ProductArgs& args, const KernelSpec& spec) {
  if (args.b.form == Form::kPlain || !IsOfOneFloat(spec)) return std::nullopt;
  PlainConvolution c{.dtype = spec.outputs[0].dtype};
  const Slide& slide = args.slide;
  if (slide.inputs < 1 || slide.outputs < 1 || slide.taps < 1) return std::nullopt;
  const int64_t groups = args.products.n;
  int64_t samples = 0, in = 0, out = 0;  // channels of a group
  switch (args.b.form) {
    case Form::kPatches:
      c.what = What::kForward;
      samples = args.n / slide.outputs, in = args.k / slide.taps, out = args.m;
      break;
    case Form::kMet:
      c.what = What::kGradData;
      samples = args.n / slide.inputs, in = args.m, out = args.k / slide.taps;
      break;
    default:
      c.what = What::kGradWeight;
      samples = args.k / slide.outputs, in = args.n / slide.taps, out = args.m;
      break;
  }
  c.x = {samples, groups * in};
  c.w = {groups * out, in};
  c.y = {samples, groups * out};
  const bool deep = slide.in[0] != 1 || slide.out[0] != 1 || slide.kernel[0] != 1 || slide.pad[0] != 0;
  for (int axis = deep ? 0 : 1; axis < 3; ++axis) {
    // What windows reach at the end, beside them, does not count if there are as many as with the beginning's padding.
    const int64_t pad = slide.pad[axis], stride = slide.stride[axis];
    const int64_t room = slide.in[axis] + 2 * pad - (slide.kernel[axis] - 1) * slide.dilate[axis] - 1;
    if (pad < 0 || room < 0 || slide.out[axis] != room / stride + 1) return std::nullopt;
    c.x.push_back(slide.in[axis]);
    c.w.push_back(slide.kernel[axis]);
    c.y.push_back(slide.out[axis]);
    c.pad.push_back(pad);
    c.stride.push_back(stride);
    c.dilate.push_back(slide.dilate[axis]);
  }
  for (const auto* extents : {&c.x, &c.w, &c.y}) {
    const int64_t n = ElementsOf(*extents);
    if (n < 1 || n > std::numeric_limits<int32_t>::max()) return std::nullopt;
  }
  if (!Cudnn()) return std::nullopt;
  c.tf32 = c.dtype == DType::kFloat32 && Tf32IsUsed();
  c.workspace_bytes = WorkspaceBytes(c);
  return c;
}

bool AddLibraryConvolution(Launches& launches, const PlainConvolution& c, const ProductArgs& args) {
  const std::shared_ptr<const LibraryConvolution> plan = PlanOf(launches.stream(), c);
  if (!plan) return false;
  void* const a = const_cast<void*>(args.a.source.data);
  void* const b = const_cast<void*>(args.b.source.data);
  void* x = b;
  void* w = a;
  void* y = args.out.data;
  if (c.what == What::kGradData) x = args.out.data, y = b;
  if (c.what == What::kGradWeight) w = args.out.data, y = a;
  launches.AddCall(&LibraryConvolution::Run, "cudnnBackendExecute", plan,
                   {x, w, y, plan->workspace() > 0 ? WorkspaceIn(launches) : nullptr});
  AddEpilogue(launches, args, args.bias.data != nullptr, {c.y[0], c.y[1], args.slide.outputs});
  return true;
}

}  // namespace bindery::cuda
