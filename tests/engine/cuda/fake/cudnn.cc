#include "tests/engine/cuda/fake/cudnn.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tests/engine/cuda/fake/cudnn_convolution.h"
#include "tests/engine/cuda/fake/cudnn_descriptors.h"
#include "tests/engine/cuda/fake/state.h"

namespace bindery::cuda::fake {
namespace {

using namespace dnn;

cudnnStatus_t Create(cudnnHandle_t* handle) {
  FakeGpu* const gpu = Current("cudnnCreate");
  if (!gpu || RefuseWhileCapturing("cudnnCreate") != CUDA_SUCCESS) return CUDNN_STATUS_NOT_INITIALIZED;
  Library& library = TheLibrary();
  const std::lock_guard lock(library.mutex);
  *handle = reinterpret_cast<cudnnHandle_t>(library.next += 16);
  library.handles[*handle] = {.gpu = gpu};
  return CUDNN_STATUS_SUCCESS;
}

const char* GetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
    default: return "CUDNN_STATUS_INTERNAL_ERROR";
  }
}

cudnnStatus_t GetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, int64_t most, int64_t* count, void* elements) {
  constexpr char kCall[] = "cudnnBackendGetAttribute";
  const std::lock_guard lock(TheLibrary().mutex);
  const Descriptor* const d = Find(kCall, descriptor);
  if (!d) return CUDNN_STATUS_BAD_PARAM;
  if (!d->finalized) return Reject(kCall, "what is not finalized");
  const auto give = [&]<class T>(const std::vector<T>& values, cudnnBackendAttributeType_t wanted) {
    if (type != wanted || !count || (most > 0 && !elements)) return Reject(kCall, "a value of another type");
    *count = std::ssize(values);
    std::copy_n(values.data(), std::min(most, *count), static_cast<T*>(elements));
    return CUDNN_STATUS_SUCCESS;
  };
  // Into what the caller has made.
  const auto fill = [&](cudnnBackendDescriptorType_t wanted, const std::vector<Descriptor>& values) {
    if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR || !count || (most > 0 && !elements)) {
      return Reject(kCall, "a value of another type");
    }
    *count = std::ssize(values);
    for (int64_t i = 0; i < std::min(most, *count); ++i) {
      Descriptor* const to = Find(kCall, static_cast<cudnnBackendDescriptor_t*>(elements)[i]);
      if (!to) return CUDNN_STATUS_BAD_PARAM;
      if (to->type != wanted || to->finalized) return Reject(kCall, "a descriptor that cannot be filled in");
      *to = values[static_cast<size_t>(i)];
      to->type = wanted;
      to->finalized = true;
    }
    if (most > 0) *count = std::min(most, *count);
    return CUDNN_STATUS_SUCCESS;
  };
  if (d->type == kHeuristics && name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    std::vector<Descriptor> configs;
    const auto mode = d->Get<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE)[0];
    const std::vector<EngineOffered>& engines = TheLibrary().engines;
    for (size_t i = 0; i < engines.size(); ++i) {
      if (engines[i].mode != mode || (!engines[i].adds && !d->convolution.added.empty())) continue;
      configs.push_back(*d);
      configs.back().values.clear();
      configs.back().others.clear();
      configs.back().engine = engines[i];
      configs.back().place = static_cast<int>(i);
    }
    return fill(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, configs);
  }
  if (d->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && name == CUDNN_ATTR_ENGINECFG_ENGINE) {
    return fill(CUDNN_BACKEND_ENGINE_DESCRIPTOR, {*d});
  }
  if (d->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
    return give(d->engine.notes, CUDNN_TYPE_NUMERICAL_NOTE);
  }
  if (d->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE) {
    return give(d->engine.behavior, CUDNN_TYPE_BEHAVIOR_NOTE);
  }
  if (d->type == kPlan && name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    return give(std::vector{d->engine.workspace}, CUDNN_TYPE_INT64);
  }
  return Reject(kCall, "an attribute that the fake does not know");
}

// ---- execution ----

