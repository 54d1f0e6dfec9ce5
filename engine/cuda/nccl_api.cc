#include "engine/cuda/nccl_api.h"

#include <utility>

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
  return std::make_shared<const NcclApi>(NcclApi{.find = LibraryFunctions(library)});
}

void UseNccl(NcclPtr api) { Chosen().Use(std::move(api)); }
NcclPtr Nccl() { return Chosen().Get(); }

}  // namespace bindery::cuda
