// In place of the CUDA backend, in builds without it.
#include "base/error.h"
#include "engine/backend.h"
#include "engine/cuda/exchange.h"
#include "engine/cuda/report.h"

namespace bindery {

Backend& CudaBackend() { Throw<DeviceError>("device cuda is not available: this build has no CUDA"); }

void AppendExchange(const std::shared_ptr<Engine>&, const std::string&, std::map<Device, std::vector<Tensor>>*,
                    StepParts*) {}

CudaReport ReportCuda() { return {.problem = "this build has no CUDA"}; }
CudaCounts CountCuda() { return {}; }

}  // namespace bindery
