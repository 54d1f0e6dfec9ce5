#include "engine/cuda/nccl_api.h"

#include <utility>

#include "engine/cuda/library.h"

namespace bindery::cuda {
namespace {

ChosenLibrary<NcclApi>& Chosen() {
  static auto& chosen = *new ChosenLibrary<NcclApi>({.name = "BINDERY_NCCL",
                                                     .file = "libnccl.so.2",
                                                     .open = &OpenNccl,
                                                     .without = "GPUs copy what they exchange: no NCCL"});
  return chosen;
}

}  // namespace

NcclPtr OpenNccl(const std::string& library) {
  const LibraryFunctions find(library);
  auto api = std::make_shared<NcclApi>();
  find("ncclGetErrorString", api->get_error_string);
  find("ncclCommInitAll", api->comm_init_all);
  find("ncclCommAbort", api->comm_abort);
  find("ncclCommGetAsyncError", api->comm_get_async_error);
  find("ncclGroupStart", api->group_start);
  find("ncclGroupEnd", api->group_end);
  find("ncclBroadcast", api->broadcast);
  find("ncclSend", api->send);
  find("ncclRecv", api->receive);
  return api;
}

void UseNccl(NcclPtr api) { Chosen().Use(std::move(api)); }
NcclPtr Nccl() { return Chosen().Get(); }

}  // namespace bindery::cuda
