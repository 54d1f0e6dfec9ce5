// Stream: where the work of one device goes, in order. An operation runs on a host thread, its device's worker, and
// hands what is to be done to a stream. A CPU's stream does it at once, in the calling thread. The stream of any other
// device is asynchronous: the work happens later, and a Fence tells when.
//
// The engine brackets every operation with Begin and End, so whatever it enqueues comes after what it depends on, and
// is known as one thing, the operation's fence, to whoever depends on it (engine/engine.h).
//
// Thread safety: a stream belongs to one worker; any thread may call Synchronize, WaitFor and Doing, and wait
// for fences.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>

#include "base/device.h"

namespace bindery {

// An accelerator works on copies and on reductions over devices while it computes: each lane is a stream of its own. A
// CPU has one for all.
enum class Lane : uint8_t { kCompute, kCopy, kCollective };

// What one operation enqueued on an asynchronous stream: done when all of it is over, in error if some of it failed.
class Fence {
 public:
  virtual ~Fence() = default;
  virtual void Wait() const noexcept = 0;                              // blocks the calling thread
  virtual bool WaitFor(std::chrono::milliseconds) const noexcept = 0;  // no longer than that: is it done?
  // Valid once it is done. `inherited`: the error is another operation's, and nothing of this one was done.
  virtual std::exception_ptr error() const = 0;
  virtual bool inherited() const = 0;
  virtual const void* stream() const noexcept = 0;  // an identity, nothing more
};
using FencePtr = std::shared_ptr<const Fence>;

// What an operation comes after, and which errors of that keep it from doing anything: it then fails by the same one.
enum class Inherits : uint8_t { kNothing, kItsOwn, kAll };
struct FenceUse {
  const Fence* fence = nullptr;
  Inherits inherits = Inherits::kNothing;
};
// Of a fence that is done; null if nothing is inherited.
inline std::exception_ptr InheritedError(const Fence& fence, Inherits inherits) {
  if (inherits == Inherits::kNothing || (inherits == Inherits::kItsOwn && fence.inherited())) return nullptr;
  return fence.error();
}

class Stream {
 public:
  Stream(Device device, Lane lane) : device_(device), lane_(lane) {}
  virtual ~Stream() = default;  // waits for what was enqueued
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device device() const { return device_; }
  Lane lane() const { return lane_; }

  // Everything enqueued until End comes after `uses`. Returns an inherited error that is known already; then the
  // operation must not run, and End is not called.
  virtual std::exception_ptr Begin(const std::string& operation, std::span<const FenceUse> uses) = 0;
  // The fence of what was enqueued since Begin; null if the stream is synchronous. Both objects live until then.
  virtual FencePtr End(std::shared_ptr<const void> operation, std::shared_ptr<const void> payload) = 0;
  // Until nothing enqueued is left. The first error since the last call, or null.
  virtual std::exception_ptr Synchronize() noexcept = 0;
  virtual bool WaitFor(std::chrono::milliseconds) const noexcept { return true; }  // for that, no longer: is it so?
  // What runs on it now, `number` being another for each piece of work; no text while it waits for other streams, or if
  // it is synchronous: then its worker knows.
  struct Work {
    uint64_t number = 0;
    std::string what = {};
  };
  virtual Work Doing() const { return {}; }

  // Operations between Join and Part, each with its own Begin and End, may be enqueued together: then their fences are
  // not done before Part. Called of streams that do not join them, too.
  virtual bool joins() const { return false; }
  virtual void Join() {}
  virtual void Part() noexcept {}

  // The operation that is being enqueued, or the part of it (engine/step.h): the name that messages give.
  void Enter(const std::string& part) { part_ = &part; }
  const std::string& part() const { return *part_; }

 private:
  const Device device_;
  const Lane lane_;
  const std::string* part_ = nullptr;
};

}  // namespace bindery