cudnnStatus_t SetStream(cudnnHandle_t handle, cudaStream_t stream) {
  constexpr char kCall[] = "cudnnSetStream";
  FakeStream* now = nullptr;
  if (FindStream(kCall, stream, &now) != CUDA_SUCCESS) return CUDNN_STATUS_BAD_PARAM;
  const std::lock_guard lock(TheLibrary().mutex);
  if (!Find(kCall, handle)) return CUDNN_STATUS_BAD_PARAM;
  Handle& h = TheLibrary().handles[handle];
  if (h.captured && h.stream != stream && !now->capturing()) {
    State& state = TheState();
    const std::lock_guard state_lock(state.mutex);
    auto* const before = reinterpret_cast<FakeStream*>(h.stream);
    if (state.streams.contains(before) && before->capturing()) {
      return Reject(kCall, "the handle's own streams are being captured");
    }
  }
  h.stream = stream;
  h.captured = false;
  h.set_by = std::this_thread::get_id();
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  constexpr char kCall[] = "cudnnBackendExecute";
  FakeConvolution work{};
  CUstream stream = nullptr;
  {
    const std::lock_guard lock(TheLibrary().mutex);
    const Handle* const h = Find(kCall, handle);
    const Descriptor *const p = Find(kCall, plan), *const v = Find(kCall, pack);
    if (!h || !p || !v) return CUDNN_STATUS_BAD_PARAM;
    if (p->type != kPlan || v->type != kPack || !p->finalized || !v->finalized) return Reject(kCall, "not finalized");
    if (p->gpu != h->gpu) return Reject(kCall, "a plan of another GPU");
    if (!h->stream || h->set_by != std::this_thread::get_id()) return Reject(kCall, "another thread uses the handle");
    stream = h->stream;
    const auto ids = v->Get<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto addresses = v->Get<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    std::vector<const TensorSeen*> tensors = {&p->convolution.x, &p->convolution.w, &p->convolution.y};
    std::vector<void**> to = {&work.x, &work.w, &work.y};
    work.added.resize(p->convolution.added.size());
    for (size_t i = 0; i < work.added.size(); ++i) {
      tensors.push_back(&p->convolution.added[i]);
      to.push_back(&work.added[i]);
    }
    for (size_t i = 0; i < to.size(); ++i) {
      const auto at = std::ranges::find(ids, p->ids[i]);
      if (at == ids.end()) return Reject(kCall, "a tensor without an address");
      *to[i] = addresses[static_cast<size_t>(at - ids.begin())];
      if (!*to[i] || reinterpret_cast<uintptr_t>(*to[i]) % static_cast<uintptr_t>(tensors[i]->alignment) != 0) {
        return Reject(kCall, "an address is null or not aligned");
      }
    }
    if (ids.size() != to.size()) return Reject(kCall, "an address of a tensor that the plan has not");
    work.convolution = p->convolution;
    work.workspace = v->Get<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)[0];
    work.workspace_bytes = static_cast<size_t>(p->engine.workspace);
    if (work.workspace_bytes > 0 && (!work.workspace || reinterpret_cast<uintptr_t>(work.workspace) % 256 != 0)) {
      return Reject(kCall, "the workspace is null or not aligned");
    }
    const auto& notes = p->engine.notes;
    work.tf32 = work.convolution.x.type == CUDNN_DATA_FLOAT &&
                std::ranges::find(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) != notes.end();
    TheLibrary().run.push_back(p->place);
  }
  const CUresult result = OnCapturingStream(kCall, stream, [&](FakeStream& on) {
    {
      const std::lock_guard lock(TheLibrary().mutex);
      Handle& h = TheLibrary().handles[handle];
      h.captured = on.capturing();
      if (!h.captured) h.ran.insert(plan);
      if (!h.ran.contains(plan)) Violation("cudnnBackendExecute: what it makes the first time is made in a capture");
    }
    on.Enqueue({[&gpu = on.gpu, work] { return work.Run(gpu); }, kCall, work.AccessedMemory()});
    return CUDA_SUCCESS;
  });
  return result == CUDA_SUCCESS ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // namespace

CudnnPtr Cudnn() {
  static const CudnnPtr api(new CudnnApi{.create = &Create,
                                         .get_error_string = &GetErrorString,
                                         .set_stream = &SetStream,
                                         .create_descriptor = &CreateDescriptor,
                                         .destroy_descriptor = &DestroyDescriptor,
                                         .set_attribute = &SetAttribute,
                                         .get_attribute = &GetAttribute,
                                         .finalize = &Finalize,
                                         .execute = &Execute});
  return api;
}

std::vector<ConvolutionSeen> TakeConvolutions() {
  const std::lock_guard lock(TheLibrary().mutex);
  return std::exchange(TheLibrary().convolutions, {});
}
std::vector<EngineOffered> UsualEngines() {
  return {{.notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, .workspace = 4096},
          {.notes = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}},
          {.behavior = {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}},
          {.workspace = 512}};
}
void OfferEngines(std::vector<EngineOffered> engines) {
  const std::lock_guard lock(TheLibrary().mutex);
  TheLibrary().engines = std::move(engines);
}
std::vector<int> TakeEnginesRun() {
  const std::lock_guard lock(TheLibrary().mutex);
  return std::exchange(TheLibrary().run, {});
}
int LiveCudnnDescriptors() {
  const std::lock_guard lock(TheLibrary().mutex);
  return static_cast<int>(TheLibrary().descriptors.size());
}

}  // namespace bindery::cuda::fake
