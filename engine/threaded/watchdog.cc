#include "engine/threaded/watchdog.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <utility>

#include "engine/threaded/run.h"

namespace bindery {
namespace {

// What a worker, or its stream, is doing. Where either waits for another device, it is that one's affair.
Stream::Work WorkOf(const Worker& worker) {
  if (const Operation* const current = worker.current; current && !worker.waits.load(std::memory_order_relaxed)) {
    std::string what = fmt::format("operation \"{}\"", current->name);
    if (const std::string at = current->at ? current->at() : ""; !at.empty()) what += ", " + at;
    return {.number = worker.taken, .what = std::move(what)};
  }
  return worker.stream->Doing();
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
  for (const auto& worker : workers) {
    Sight& sight = worker->sight;
    Stream::Work work = WorkOf(*worker);
    if (work.what.empty() || work.number != sight.number || work.what != sight.what) {
      sight = {.number = work.number, .what = std::move(work.what)};
      continue;
    }
    sight.seconds += passed;
    if (sight.seconds < limit_) continue;
    const auto since = std::chrono::system_clock::now() - std::chrono::round<std::chrono::seconds>(sight.seconds);
    found += fmt::format("{}{} hangs: it has been at {} for {:.1f} s, since {:%F %T} UTC", found.empty() ? "" : "; ",
                         worker->stream->device(), sight.what, sight.seconds.count(),
                         fmt::gmtime(std::chrono::system_clock::to_time_t(since)));
    *news |= !std::exchange(sight.told, true);
  }
  return found;
}

}  // namespace bindery
