// A function of the host over the memory of several devices: what it reads is copied to host memory first, what it
// writes is copied back. For devices that the host cannot address; the fall-back of everything that devices do together.
//
// All or nothing: if the function throws, or something that it reads or a gate has failed, no device's memory is
// touched. Then what it was to `write` fails, and what it was to `update` stays as it is, readable (engine/engine.h).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace bindery {

struct StagedRange {
  Device device = {};
  void* address = nullptr;  // on the device
  int64_t bytes = 0;
  VarPtr var = nullptr;  // that stands for the memory
  bool read = true;      // otherwise the function finds undefined content
  enum class After : uint8_t { kNothing, kWrite, kUpdate } after = After::kNothing;
};

// Host addresses of the ranges, in order; the same one for ranges with the same device and address.
using StagedFunction = std::function<void(std::span<void* const> addresses)>;

class StagedCall {
 public:
  // `gates`: variables that must be whole. `kept` lives as long as something of the call is in flight: the memory.
  StagedCall(std::shared_ptr<Engine> engine, const std::string& name, const std::vector<StagedRange>& ranges,
             StagedFunction function, const std::vector<VarPtr>& gates = {},
             std::shared_ptr<const void> kept = nullptr);
  void Push() const;
  // Written by each call: carries its error, if it has one.
  const VarPtr& outcome() const { return outcome_; }

 private:
  std::shared_ptr<Engine> engine_;
  VarPtr outcome_;
  std::vector<PreparedPtr> operations_;  // in the order of pushing
};

}  // namespace bindery
