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
#include "executor/kernels/cuda/convolution_graph.h"
#include "executor/kernels/cuda/cudnn_descriptor.h"
#include "executor/kernels/cuda/library_product.h"

namespace bindery::cuda {
namespace {

using What = PlainConvolution::What;

// Engines for tensor cores turn operands to channels last, in the workspace.
constexpr int64_t kMostTurned = int64_t{256} << 20;
int64_t ElementsOf(const std::vector<int64_t>& extents) { return Shape(extents).Elements(); }

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
    if (convolution.adds_addend) ids_.push_back(ConvolutionTensors::kAddend);
    if (convolution.adds_bias) ids_.push_back(ConvolutionTensors::kBias);
    const std::lock_guard lock(planning_.mutex);
    Choose(GraphOf(*api_, planning_.handle, convolution), convolution);
  }

  int64_t workspace() const { return workspace_; }

  // Addresses: x, w, y, of what is added the addend, the bias, and the workspace.
  static std::string Run(const void* plan, std::span<void* const> addresses, CUstream stream) {
    const auto& self = *static_cast<const LibraryConvolution*>(plan);
    const CudnnApi& api = *self.api_;
    try {
      CudnnDescriptor pack(api, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "addresses");
      pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, self.ids_);
      pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(addresses.first(self.ids_.size())));
      pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, addresses.back());
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
  std::vector<int64_t> ids_ = {ConvolutionTensors::kX, ConvolutionTensors::kW, ConvolutionTensors::kY};
  CudnnDescriptor config_, plan_;
  int64_t workspace_ = 0;
};

// Null: own kernels, or without what is added.
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
    if (!convolution.adds_addend && !told.exchange(true)) {
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
  // An addend and a bias are added by the library where nothing comes behind them. Activations are ours, for which we know
  // no word that its relu lets NaN pass; and a pass over y that there must be adds them at no cost.
  std::shared_ptr<const LibraryConvolution> plan;
  ProductArgs rest = args;
  std::vector<void*> added;
  if (args.addend.data && args.activation < 0) {
    PlainConvolution whole = c;
    whole.adds_addend = true;
    whole.adds_bias = args.bias.data != nullptr;
    if ((plan = PlanOf(launches.stream(), whole))) {
      for (Source* const source : {&rest.addend, &rest.bias}) {
        if (source->data) added.push_back(const_cast<void*>(source->data));
        *source = {};
      }
    }
  }
  if (!plan) plan = PlanOf(launches.stream(), c);
  if (!plan) return false;
  void* const a = const_cast<void*>(args.a.source.data);
  void* const b = const_cast<void*>(args.b.source.data);
  void* x = b;
  void* w = a;
  void* y = args.out.data;
  if (c.what == What::kGradData) x = args.out.data, y = b;
  if (c.what == What::kGradWeight) w = args.out.data, y = a;
  std::vector<void*> addresses = {x, w, y};
  addresses.insert(addresses.end(), added.begin(), added.end());
  addresses.push_back(plan->workspace() > 0 ? WorkspaceIn(launches) : nullptr);
  launches.AddCall(&LibraryConvolution::Run, "cudnnBackendExecute", plan, std::move(addresses));
  AddEpilogue(launches, rest, {c.y[0], c.y[1], args.slide.outputs});
  return true;
}

}  // namespace bindery::cuda
