// A function of the host over the memory of several devices: what they do together where nothing better is to be had.
// Where the host can address all of that memory, the function works in place, on the worker of the first range's
// device. Otherwise what it reads is copied to the host first, and what it writes is copied back.
//
// If something that it reads or a gate has failed, no device's memory is touched: what it was to `write` fails, and
// what it was to `update` stays as it is, readable (engine/engine.h). With copies the same holds if the function
// throws; in place, what it has changed by then stays changed.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

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

class HostCall {
 public:
  // `ranges` is not empty. `gates`: variables that must be whole. `kept`: what owns the memory; it lives as long as
  // something of the call is in flight.
  HostCall(std::shared_ptr<Engine> engine, const std::string& name, const std::vector<HostCallRange>& ranges,
           HostFunction function, const std::vector<VarPtr>& gates = {}, std::shared_ptr<const void> kept = nullptr);
  void Push() const;
  // Written by each call: carries its error, if it has one.
  const VarPtr& outcome() const { return outcome_; }

 private:
  void PrepareInPlace(const std::string& name, const std::vector<HostCallRange>& ranges, HostFunction function,
                      const std::vector<VarPtr>& gates, std::shared_ptr<const void> kept);
  void PrepareCopies(const std::string& name, const std::vector<HostCallRange>& ranges, HostFunction function,
                     const std::vector<VarPtr>& gates, std::shared_ptr<const void> kept);

  std::shared_ptr<Engine> engine_;
  VarPtr outcome_;
  std::vector<PreparedPtr> operations_;  // in the order of pushing
};

}  // namespace bindery
