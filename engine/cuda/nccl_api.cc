#include "engine/cuda/nccl_api.h"

#include <utility>

namespace bindery::cuda {

NcclPtr OpenNccl(const std::string& library) { return ChosenLibrary<NcclApi>::Open(library); }
void UseNccl(NcclPtr api) { ChosenLibrary<NcclApi>::The().Use(std::move(api)); }
NcclPtr Nccl() { return ChosenLibrary<NcclApi>::The().Get(); }

}  // namespace bindery::cuda
