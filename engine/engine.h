// Engine: decides *when* a function runs. An operation is pushed with the variables it reads, creates and updates;
// operations that share a variable run in the order they were pushed (readers together, writers alone), everything else
// runs as soon as its worker is free, by priority. Each lane of a device (engine/stream.h) has one worker thread and
// one stream; the operation runs on the worker and hands its work to the stream, which a CPU's does at once (there the
// operation may use the device's Team). Waiting across devices happens through variables only.
//
// The protocol, per variable: a queue of pending accesses in push order. A read access is ready when no write access is
// ahead of it; a write access is ready when nothing is ahead of it. An operation is ready when all its accesses are.
//
// Errors travel. An exception thrown by an operation is stored in every variable the operation was to *write*
// (create). An operation that reads or updates a failed variable is skipped: the error passes on to what it writes, and
// what it `updates` in place stays untouched and readable, so parameters survive a failed step. A failed variable stays
// failed, for every reader, until an operation writes it anew; then it is whole again. `Recover()` clears all failures
// at once. Wait(var) rethrows the variable's error, each time; WaitAll() rethrows the first error that happened since
// the last WaitAll() or Recover(), once.
//
// Asynchronous devices. An operation is over for the protocol when it has enqueued its work; the variables it used keep
// the fence of that work. A successor on the same stream goes on at once, one on another device's stream makes its
// stream wait for the fence, one on a CPU blocks its worker, and Wait blocks the caller. An error that shows only when
// the work runs fails the variables that the operation was to write, at the fence, by the same rules: what comes after
// it and reads or updates them is skipped. It fails those that were to be updated, too, since the work may have stopped
// half-way. Whatever was pushed is kept alive until its fence.
//
// Devices that hang. Wait, WaitAll and Recover throw HangError, naming the device, what it is at and since when, if a
// device has been at one thing, a node of a network say, for longer than the engine's limit. Nothing is given up: all
// that was pushed stays in flight, and goes on if the device does. Destructors and WaitIdle wait until then. Only what
// GPUs exchange by NCCL is ended, and fails (engine/threaded/watchdog.h).
//
// Processes. A fork has none of the threads: there Push, Prepare, Wait, WaitAll, Recover and Version throw Error, and
// destructors do not wait. An engine that is made there is its own.
//
// Thread safety: all methods may be called from any thread, also from inside an operation, except Wait, WaitAll and
// Recover, which must not be called from an operation (they would wait for it: throws Error).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/error.h"
#include "engine/stream.h"

namespace bindery {

class Var;  // opaque; belongs to the engine that made it
using VarPtr = std::shared_ptr<Var>;

struct OpContext {
  Stream& stream;                 // of the operation's device and lane: where the work goes
  const void* payload = nullptr;  // what was passed to Push(prepared, payload)
};

// What to run, where, and which variables it touches. The lists may overlap and repeat; the strongest access counts
// (write/update over read).
struct Operation {
  std::string name = {};  // for messages: `operation "forward cpu:0" failed: ...`
  Device device = {};
  std::vector<VarPtr> reads = {};
  std::vector<VarPtr> writes = {};   // created: old content does not matter; carries the error if the operation fails
  std::vector<VarPtr> updates = {};  // read and changed in place; untouched if the operation is skipped
  std::function<void(const OpContext&)> run = {};
  Lane lane = Lane::kCompute;
  int priority = 0;  // of those that are ready on a lane the highest runs first, of equal ones what was ready first
  std::function<std::string()> at = {};  // what a long one is doing, "" for nothing: any thread asks, while it runs
};

class PreparedOperation;  // opaque; an Operation ready to be pushed again and again without allocation
using PreparedPtr = std::shared_ptr<PreparedOperation>;

class Engine {
 public:
  virtual ~Engine() = default;  // waits for everything pushed; never throws

  virtual VarPtr NewVar() = 0;

  virtual void Push(Operation operation) = 0;  // returns at once; never throws the operation's error
  // Throws DeviceError if there is no such device.
  virtual PreparedPtr Prepare(Operation operation) = 0;
  // `payload` is kept alive until the run is over. Allocates only when more runs of `prepared` are in flight than ever
  // before, and where it joins others.
  virtual void Push(const PreparedPtr& prepared, std::shared_ptr<const void> payload = nullptr) = 0;

  virtual void Wait(const VarPtr& var) = 0;      // until everything pushed so far on `var` is done
  virtual void WaitIdle(const VarPtr& var) = 0;  // the same, but an error stays for whoever reads: for destructors
  virtual void WaitAll() = 0;
  virtual void Recover() = 0;  // waits for everything, then clears every failure
  // Tells whether `var` has changed: another number after every operation pushed that writes or updates it, and after
  // Recover. None while it is known to have failed. Waits for nothing.
  virtual std::optional<uint64_t> Version(const VarPtr& var) = 0;
  // Where operations of this device and lane put their work; lives as long as the engine. For kernels that are bound to
  // their stream beforehand. Throws DeviceError if there is no such device.
  virtual Stream& StreamOf(Device device, Lane lane = Lane::kCompute) = 0;
  virtual const char* name() const = 0;  // "threaded", "inline"
  // From Join to Part the prepared operations that the calling thread pushes to this device, but for its copy lane, are
  // joined: they begin together, when whatever any of them comes after is over, and end together; in between the worker
  // of the compute lane runs one after the other on its stream, which may make one launch of them (Stream::Join). Each
  // has its own errors and its own fence, as if it had been pushed by itself. What others are to do with what these use
  // comes behind all of them; where one of these comes after that again, or somebody waits, they begin with what there
  // is. False: they are not joined, and there is no Part to be called: the device's streams join nothing, or others are
  // being joined, by another thread or on another device. Calls may be nested.
  virtual bool Join(Device) { return false; }
  virtual void Part() noexcept {}
};

// Joins what is pushed while it lives.
class Joining {
 public:
  Joining() = default;  // nothing
  Joining(Engine* engine, Device device) : engine_(engine->Join(device) ? engine : nullptr) {}
  ~Joining() {
    if (engine_) engine_->Part();
  }
  Joining(const Joining&) = delete;
  Joining& operator=(const Joining&) = delete;

 private:
  Engine* const engine_ = nullptr;
};

// One worker thread per device and lane (a CPU has one for all lanes), started on first use. A worker that has nothing
// to do spins `spin_microseconds` before it sleeps (waking a sleeping thread costs some 45 us, a spinning one well
// under 1 us).
struct ThreadedEngineOptions {
  int spin_microseconds = 50;
  // How long a device may be at one thing; 0: for ever. A device that hangs is logged, once, and given to `on_hang`, by
  // whoever waits: a program that only wants to end had better do it there, since it cannot wait for the device.
  int hang_milliseconds = 600'000;
  std::function<void(const HangError&)> on_hang = {};
};
std::shared_ptr<Engine> MakeThreadedEngine(const ThreadedEngineOptions& options = {});

// Runs every operation at once, in the caller's thread, with the same rules for errors; it waits for whatever hangs.
// The oracle for tests, and the right engine for a debugger.
std::shared_ptr<Engine> MakeInlineEngine();

// The engine that is used where none is named: a threaded one, made on first use, whose operations end before the
// process does by exit(). SetDefaultEngine replaces it (the old one lives as long as somebody holds it). For users the
// only global besides the default storage and the log callback; LimitIsa and the switches of engine/cuda serve tests
// and the environment's variables.
std::shared_ptr<Engine> DefaultEngine();
void SetDefaultEngine(std::shared_ptr<Engine> engine);

}  // namespace bindery
