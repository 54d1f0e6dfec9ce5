// What the functions of the fake share. As with the driver's, whatever fails says so by its result; what the driver
// would let pass is a violation, too. Private to the fake.
#pragma once

#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "tests/engine/cuda/fake/device.h"

namespace bindery::cuda::fake {

// What handles stand for: the address of a pool, a module and the like is never followed.
struct State {
  std::mutex mutex;
  std::set<FakeStream*> streams;
  std::map<CUevent, std::shared_ptr<FakeEvent>> events;
  struct Pinned {
    size_t bytes = 0;
    std::string made = WhenMade();
  };
  std::map<const char*, Pinned> pinned;
  std::map<CUmemGenericAllocationHandle, std::pair<int, size_t>> handles;  // GPU, bytes
  CUmemGenericAllocationHandle next_handle = 1;
  std::map<FakeGraph*, std::unique_ptr<FakeGraph>> graphs;
  std::map<FakeGraphInstance*, std::shared_ptr<FakeGraphInstance>> instances;
};
State& TheState();

// The calling thread's contexts, innermost last. Nothing destroys them: static engines and tensors outlive what the main
// thread has for itself.
struct ContextStack {
  FakeGpu* contexts[16] = {};
  size_t depth = 0;

  bool empty() const { return depth == 0; }
  FakeGpu* back() const { return contexts[depth - 1]; }
  bool push(FakeGpu* gpu) { return depth < std::size(contexts) && (contexts[depth++] = gpu, true); }
  void pop() { --depth; }
};
ContextStack& Contexts();
// The calling thread's GPU; null, and a violation, if it has none.
FakeGpu* Current(const char* call);
CUresult Refuse(const char* call, const char* why, CUresult result = CUDA_ERROR_INVALID_VALUE);
// The stream that a call puts work on, if it may.
CUresult FindStream(const char* call, CUstream handle, FakeStream** stream);
// f(stream) on it, of calls that can be captured.
template <class F>
CUresult OnCapturingStream(const char* call, CUstream handle, const F& f) {
  FakeStream* stream = nullptr;
  const CUresult result = FindStream(call, handle, &stream);
  return result == CUDA_SUCCESS ? f(*stream) : result;
}
// Of calls that cannot, or of which the documentation does not say that they can: the capture is lost, too.
template <class F>
CUresult OnStream(const char* call, CUstream handle, const F& f) {
  return OnCapturingStream(call, handle, [&](FakeStream& stream) {
    if (!stream.capturing()) return CUresult(f(stream));
    stream.SpoilCapture();
    return Refuse(call, "while the stream is captured", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  });
}
// Of calls that work beside streams.
CUresult RefuseWhileCapturing(const char* call);

void FillDevices(RuntimeApi* api);
void FillMemory(RuntimeApi* api);
void FillStreams(RuntimeApi* api);
void FillKernels(RuntimeApi* api);
void FillGraphs(RuntimeApi* api);

}  // namespace bindery::cuda::fake
