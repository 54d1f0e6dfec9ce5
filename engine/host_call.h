// A function of the host over the memory of devices some of which the host cannot address: what it reads is copied to
// the host first, and what it writes is copied back.
//
// If something that it reads or a gate has failed, or the function throws, no device's memory is touched: what it was
// to `write` fails, and what it was to `update` stays as it is, readable (engine/engine.h). A copy back that fails
// fails what that device was to get; other devices have theirs.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/step.h"

namespace bindery {

struct HostCallRange {
  Device device = {};
  void* address = nullptr;  // on the device
  int64_t bytes = 0;
  VarPtr var = nullptr;  // that stands for the memory
  bool read = true;      // otherwise the function finds undefined content
  enum class After : uint8_t { kNothing, kWrite, kUpdate } after = After::kNothing;
};

// Host addresses of the ranges, in order; the same one for ranges with the same device and address.
using HostFunction = std::function<void(std::span<void* const> addresses)>;

// `ranges` is not empty; those that begin at one place are of one size, or empty, else Error. `gates`: variables that
// must be whole. `kept`: what owns the memory; it lives as long as a run is in flight. Returns a variable that each run
// writes: it carries its error, if it has one.
VarPtr AppendHostCall(Engine* engine, const std::string& name, const std::vector<HostCallRange>& ranges,
                      HostFunction function, const std::vector<VarPtr>& gates, std::shared_ptr<const void> kept,
                      StepParts* parts);

}  // namespace bindery
