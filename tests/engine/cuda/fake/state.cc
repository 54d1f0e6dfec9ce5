#include "tests/engine/cuda/fake/state.h"

#include "base/error.h"

namespace bindery::cuda::fake {

State& TheState() {
  static State& state = *new State;  // never destroyed: tensors may be static
  return state;
}

ContextStack& Contexts() {
  thread_local ContextStack contexts;
  return contexts;
}

FakeGpu* Current(const char* call) {
  if (!Contexts().empty()) return Contexts().back();
  Violation(fmt::format("{} without a context", call));
  return nullptr;
}

CUresult Refuse(const char* call, const char* why, CUresult result) {
  Violation(fmt::format("{}: {}", call, why));
  return result;
}

CUresult FindStream(const char* call, CUstream handle, FakeStream** stream) {
  FakeGpu* const gpu = Current(call);
  if (!gpu) return CUDA_ERROR_INVALID_CONTEXT;
  *stream = reinterpret_cast<FakeStream*>(handle);
  {
    const std::lock_guard lock(TheState().mutex);
    if (!TheState().streams.contains(*stream)) return Refuse(call, "no such stream", CUDA_ERROR_INVALID_HANDLE);
  }
  if (&(*stream)->gpu != gpu) return Refuse(call, "a stream of another device", CUDA_ERROR_INVALID_HANDLE);
  return gpu->error;
}

bool IsPinned(const void* memory, size_t bytes) {
  const std::lock_guard lock(TheState().mutex);
  auto piece = TheState().pinned.upper_bound(static_cast<const char*>(memory));
  if (piece == TheState().pinned.begin()) return false;
  --piece;
  return static_cast<const char*>(memory) + bytes <= piece->first + piece->second;
}

Live CountLive() {
  Live live;
  std::set<FakeStream*> streams;
  {
    const std::lock_guard lock(TheState().mutex);
    streams = TheState().streams;
  }
  for (FakeStream* stream : streams) stream->Synchronize();
  {
    const std::lock_guard lock(TheState().mutex);
    live.streams = static_cast<int>(TheState().streams.size());
    live.pinned = static_cast<int>(TheState().pinned.size());
    live.graphs = static_cast<int>(TheState().graphs.size() + TheState().instances.size());
  }
  for (int i = 0; i < kNumGpus; ++i) {
    FakeGpu& gpu = GpuAt(i);
    const std::lock_guard lock(gpu.mutex);
    live.bytes += gpu.memory.in_use();
    live.reservations += static_cast<int>(gpu.reservations.size());
    for (const auto& [address, piece] : gpu.pieces) ++(piece.mapped ? live.mappings : live.allocations);
  }
  return live;
}

const RuntimeApi& Api() {
  static const RuntimeApi api = [] {
    RuntimeApi filled;
    FillDevices(&filled);
    FillMemory(&filled);
    FillStreams(&filled);
    FillKernels(&filled);
    FillGraphs(&filled);
    return filled;
  }();
  return api;
}

}  // namespace bindery::cuda::fake
