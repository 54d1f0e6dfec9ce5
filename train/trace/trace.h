// Trace: what ran on which lane of which device, from when to when, for Perfetto (ui.perfetto.dev) and chrome://tracing,
// in the Trace Event Format. A device is a process, a lane of it a thread; process 0 is the thread that trains.
//
//   const auto trace = std::make_shared<Trace>();
//   Trainer trainer(net, {.devices = {Cpu(0), Cpu(1)}, .engine = MakeTraceEngine(MakeThreadedEngine(), trace)});
//   trainer.Fit(train, {.extensions = {TraceSteps({.path = "trace.json", .trace = trace,
//                                                  .group = [&] { return trainer.group(); }})}});
//
// Thread safety: any thread may call anything.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/device.h"
#include "engine/engine.h"

namespace bindery {

class Trace {
 public:
  // Slices of one lane either lie one within the other or do not meet.
  struct Slice {
    std::string name, category;
    Device device = {};
    Lane lane = Lane::kCompute;
    int64_t begin = 0, end = 0;                                       // Now()
    std::vector<std::pair<std::string, std::string>> arguments = {};  // shown when it is chosen
    bool of_host = false;                                             // of the thread that trains; no device then
  };

  static int64_t Now();  // nanoseconds of a steady clock

  void Start() { recording_.store(true, std::memory_order_relaxed); }
  void Stop() { recording_.store(false, std::memory_order_relaxed); }
  bool recording() const { return recording_.load(std::memory_order_relaxed); }
  void Add(Slice slice);  // whether it is recording or not

  std::vector<Slice> slices() const;  // in the order in which they ended
  std::string ToJson() const;         // times in microseconds since the first slice began

 private:
  std::atomic<bool> recording_ = false;
  mutable std::mutex mutex_;
  std::vector<Slice> slices_;
};

// The engine, of whose operations a trace gets a slice each while it is recording: loads, forward, backward, copies,
// collectives, updates. A slice is the time in which the device's worker was at the operation. On a CPU that is the
// work; work of other devices is enqueued then, and may be done later.
std::shared_ptr<Engine> MakeTraceEngine(std::shared_ptr<Engine> engine, std::shared_ptr<Trace> trace);

}  // namespace bindery
