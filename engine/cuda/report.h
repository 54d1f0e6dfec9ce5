// What this machine has of CUDA, for people: its GPUs, or why there are none, and the libraries that are found; and what
// was asked of them.
#pragma once

#include <cstdint>
#include <functional>
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
    std::string problem = {};  // why not, in short
  };
  std::string problem = {};  // why there are no GPUs; empty if there are some
  std::string driver = {};   // the newest CUDA that the driver knows, "13.0"; empty without a driver
  std::vector<Gpu> gpus = {};
  std::vector<Library> libraries = {};  // those that come with the toolkit or beside it; none is needed to build
};

// Opens the driver and the libraries. Never throws DeviceError: that is `problem`.
CudaReport ReportCuda();

// What this process has asked of GPUs so far, and a step that runs again and again should not, but for launches. What
// NVIDIA's libraries ask by themselves is not in it.
struct CudaCounts {
  int64_t allocations = 0;       // calls for memory of a GPU, or of the host that GPUs can use
  int64_t synchronizations = 0;  // calls that return when a GPU has done something
  // Waits without a call, for work that was not over: of operations of other devices, and of whoever waits for an
  // engine, who is counted again with each look of the watchdog.
  int64_t waits = 0, waits_of_callers = 0;
  int64_t captures = 0;  // graphs that were made
  int64_t graph_launches = 0;

  CudaCounts& operator+=(const CudaCounts& more) { return *this = Each(more, std::plus<int64_t>()); }
  CudaCounts operator-(const CudaCounts& before) const { return Each(before, std::minus<int64_t>()); }

 private:
  template <class Operation>
  CudaCounts Each(const CudaCounts& b, Operation f) const {
    return {f(allocations, b.allocations),
            f(synchronizations, b.synchronizations),
            f(waits, b.waits),
            f(waits_of_callers, b.waits_of_callers),
            f(captures, b.captures),
            f(graph_launches, b.graph_launches)};
  }
};
CudaCounts CountCuda();

}  // namespace bindery
