#include "tests/engine/cuda/fake/state.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "engine/memory/storage.h"

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
  return static_cast<const char*>(memory) + bytes <= piece->first + piece->second.bytes;
}

int CountStreams() {
  const std::lock_guard lock(TheState().mutex);
  return static_cast<int>(TheState().streams.size());
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

std::string WhenMade() {
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  return test ? fmt::format("in {}.{}", test->test_suite_name(), test->name()) : "outside of tests";
}

namespace {

std::vector<std::string> ListNow() {
  std::vector<std::string> left;
  const auto is_lost = [](int gpu) { return GpuAt(gpu).error != CUDA_SUCCESS; };
  for (int i = 0; i < kNumGpus; ++i) {
    FakeGpu& gpu = GpuAt(i);
    if (is_lost(i)) continue;
    const std::lock_guard lock(gpu.mutex);
    for (const auto& [address, piece] : gpu.pieces) {
      left.push_back(
          fmt::format("{} bytes {} GPU {}, made {}", piece.bytes, piece.mapped ? "mapped on" : "of", i, piece.made));
    }
    for (const auto& [address, bytes] : gpu.reservations) {
      left.push_back(fmt::format("{} addresses of GPU {}", bytes, i));
    }
  }
  const std::lock_guard lock(TheState().mutex);
  for (const auto& [memory, piece] : TheState().pinned) {
    if (piece.bytes == sizeof(uint64_t)) continue;  // a clique's
    left.push_back(fmt::format("{} bytes of pinned memory, made {}", piece.bytes, piece.made));
  }
  const auto add_graph = [&](const char* what, const FakeGraph& graph) {
    if (!is_lost(graph.gpu)) left.push_back(fmt::format("{} of GPU {}, made {}", what, graph.gpu, graph.made));
  };
  for (const auto& [address, graph] : TheState().graphs) add_graph("a graph", *graph);
  for (const auto& [address, instance] : TheState().instances) add_graph("an instance of a graph", instance->graph);
  return left;
}

}  // namespace

std::vector<std::string> ListLeft() {
  std::vector<std::string> left;
  for (int i = 0; i < 500; ++i) {
    DefaultStorage()->ReleasePool();
    left = ListNow();
    if (left.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return left;
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
