// The driver's functions that capture work into graphs and launch them. A stream is captured by itself: other streams
// never join.
#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "tests/engine/cuda/fake/state.h"

namespace bindery::cuda::fake {
namespace {

thread_local int captures_of_thread = 0;
std::atomic<int64_t> launches = 0;
std::atomic<bool> refuse = false;

CUresult StreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  return OnStream("cuStreamBeginCapture", handle, [&](FakeStream& stream) {
    if (mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) return Refuse("cuStreamBeginCapture", "stops other threads");
    if (refuse) return CUDA_ERROR_NOT_SUPPORTED;
    stream.BeginCapture();
    ++captures_of_thread;
    return CUDA_SUCCESS;
  });
}

CUresult StreamEndCapture(CUstream handle, CUgraph* graph) {
  return OnCapturingStream("cuStreamEndCapture", handle, [&](FakeStream& stream) {
    if (!stream.capturing()) return Refuse("cuStreamEndCapture", "it is not captured", CUDA_ERROR_ILLEGAL_STATE);
    std::unique_ptr<FakeGraph> captured = stream.EndCapture();
    --captures_of_thread;
    *graph = nullptr;
    if (captured->by != std::this_thread::get_id()) {
      return Refuse("cuStreamEndCapture", "by another thread", CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }
    if (!captured->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    const std::lock_guard lock(TheState().mutex);
    *graph = reinterpret_cast<CUgraph>(captured.get());
    TheState().graphs[captured.get()] = std::move(captured);
    return CUDA_SUCCESS;
  });
}

CUresult GraphInstantiate(CUgraphExec* instance, CUgraph graph, unsigned long long flags) {
  if (!Current("cuGraphInstantiate")) return CUDA_ERROR_INVALID_CONTEXT;
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().graphs.find(reinterpret_cast<FakeGraph*>(graph));
  if (found == TheState().graphs.end()) return Refuse("cuGraphInstantiate", "no such graph");
  if (flags != 0) return Refuse("cuGraphInstantiate", "flags that the fake does not know");
  auto made = std::make_shared<FakeGraphInstance>(*found->second);
  *instance = reinterpret_cast<CUgraphExec>(made.get());
  TheState().instances[made.get()] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult GraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  return OnStream("cuGraphLaunch", stream_handle, [&](FakeStream& stream) {
    std::shared_ptr<FakeGraphInstance> instance;
    {
      const std::lock_guard lock(TheState().mutex);
      const auto found = TheState().instances.find(reinterpret_cast<FakeGraphInstance*>(handle));
      if (found == TheState().instances.end()) return Refuse("cuGraphLaunch", "no such graph");
      instance = found->second;
    }
    if (instance->graph.gpu != stream.gpu.index) return Refuse("cuGraphLaunch", "on another device");
    ++launches;
    ++instance->under_way;
    for (const FakeWork& node : instance->graph.nodes) stream.Enqueue(node);
    stream.Enqueue({[instance] {
      --instance->under_way;
      return CUDA_SUCCESS;
    }});
    return CUDA_SUCCESS;
  });
}

CUresult GraphDestroy(CUgraph graph) {
  const std::lock_guard lock(TheState().mutex);
  if (TheState().graphs.erase(reinterpret_cast<FakeGraph*>(graph)) == 0)
    return Refuse("cuGraphDestroy", "no such graph");
  return CUDA_SUCCESS;
}

CUresult GraphExecDestroy(CUgraphExec instance) {
  if (!Current("cuGraphExecDestroy")) return CUDA_ERROR_INVALID_CONTEXT;
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().instances.find(reinterpret_cast<FakeGraphInstance*>(instance));
  if (found == TheState().instances.end()) return Refuse("cuGraphExecDestroy", "no such graph");
  if (found->second->under_way > 0 && GpuAt(found->second->graph.gpu).error == CUDA_SUCCESS) {
    Violation("cuGraphExecDestroy: the graph is under way");
  }
  TheState().instances.erase(found);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult RefuseWhileCapturing(const char* call) {
  return captures_of_thread == 0
             ? CUDA_SUCCESS
             : Refuse(call, "while this thread captures a stream", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

int64_t GraphLaunches() { return launches; }
void RefuseCapture(bool yes) { refuse = yes; }

void FillGraphs(RuntimeApi* api) {
  api->stream_begin_capture = &StreamBeginCapture;
  api->stream_end_capture = &StreamEndCapture;
  api->graph_instantiate = &GraphInstantiate;
  api->graph_launch = &GraphLaunch;
  api->graph_destroy = &GraphDestroy;
  api->graph_exec_destroy = &GraphExecDestroy;
}

}  // namespace bindery::cuda::fake
