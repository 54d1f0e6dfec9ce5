// The driver's functions that put work on streams, but for kernels.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "tests/engine/cuda/fake/state.h"

namespace bindery::cuda::fake {
namespace {

// A copy: `from` and `to` give an address that the host can use, or null.
template <class From, class To>
CUresult Copy(const char* call, CUstream handle, size_t bytes, CUdeviceptr source_address, CUdeviceptr target_address,
              const From& from, const To& to) {
  return OnCapturingStream(call, handle, [&](FakeStream& stream) {
    FakeGpu& gpu = stream.gpu;
    if (source_address < target_address + bytes && target_address < source_address + bytes) {
      Violation(fmt::format("{} between ranges that meet", call));
    }
    stream.Enqueue({[&gpu, bytes, from, to] {
                      const char* const source = from(gpu);
                      char* const target = to(gpu);
                      if (!source || !target) return CUDA_ERROR_ILLEGAL_ADDRESS;
                      std::memcpy(target, source, bytes);
                      return CUDA_SUCCESS;
                    },
                    call,
                    {{source_address, bytes, false}, {target_address, bytes, true}}});
    return CUDA_SUCCESS;
  });
}
CUdeviceptr HostAddress(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }
auto OnDevice(CUdeviceptr address, size_t bytes) {
  return [=](const FakeGpu& gpu) { return Resolve(gpu, address, bytes, "a copy"); };
}
auto OnHost(const void* memory, size_t bytes) {
  return [=](const FakeGpu&) -> char* {
    if (IsPinned(memory, bytes)) return static_cast<char*>(const_cast<void*>(memory));
    Violation("a copy uses memory of the host that is not pinned (any more)");
    return nullptr;
  };
}
CUresult MemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return Copy("cuMemcpyHtoDAsync", stream, bytes, HostAddress(from), to, OnHost(from, bytes), OnDevice(to, bytes));
}
CUresult MemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy("cuMemcpyDtoHAsync", stream, bytes, from, HostAddress(to), OnDevice(from, bytes), OnHost(to, bytes));
}
CUresult MemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy("cuMemcpyDtoDAsync", stream, bytes, from, to, OnDevice(from, bytes), OnDevice(to, bytes));
}
// By way of the host, where neither reaches the other.
CUresult MemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                         CUstream stream) {
  const auto on = [bytes](CUdeviceptr address, CUcontext context) {
    return [=](const FakeGpu&) {
      return Resolve(*reinterpret_cast<FakeGpu*>(context), address, bytes, "a copy between GPUs");
    };
  };
  return Copy("cuMemcpyPeerAsync", stream, bytes, from, to, on(from, from_context), on(to, to_context));
}
CUresult MemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream handle) {
  return OnCapturingStream("cuMemsetD8Async", handle, [&](FakeStream& stream) {
    stream.Enqueue({[&gpu = stream.gpu, to, value, bytes] {
                      char* const memory = Resolve(gpu, to, bytes, "cuMemsetD8Async");
                      if (!memory) return CUDA_ERROR_ILLEGAL_ADDRESS;
                      std::memset(memory, value, bytes);
                      return CUDA_SUCCESS;
                    },
                    "cuMemsetD8Async",
                    {{to, bytes, true}}});
    return CUDA_SUCCESS;
  });
}

CUresult StreamCreateWithPriority(CUstream* handle, unsigned flags, int) {
  FakeGpu* const gpu = Current("cuStreamCreateWithPriority");
  if (!gpu) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags != CU_STREAM_NON_BLOCKING) return Refuse("cuStreamCreate", "waits for the default stream");
  auto* const stream = new FakeStream(*gpu);
  *handle = reinterpret_cast<CUstream>(stream);
  const std::lock_guard lock(TheState().mutex);
  TheState().streams.insert(stream);
  return CUDA_SUCCESS;
}
CUresult StreamSynchronize(CUstream handle) {
  return OnStream("cuStreamSynchronize", handle, [](FakeStream& stream) {
    stream.Synchronize();
    return stream.gpu.error.load();
  });
}
CUresult StreamQuery(CUstream handle) {
  return OnStream("cuStreamQuery", handle,
                  [](FakeStream& stream) { return stream.idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; });
}
std::shared_ptr<FakeEvent> EventOf(CUevent event) {
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().events.find(event);
  if (found != TheState().events.end()) return found->second;
  Violation("no such event");
  return nullptr;
}
CUresult StreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
  return OnStream("cuStreamWaitEvent", handle, [&](FakeStream& stream) {
    const std::shared_ptr<FakeEvent> event = EventOf(event_handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    stream.WaitFor(event);
    return CUDA_SUCCESS;
  });
}
CUresult StreamWriteValue64(CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned) {
  return OnStream("cuStreamWriteValue64", handle, [&](FakeStream& stream) {
    stream.Enqueue({[address, value] {
      if (!IsPinned(reinterpret_cast<const void*>(address), sizeof value)) return CUDA_ERROR_ILLEGAL_ADDRESS;
      std::atomic_ref(*reinterpret_cast<uint64_t*>(address)).store(value, std::memory_order_release);
      return CUDA_SUCCESS;
    }});
    return CUDA_SUCCESS;
  });
}
CUresult EventCreate(CUevent* handle, unsigned) {
  if (!Current("cuEventCreate")) return CUDA_ERROR_INVALID_CONTEXT;
  auto event = std::make_shared<FakeEvent>();
  *handle = reinterpret_cast<CUevent>(event.get());
  const std::lock_guard lock(TheState().mutex);
  TheState().events[*handle] = std::move(event);
  return CUDA_SUCCESS;
}
CUresult EventRecord(CUevent handle, CUstream stream_handle) {
  return OnStream("cuEventRecord", stream_handle, [&](FakeStream& stream) {
    const std::shared_ptr<FakeEvent> event = EventOf(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    uint64_t number = 0;
    {
      const std::lock_guard lock(event->mutex);
      number = ++event->recorded;
      event->clock = ClockOf(&stream);
    }
    stream.Enqueue({[event, number] {
      const std::lock_guard event_lock(event->mutex);
      event->reached = std::max(event->reached, number);
      event->changed.notify_all();
      return CUDA_SUCCESS;
    }});
    return CUDA_SUCCESS;
  });
}

}  // namespace

void FillStreams(RuntimeApi* api) {
  api->memset_d8_async = &MemsetD8Async;
  api->memcpy_htod_async = &MemcpyHtoDAsync;
  api->memcpy_dtoh_async = &MemcpyDtoHAsync;
  api->memcpy_dtod_async = &MemcpyDtoDAsync;
  api->memcpy_peer_async = &MemcpyPeerAsync;
  api->stream_create_with_priority = &StreamCreateWithPriority;
  api->stream_synchronize = &StreamSynchronize;
  api->stream_query = &StreamQuery;
  api->stream_wait_event = &StreamWaitEvent;
  api->stream_write_value64 = &StreamWriteValue64;
  api->event_create = &EventCreate;
  api->event_record = &EventRecord;
}

}  // namespace bindery::cuda::fake
