// Arena: the working memory of the programs of one device. Address space is reserved once, so that the base never
// moves; memory is committed as it grows, on huge pages where the system has them, and touched at once, so that no step
// ever meets a page fault.
//
// All programs that share an arena use it from offset 0: at most one program's values are in it at a time. `generation`
// tells which: a program takes a new number when it starts to write, and whoever wants to read values later compares.
//
// Not thread safe: an arena belongs to one device's worker; Reserve/Grow are called while nothing runs in it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/device.h"
#include "engine/engine.h"

namespace bindery {

class Arena {
 public:
  // `reserve` bytes of address space (no memory), or as much as the device has memory: no arena can outgrow that. Where
  // the address space of the process is limited, at most a quarter of what is left of it.
  // Throws DeviceError if the system refuses.
  static std::shared_ptr<Arena> Make(Device device, std::shared_ptr<Engine> engine, int64_t reserve = int64_t{1} << 40);
  virtual ~Arena() = default;

  // Makes at least `bytes` usable: committed, touched, zero at first use. Never shrinks. `threads` touch the new pages.
  // Throws DeviceError when memory is short, also without what DefaultStorage keeps for reuse; what was usable before
  // stays so.
  void Grow(int64_t bytes, int threads = 1);
  char* base() const { return base_; }  // a device address: page aligned, constant
  int64_t committed() const { return committed_; }
  void SetLimit(int64_t bytes);  // Grow beyond it throws DeviceError; 0 = none
  Device device() const { return device_; }
  const VarPtr& var() const { return var_; }  // every operation that touches the arena's memory writes or updates it

  uint64_t generation() const { return generation_; }
  uint64_t NextGeneration() { return ++generation_; }

 protected:
  // For a kind of device, which sets base_: `reserved` bytes of address space, growing by multiples of `granule`.
  Arena(Device device, Engine* engine, int64_t reserved, int64_t granule)
      : device_(device), var_(engine->NewVar()), reserved_(reserved), granule_(granule) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  int64_t reserved() const { return reserved_; }
  char* base_ = nullptr;

 private:
  // Gives memory to bytes begin..end-1 of the address space. "" or why not; then nothing has changed.
  virtual std::string Commit(int64_t begin, int64_t end, int threads) = 0;

  const Device device_;
  const VarPtr var_;
  const int64_t reserved_, granule_;
  int64_t committed_ = 0, limit_ = 0;
  uint64_t generation_ = 0;
};

}  // namespace bindery
