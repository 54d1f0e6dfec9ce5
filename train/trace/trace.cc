#include "train/trace/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "train/quoted_text.h"

namespace bindery {
namespace {

constexpr int kHost = 0;  // its process

const char* NameOf(Lane lane) {
  switch (lane) {
    case Lane::kCompute: return "compute";
    case Lane::kCopy: return "copies";
    case Lane::kCollective: return "collectives";
  }
  return "";
}

std::string Metadata(const char* what, int process, int thread, const std::string& argument) {
  return fmt::format(R"({{"ph":"M","ts":0,"name":"{}","pid":{},"tid":{},"args":{{{}}}}})", what, process, thread,
                     argument);
}

}  // namespace

int64_t Trace::Now() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void Trace::Add(Slice slice) {
  const std::lock_guard lock(mutex_);
  slices_.push_back(std::move(slice));
}

std::vector<Trace::Slice> Trace::slices() const {
  const std::lock_guard lock(mutex_);
  return slices_;
}

std::string Trace::ToJson() const {
  std::vector<Slice> all = slices();
  // Outer slices before inner ones: readers that take them in order see which lies in which.
  std::ranges::stable_sort(
      all, [](const Slice& a, const Slice& b) { return a.begin != b.begin ? a.begin < b.begin : a.end > b.end; });
  std::map<Device, int> processes;
  std::set<std::pair<Device, Lane>> lanes;
  bool host = false;
  for (const Slice& slice : all) {
    host |= slice.of_host;
    if (slice.of_host) continue;
    processes.try_emplace(slice.device, 0);
    lanes.emplace(slice.device, slice.lane);
  }
  std::vector<std::string> events;
  int number = kHost;
  const auto name = [](const std::string& text) { return "\"name\":" + JsonText(text); };
  if (host) {
    events.push_back(Metadata("process_name", kHost, 0, name("host")));
    events.push_back(Metadata("thread_name", kHost, 0, name("steps")));
  }
  for (auto& [device, process] : processes) {
    process = ++number;
    events.push_back(Metadata("process_name", process, 0, name(ToString(device))));
    events.push_back(Metadata("process_sort_index", process, 0, fmt::format("\"sort_index\":{}", process)));
  }
  for (const auto& [device, lane] : lanes) {
    events.push_back(Metadata("thread_name", processes.at(device), static_cast<int>(lane), name(NameOf(lane))));
  }
  const int64_t start = all.empty() ? 0 : all.front().begin;
  const auto microseconds = [](int64_t nanoseconds) {
    return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
  };
  for (const Slice& slice : all) {
    std::string arguments;
    for (const auto& [key, value] : slice.arguments) {
      arguments += fmt::format("{}{}:{}", arguments.empty() ? "" : ",", JsonText(key), JsonText(value));
    }
    events.push_back(fmt::format(R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
                                 JsonText(slice.name), JsonText(slice.category),
                                 slice.of_host ? kHost : processes.at(slice.device),
                                 slice.of_host ? 0 : static_cast<int>(slice.lane), microseconds(slice.begin - start),
                                 microseconds(std::max<int64_t>(0, slice.end - slice.begin)), arguments));
  }
  return fmt::format("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}\n]}}\n", fmt::join(events, ",\n"));
}

}  // namespace bindery
