// What this machine has of CUDA, for people: its GPUs, or why there are none, and the libraries that are found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bindery {

struct CudaReport {
  struct Gpu {
    std::string name = {};
    int64_t bytes = 0;            // of memory
    std::string capability = {};  // "9.0"
  };
  struct Library {
    std::string name = {};     // "cuDNN"
    std::string version = {};  // "9.19.0"; empty: not found
  };
  std::string problem = {};  // why there are no GPUs; empty if there are some
  std::string driver = {};   // the newest CUDA that the driver knows, "13.0"; empty without a driver
  std::vector<Gpu> gpus = {};
  std::vector<Library> libraries = {};  // those that come with the toolkit or beside it; none is needed to build
};

// Opens the driver and the libraries. Never throws DeviceError: that is `problem`.
CudaReport ReportCuda();

}  // namespace bindery
