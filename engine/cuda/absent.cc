// In place of the CUDA backend, in builds without it.
#include "base/error.h"
#include "engine/backend.h"
#include "engine/cuda/report.h"

namespace bindery {

Backend& CudaBackend() { Throw<DeviceError>("device cuda is not available: this build has no CUDA"); }

CudaReport ReportCuda() { return {.problem = "this build has no CUDA"}; }

}  // namespace bindery
