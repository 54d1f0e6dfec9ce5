#include "tests/engine/cuda/fake/races.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "tests/engine/cuda/fake/device.h"

namespace bindery::cuda::fake {
namespace {

struct Work {
  const void* stream;
  uint64_t time;  // of its stream's clock
  std::string what;
  Accesses accesses;
  Over over;
};
struct Watch {
  std::mutex mutex;
  std::map<const void*, Clock> clocks;
  std::vector<Work> under_way;
};
Watch& TheWatch() {
  static Watch& watch = *new Watch;  // never destroyed: streams may be static
  return watch;
}

// Null: none.
const Access* Conflict(const Accesses& a, const Accesses& b) {
  for (const Access& x : a) {
    for (const Access& y : b) {
      if ((x.writes || y.writes) && x.begin < y.begin + y.bytes && y.begin < x.begin + x.bytes) return &x;
    }
  }
  return nullptr;
}

}  // namespace

Over EnterWork(const void* stream, const std::string& what, const Accesses& accesses) {
  Watch& watch = TheWatch();
  const std::lock_guard lock(watch.mutex);
  Clock& clock = watch.clocks[stream];
  const uint64_t time = ++clock[stream];
  std::erase_if(watch.under_way, [](const Work& work) { return work.over->load(); });
  for (const Work& work : watch.under_way) {
    const auto known = clock.find(work.stream);
    if (known != clock.end() && known->second >= work.time) continue;
    const Access* const place = Conflict(accesses, work.accesses);
    if (!place) continue;
    Violation(fmt::format("{} and {} on another stream use {:#x} in no order", what, work.what, place->begin));
  }
  return watch.under_way.emplace_back(stream, time, what, accesses, std::make_shared<std::atomic<bool>>(false)).over;
}

Clock ClockOf(const void* stream) {
  const std::lock_guard lock(TheWatch().mutex);
  return TheWatch().clocks[stream];
}

void ComeAfter(const void* stream, const Clock& clock) {
  const std::lock_guard lock(TheWatch().mutex);
  Clock& mine = TheWatch().clocks[stream];
  for (const auto& [other, time] : clock) mine[other] = std::max(mine[other], time);
}

// Another may have its address.
void ForgetStream(const void* stream) {
  const std::lock_guard lock(TheWatch().mutex);
  TheWatch().clocks.erase(stream);
  for (auto& [other, clock] : TheWatch().clocks) clock.erase(stream);
  std::erase_if(TheWatch().under_way, [&](const Work& work) { return work.stream == stream; });
}

}  // namespace bindery::cuda::fake
