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
  // Throws DeviceError when memory is short; what was usable before stays so.
  virtual void Grow(int64_t bytes, int threads = 1) = 0;
  virtual char* base() const = 0;  // a device address: page aligned, constant
  virtual int64_t committed() const = 0;
  virtual void SetLimit(int64_t bytes) = 0;  // Grow beyond it throws DeviceError; 0 = none
  virtual Device device() const = 0;
  virtual const VarPtr& var() const = 0;  // every operation that touches the arena's memory writes or updates it

  uint64_t generation() const { return generation_; }
  uint64_t NextGeneration() { return ++generation_; }

 private:
  uint64_t generation_ = 0;
};

}  // namespace bindery
