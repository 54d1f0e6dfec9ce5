// The functions of NCCL, NVIDIA's library of collectives, that are used: a table of typed pointers, as that of cuBLASLt
// (cublaslt_api.h), from a library that is opened when what several GPUs exchange is first prepared. Where it is
// absent, broken or left out, there is no table, and GPUs copy from each other.
//
// NCCL is no part of CUDA's toolkit, so its header need not be there to build: what is used of it is declared here, as
// nccl.h has it since NCCL 2.7, enums as the integers that they are passed as.
//
// Thread safe.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <string>

#include "engine/cuda/library.h"

namespace bindery::cuda {

struct NcclComm;           // ncclComm: one GPU's part of a communicator
using NcclResult = int;    // ncclResult_t
using NcclDataType = int;  // ncclDataType_t
inline constexpr NcclResult kNcclSuccess = 0, kNcclUnhandledCudaError = 1, kNcclSystemError = 2, kNcclInternalError = 3,
                            kNcclInvalidArgument = 4, kNcclInvalidUsage = 5, kNcclRemoteError = 6;
inline constexpr NcclDataType kNcclUint8 = 1;

// Names are those of nccl.h; a CUstream is a cudaStream_t.
struct NcclApi {
  static constexpr AboutLibrary kAbout{
      .name = "BINDERY_NCCL", .file = "libnccl.so.2", .without = "GPUs copy what they exchange: no NCCL"};
  LibraryFunctions find = {};  // default: all are null
  const char* (*get_error_string)(NcclResult result) = find("ncclGetErrorString");
  NcclResult (*comm_init_all)(NcclComm** comms, int count, const int* devices) = find("ncclCommInitAll");
  NcclResult (*comm_abort)(NcclComm* comm) = find("ncclCommAbort");
  NcclResult (*comm_get_async_error)(NcclComm* comm, NcclResult* error) = find("ncclCommGetAsyncError");
  NcclResult (*group_start)() = find("ncclGroupStart");
  NcclResult (*group_end)() = find("ncclGroupEnd");
  NcclResult (*broadcast)(const void* source, void* target, size_t count, NcclDataType type, int root, NcclComm* comm,
                          CUstream stream) = find("ncclBroadcast");
  NcclResult (*send)(const void* source, size_t count, NcclDataType type, int peer, NcclComm* comm,
                     CUstream stream) = find("ncclSend");
  NcclResult (*receive)(void* target, size_t count, NcclDataType type, int peer, NcclComm* comm,
                        CUstream stream) = find("ncclRecv");
};
using NcclPtr = std::shared_ptr<const NcclApi>;

// As library.h says: opens another of its kind; what is used from now on; what is used.
NcclPtr OpenNccl(const std::string& library);
void UseNccl(NcclPtr api);
NcclPtr Nccl();

}  // namespace bindery::cuda
