// A stand-in for CUDA's driver, for tests on machines without a GPU: the functions of engine/cuda/runtime_api.h over
// memory of simulated devices (engine/sim/device.h) and streams that are threads. Linked into a test, it is what the
// backend finds (install.cc). It is never linked into a program.
//
// What is hard about a GPU is here, too: memory that the host cannot address; streams that run later, after random
// delays (sim::SetDelays), and in no order but that of events; copies from and to pinned memory only; memory that is
// usable, and freed, in the order of a stream; errors of work that show later and leave the device lost. What the real
// driver would do silently, or not at all, is a violation and is reported: work of two streams on the same memory that
// nothing keeps in order, whatever came of it this time (races.h), use of memory that is not there or no
// longer, double frees, calls without a context or with another device's. A stream can be captured, by itself; what CUDA
// refuses meanwhile is refused, and so are writes by streams, of which the documentation does not say.
//
// Kernels run by their bodies for CPUs, found by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cuda/runtime_api.h"

namespace bindery::cuda::fake {

inline constexpr int kNumGpus = 12;
// The last one can reach no other's memory, and no other its.
inline constexpr int kLonelyGpu = kNumGpus - 1;

const RuntimeApi& Api();

// Faults, counted from the call, from 1; once. A kernel is any work that touches memory, copies included.
void FailKernel(int gpu, int64_t nth);          // reads where nothing is: the device is lost to this process
void HangKernel(int gpu, int64_t nth);          // does not end until Release
void HangWriter(int gpu, const void* address);  // the same, of the next one that writes memory that begins there
void Release(int gpu);
void FailAllocation(int gpu, int64_t nth);
void FailContext(int gpu);  // the next one that is asked for
// What all GPUs lack from now on, of what a device may lack; CUdevice_attribute(0): nothing.
void Lack(CUdevice_attribute attribute);
void SetMemoryLimit(int gpu, int64_t bytes);
// From now on the work of a stream that is idle is done by whoever enqueues it: for tests of what kernels compute.
void RunAtOnce();

// Threads of blocks are real ones, which wait for each other where a GPU's would: for sanitizers that look for races.
void UseRealThreads(bool use);
// Blocks of another size, of any, than is asked for, where kernels do not depend on it; 0: as is asked for.
void SetThreads(int threads);

// What is alive now, when all streams have come to rest.
struct Live {
  int64_t bytes = 0;  // of device memory, mapped or allocated
  int allocations = 0, mappings = 0, reservations = 0, pinned = 0, graphs = 0;
  bool operator==(const Live&) const = default;
};
Live CountLive();
int CountStreams();  // which GPUs keep as long as the process lives
// What is alive but for what the default storage pools, one by one, with the test that made it: when nothing is,
// or after five seconds, in which threads end for which nobody waits. Not what GPUs and cliques keep as long as the
// process lives, streams and a word of pinned memory; and nothing of lost GPUs, whose memory nobody can free.
std::vector<std::string> ListLeft();

void RefuseImages(bool yes);  // that are neither the program's nor loaded already, as a driver that is too old

int64_t KernelLaunches();                             // so far, or into graphs
int64_t CountDone(int gpu, const std::string& name);  // so far: a kernel's, or that of a call that copies
int64_t GraphLaunches();                              // so far
void RefuseCapture(bool yes);                         // as a driver that cannot

int CurrentGpu();  // of the calling thread; -1: none

// What was done that a real GPU would have punished, since the last call.
std::vector<std::string> TakeViolations();

}  // namespace bindery::cuda::fake
