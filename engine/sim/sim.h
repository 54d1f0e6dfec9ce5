// Simulated accelerators, sim:0 to sim:15: what is hard about real ones, on every machine. Memory that the host cannot
// address, streams whose work happens later and after random delays, copies from and to staging memory only, limits,
// and faults on request. Their kernels are the reference table's, so they are slow: they are for tests of this library
// and of programs that use it, and say nothing about speed.
//
// A device address lies in reserved, inaccessible address space: whoever follows it on the host crashes, there and
// then. The kernels see the same pages at another address.
//
// The functions below are for tests. Thread safe. They act on all streams of a device, of all engines.
#pragma once

#include <cstdint>
#include <string>

#include "base/device.h"

namespace bindery::sim {

inline constexpr int kMaxDevices = 16;

// Before each operation a stream waits up to `max_delay_microseconds`, by random numbers from `seed`.
void SetDelays(uint64_t seed, int max_delay_microseconds);

void SetMemoryLimit(Device device, int64_t bytes);  // of device memory in use; 0: none
int64_t MemoryInUse(Device device);

// Counted from this call, from 1; once. A kernel is any piece of work that runs on a stream, copies included.
void FailAllocation(Device device, int64_t nth);  // as if memory were short
void FailKernel(Device device, int64_t nth);      // throws DeviceError when it would run
void HangKernel(Device device, int64_t nth);      // does not end until Release
void Release(Device device);                      // what hangs goes on, and does its work
// From now on every kernel fails and no memory is to be had.
void Lose(Device device);
int64_t KernelsRun(Device device);  // since Reset
// No faults, no delays, no limits, everything released.
void Reset();

}  // namespace bindery::sim
