#include "engine/threaded/watchdog.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "engine/can_give_up.h"
#include "engine/threaded/run.h"

namespace bindery {
namespace {

// What a worker, or its stream, is doing. Where either waits for another device, it is that one's affair.
Sight Glance(const Worker& worker) {
  if (const Operation* const current = worker.current; current && !worker.waits.load(std::memory_order_relaxed)) {
    std::string what = fmt::format("operation \"{}\"", current->name);
    if (const std::string at = current->at ? current->at() : ""; !at.empty()) what += ", " + at;
    return {.number = worker.taken, .what = std::move(what)};
  }
  Stream::Work work = worker.stream->Doing();
  return {.number = work.number, .what = std::move(work.what), .by_stream = true};
}

// "for 12.3 s, since 2026-11-27 06:12:00 UTC"
std::string TimeOf(const Sight& sight) {
  const auto since = std::chrono::system_clock::now() - std::chrono::round<std::chrono::seconds>(sight.seconds);
  return fmt::format("for {:.1f} s, since {:%F %T} UTC", sight.seconds.count(),
                     fmt::gmtime(std::chrono::system_clock::to_time_t(since)));
}

void BeginAnew(Sight* sight) {
  sight->seconds = {};
  sight->told = false;
}

bool MayGiveUp(const Worker* worker) {
  const auto* const stream = dynamic_cast<const CanGiveUp*>(worker->stream.get());
  return stream && worker->sight.by_stream && stream->MayGiveUp(worker->sight.number);
}

bool IsBehind(const Worker* worker) {
  return dynamic_cast<const CanGiveUp&>(*worker->stream).IsBehind(worker->sight.number);
}

bool GiveUp(Worker* worker) {
  Sight& sight = worker->sight;
  auto& stream = dynamic_cast<CanGiveUp&>(*worker->stream);
  if (!stream.GiveUp(sight.number, fmt::format("{} hung {}", sight.what, TimeOf(sight)))) return false;
  BeginAnew(&sight);
  return true;
}

}  // namespace

Watchdog::Watchdog(int milliseconds)
    : limit_(std::chrono::milliseconds(milliseconds)),
      period_(milliseconds > 0 ? std::clamp(milliseconds / 10, 1, 1000) : 3'600'000) {}

std::string Watchdog::Look(std::span<const std::unique_ptr<Worker>> workers, bool* news) {
  *news = false;
  std::string found;
  if (limit_.count() == 0) return found;
  const auto now = std::chrono::steady_clock::now();
  const auto passed = std::min<std::chrono::duration<double>>(now - looked_, 2 * period_);
  looked_ = now;
  std::vector<Worker*> hanging;
  for (const auto& worker : workers) {
    Sight& sight = worker->sight;
    Sight now_at = Glance(*worker);
    if (now_at.what.empty() || now_at.number != sight.number || now_at.what != sight.what ||
        now_at.by_stream != sight.by_stream) {
      sight = std::move(now_at);
      continue;
    }
    sight.seconds += passed;
    if (sight.seconds >= limit_) hanging.push_back(worker.get());
  }
  if (!hanging.empty() && std::ranges::all_of(hanging, MayGiveUp)) {
    std::set<Worker*> behind;  // asked once, before any ends: what goes on then is not told to hang
    for (const auto& worker : workers) {
      if (MayGiveUp(worker.get()) && IsBehind(worker.get())) behind.insert(worker.get());
    }
    if (std::erase_if(hanging, [&](Worker* worker) { return !behind.contains(worker) && GiveUp(worker); }) > 0) {
      for (Worker* const worker : behind) BeginAnew(&worker->sight);
      std::erase_if(hanging, [&](Worker* worker) { return behind.contains(worker); });
    }
  }
  for (Worker* const worker : hanging) {
    Sight& sight = worker->sight;
    found += fmt::format("{}{} hangs: it has been at {} {}", found.empty() ? "" : "; ", worker->stream->device(),
                         sight.what, TimeOf(sight));
    *news |= !std::exchange(sight.told, true);
  }
  return found;
}

}  // namespace bindery
