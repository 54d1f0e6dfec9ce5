// Finds work of different streams that uses the same memory, of which one writes, and that nothing keeps in order: a
// vector clock for each stream, which events carry from one to the other. What was over before the other was enqueued is
// in order, too, for a host that looked may count on it. Private to the fake.
//
// Copies and fills are known byte by byte. Of kernels it is known where their operands begin, and, by their being const,
// which are only read: two that overlap without beginning at one address are not seen.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/runtime_api.h"

namespace bindery::cuda::fake {

struct Access {
  CUdeviceptr begin = 0;
  size_t bytes = 1;
  bool writes = false;
};
using Accesses = std::vector<Access>;
// By stream: what of it comes before.
using Clock = std::map<const void*, uint64_t>;
using Over = std::shared_ptr<std::atomic<bool>>;  // set when the work is

// Work enters a stream. A race is a violation.
Over EnterWork(const void* stream, const std::string& what, const Accesses& accesses);
Clock ClockOf(const void* stream);
void ComeAfter(const void* stream, const Clock& clock);
void ForgetStream(const void* stream);

}  // namespace bindery::cuda::fake
