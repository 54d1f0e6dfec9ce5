// The functions of cuDNN, NVIDIA's library of convolutions, that are used: those of its graphs, which describe, choose
// and run operations by descriptors. A table of typed pointers, as that of the driver (runtime_api.h), from a library
// that is opened when the first convolution is made for a GPU. Where it is absent, broken or left out, there is no
// table, and whoever wanted it has kernels of his own.
//
// Thread safe, but for handles.
#pragma once

#include <cudnn_graph.h>

#include <memory>
#include <mutex>
#include <string>

#include "engine/cuda/library.h"

namespace bindery::cuda {

class Gpu;

// Names and types are those of cudnn_graph.h.
struct CudnnApi {
  static constexpr AboutLibrary kAbout{
      .name = "BINDERY_CUDNN", .file = "libcudnn.so.9", .without = "convolutions on GPUs are by own kernels: no cuDNN"};
  LibraryFunctions find = {};  // default: all are null
  decltype(&::cudnnCreate) create = find("cudnnCreate");
  decltype(&::cudnnGetErrorString) get_error_string = find("cudnnGetErrorString");
  decltype(&::cudnnSetStream) set_stream = find("cudnnSetStream");
  decltype(&::cudnnBackendCreateDescriptor) create_descriptor = find("cudnnBackendCreateDescriptor");
  decltype(&::cudnnBackendDestroyDescriptor) destroy_descriptor = find("cudnnBackendDestroyDescriptor");
  decltype(&::cudnnBackendSetAttribute) set_attribute = find("cudnnBackendSetAttribute");
  decltype(&::cudnnBackendGetAttribute) get_attribute = find("cudnnBackendGetAttribute");
  decltype(&::cudnnBackendFinalize) finalize = find("cudnnBackendFinalize");
  decltype(&::cudnnBackendExecute) execute = find("cudnnBackendExecute");
};
using CudnnPtr = std::shared_ptr<const CudnnApi>;

// As library.h says: opens another of its kind; what is used from now on; what is used.
CudnnPtr OpenCudnn(const std::string& library);
void UseCudnn(CudnnPtr api);
CudnnPtr Cudnn();

// Used by one thread at a time, who holds `mutex` from setting its stream to enqueuing on it.
struct CudnnHandle {
  std::mutex mutex = {};
  cudnnHandle_t handle = nullptr;
};
// Of a GPU, for what is enqueued on `stream` or captured to be launched there: the same as long as somebody has it,
// then another stream's, and never destroyed. Null if it cannot be made; the first time a line is logged.
//
// Each stream has its own, since cuDNN may fork to streams of the handle's. When these are captured, they stay so until
// the capture ends, and only whoever captures knows when that is. And what it makes for a handle when that is used
// first is not made in a capture.
std::shared_ptr<CudnnHandle> HandleOf(const CudnnApi& api, Gpu& gpu, const void* stream);
// The GPU's, for making plans, which handles of streams then run: it is never given a stream, so none that is captured
// meanwhile, or is no more. Never destroyed; null as above.
CudnnHandle* PlanningHandleOf(const CudnnApi& api, Gpu& gpu);

}  // namespace bindery::cuda
