// One worker thread per lane of a device, and one mutex for everything that is not an operation's own work: a bound
// program is a few operations per step, so the lock is held for some hundred nanoseconds, some thousand times a second.
//
// The life of a pushed operation:
//   1. Push, in the caller's thread, under the mutex: a Run (the record of this one execution) is taken from the
//      prepared operation's free list, its accesses enter their variables' queues (access_queue.h). When all are
//      granted, at once or later, the run is appended to its device's worker, which is woken if it sleeps. Operations
//      that are joined are one run, with the accesses of all: kept until Part, or until something needs them begun.
//   2. The worker takes the run. A failed input means that it is skipped (operation.h); otherwise its function is
//      called, without the lock, between Begin and End of the worker's stream. Then the payload is dropped, and the
//      function too if nobody can push it again: so whoever waits finds their memory released. (Where work is still to
//      come, the stream keeps both until its fence.)
//   3. Under the mutex: errors are settled, the accesses leave their queues, which may make other runs ready, for this
//      worker or another; the Run goes back to the free list.
//
// Waiting: Wait(var) enters an exclusive access of its own, granted when everything before it is over, and leaves at
// once, with the fences of the variable, for which it then waits. WaitAll and Recover wait until nothing is in flight,
// and for all streams. A wait that takes long looks now and then whether a device hangs (watchdog.h).
//
// Sleeping: a worker without work spins for a while on the sequence number of its queue, then parks on its condition
// variable. A waiting thread does the same for a shorter time, since a worker's team may want its core.
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "engine/backend.h"
#include "engine/threaded/state.h"

namespace bindery {
namespace {

constexpr int kMaxSpinMicroseconds = 1'000'000;
constexpr std::chrono::seconds kTidyAfter{1};  // longer than between steps, which then find staging memory where it was
constexpr int kPreparedRuns = 3;               // as many steps as are in flight, and the end of one more

PendingAccess AccessOf(Run* run, Var* var, bool exclusive) {
  PendingAccess access;
  access.claim = run;
  access.var = var;
  access.exclusive = exclusive;
  return access;
}

void AddRun(ThreadedOperation* operation) {
  Run& run = *operation->runs.emplace_back(std::make_unique<Run>());
  run.parts.reserve(1);
  for (const DeclaredAccess& access : operation->accesses) {
    run.accesses.push_back(AccessOf(&run, access.var, access.exclusive));
  }
  run.worker = operation->worker;
  run.priority = operation->operation.priority;
  run.home = &operation->free;
  run.next = operation->free;
  operation->free = &run;
}

// How operations with these accesses use the variables, too: those that are joined, or what comes behind them.
void Mark(std::span<const DeclaredAccess> accesses, Var::Use Var::*by) {
  for (const DeclaredAccess& access : accesses) {
    Var::Use& use = access.var->*by;
    use = std::max(use, access.exclusive ? Var::Use::kExclusive : Var::Use::kShared);
  }
}

// Must one with these accesses come after them?
bool ComesAfter(std::span<const DeclaredAccess> accesses, Var::Use Var::*by) {
  return std::ranges::any_of(accesses, [by](const DeclaredAccess& access) {
    const Var::Use use = access.var->*by;
    return access.exclusive ? use != Var::Use::kNone : use == Var::Use::kExclusive;
  });
}

}  // namespace

thread_local const ThreadedState* ThreadedState::current = nullptr;

std::shared_ptr<ThreadedOperation> ThreadedState::Prepare(Operation operation, int runs) {
  auto prepared = std::make_shared<ThreadedOperation>(std::move(operation), token);
  prepared->worker = FindWorker(prepared->operation.device, prepared->operation.lane);
  for (int i = 0; i < runs; ++i) AddRun(prepared.get());
  return prepared;
}

void ThreadedState::Push(std::shared_ptr<ThreadedOperation> operation, std::shared_ptr<const void> payload,
                         bool again) {
  CheckProcess();
  const auto lock = Lock();
  CountChanges(operation->accesses);
  Pushed pushed{std::move(operation), std::move(payload)};
  if (joins_ == 0 || !Keep(&pushed, again)) Enqueue(std::move(pushed));
}

void ThreadedState::Enqueue(Pushed pushed) {
  ThreadedOperation& operation = *pushed.operation;
  if (!operation.free) AddRun(&operation);
  Run& run = *operation.free;
  operation.free = run.next;
  run.parts.push_back(std::move(pushed));
  AddInFlight(1);
  if (Enter(run, run.accesses)) GoAhead(run);
}

bool ThreadedState::Join(Device device) {
  Worker* const worker = FindWorker(device, Lane::kCompute);
  const auto lock = Lock();
  const std::thread::id caller = std::this_thread::get_id();
  if (joins_ > 0 ? joiner_ != caller || joining_ != worker : !worker->stream->joins()) return false;
  joiner_ = caller;
  joining_ = worker;
  ++joins_;
  return true;
}

void ThreadedState::Part() noexcept {
  if (!process_.IsHere()) return;
  const auto lock = Lock();
  if (--joins_ == 0) Release();
}

bool ThreadedState::Keep(Pushed* pushed, bool again) {
  const PreparedOperation& one = *pushed->operation;
  if (again && one.operation.device == joining_->stream->device() && one.operation.lane != Lane::kCopy &&
      joiner_ == std::this_thread::get_id()) {
    if (ComesAfter(one.accesses, &Var::behind)) Release();
    if (!joined_) {
      if (!free_joined_) {
        free_joined_ = joined_runs_.emplace_back(std::make_unique<Run>()).get();
        free_joined_->home = &free_joined_;
      }
      joined_ = std::exchange(free_joined_, free_joined_->next);
      joined_->accesses.clear();
    }
    for (const DeclaredAccess& access : one.accesses) {
      if (access.var->joined != Var::Use::kNone) continue;
      joined_->accesses.push_back(AccessOf(joined_, access.var, false));
    }
    Mark(one.accesses, &Var::joined);
    joined_->parts.push_back(std::move(*pushed));
    return true;
  }
  if (!ComesAfter(one.accesses, &Var::joined) && !ComesAfter(one.accesses, &Var::behind)) return false;
  Mark(one.accesses, &Var::behind);
  behind_.push_back(std::move(*pushed));
  return true;
}

void ThreadedState::Release() {
  if (Run* const run = std::exchange(joined_, nullptr)) {
    for (PendingAccess& access : run->accesses) {
      access.exclusive = std::exchange(access.var->joined, Var::Use::kNone) == Var::Use::kExclusive;
    }
    run->worker = joining_;
    run->priority = run->parts[0].operation->operation.priority;
    if (run->parts.size() > 1) {
      AddInFlight(1);
      if (Enter(*run, run->accesses)) GoAhead(*run);
    } else {  // nothing is joined to it
      Enqueue(std::move(run->parts[0]));
      run->parts.clear();
      run->next = std::exchange(*run->home, run);
    }
  }
  for (Pushed& pushed : behind_) {
    for (const DeclaredAccess& access : pushed.operation->accesses) access.var->behind = Var::Use::kNone;
    Enqueue(std::move(pushed));
  }
  behind_.clear();
}

void ThreadedState::GoAhead(Claim& claim) {
  if (claim.waiting) {
    auto& waiter = static_cast<Waiter&>(claim);
    const Var& var = *waiter.access.var;
    if (waiter.tell) waiter.error = failures_.Tell(var);
    waiter.late = failures_.LateErrorsOf(var);
    if (var.creator) waiter.fences.push_back(var.creator);
    waiter.fences.insert(waiter.fences.end(), var.updaters.begin(), var.updaters.end());
    if (var.exclusive) waiter.fences.push_back(var.exclusive);
    waiter.fences.insert(waiter.fences.end(), var.shared.begin(), var.shared.end());
    Leave(waiter.access, [this](Claim& next) { GoAhead(next); });
    waiter.done.store(true, std::memory_order_release);
    if (sleepers_ > 0) finished_.notify_all();
  } else {
    auto& run = static_cast<Run&>(claim);
    run.worker->Add(&run);
    Signal(*run.worker);
  }
}

void ThreadedState::Finish(Run& run, std::vector<Pushed>* finished) {
  for (PendingAccess& access : run.accesses) Leave(access, [this](Claim& next) { GoAhead(next); });
  finished->swap(run.parts);
  run.next = std::exchange(*run.home, &run);
  Land();
}

void ThreadedState::Land() {
  AddInFlight(-1);
  if (in_flight_.load(std::memory_order_relaxed) > 0) return;
  if (sleepers_ > 0) finished_.notify_all();
  if (stopping_) {
    for (auto& worker : workers_) Signal(*worker);
  }
}

Worker* ThreadedState::FindWorker(Device device, Lane lane) {
  CheckProcess();
  Backend& backend = Backend::Of(device);
  if (backend.host_addressable()) lane = Lane::kCompute;
  const auto lock = Lock();
  for (const auto& worker : workers_) {
    if (worker->stream->device() == device && worker->stream->lane() == lane) return worker.get();
  }
  workers_.reserve(workers_.size() + 1);
  auto worker = std::make_unique<Worker>(backend.MakeStream(device, lane));
  try {
    worker->thread = std::thread(&ThreadedState::Main, shared_from_this(), worker.get());
  } catch (const std::system_error& error) {
    Throw<DeviceError>("{}: cannot start its worker thread: {}", device, error.what());
  }
  workers_.push_back(std::move(worker));
  return workers_.back().get();
}

void ThreadedState::Main(std::shared_ptr<ThreadedState> state, Worker* worker) {
  current = state.get();
  pthread_setname_np(pthread_self(), ToString(worker->stream->device()).substr(0, 15).c_str());
  state->Work(*worker);
}

// Those that are joined settle one after the other, as if others had come in between; none can, while the run has all
// their variables for itself.
void ThreadedState::Execute(Worker& worker, Run& run, Held* held, std::unique_lock<std::mutex>& lock) {
  Stream& stream = *worker.stream;
  const size_t count = run.parts.size();
  for (size_t i = 0; i < count; ++i) {
    const auto& [part, payload] = run.parts[i];
    const PreparedOperation& one = *part;
    worker.current = &one.operation;
    ++worker.taken;
    std::exception_ptr& error = held->error;
    error = failures_.Inherited(one.accesses);
    held->uses.clear();
    if (!error) failures_.AppendUses(one.accesses, &held->uses);
    lock.unlock();
    held->finished.clear();
    held->fence.reset();
    if (i == 0 && count > 1) stream.Join();
    worker.waits.store(true, std::memory_order_relaxed);
    if (!error) error = stream.Begin(one.operation.name, held->uses);
    worker.waits.store(false, std::memory_order_relaxed);
    const bool skipped = error != nullptr;
    if (!skipped) {
      error = one.Call(stream, payload.get());
      held->fence = stream.End(part, payload);
      worker.keeps |= held->fence != nullptr;
    }
    if (i + 1 == count) {
      if (count > 1) stream.Part();
      for (auto& [over, given] : run.parts) {
        given.reset();
        if (over.use_count() == 1) over->operation.run = nullptr;  // nobody will push it again
      }
    }
    Acquire(lock);
    failures_.Settle(one.accesses, error, !skipped);
    if (!skipped) failures_.SetFence(one.accesses, held->fence);
  }
}

// Lets go of what the stream keeps, if all of its work is over: tensors, of operations, which may be the last to hold
// the engine. It is in flight meanwhile: whoever waits for everything is to hear of errors.
void ThreadedState::Tidy(Worker& worker, std::unique_lock<std::mutex>& lock) {
  AddInFlight(1);
  lock.unlock();
  worker.keeps = !worker.stream->WaitFor(std::chrono::milliseconds(0));
  const std::exception_ptr error = worker.keeps ? nullptr : worker.stream->Synchronize();
  Acquire(lock);
  failures_.NoteLate(error);
  Land();
}

void ThreadedState::Work(Worker& worker) {
  Held held;
  held.finished.reserve(1);
  auto lock = Lock();
  while (!(stopping_ && in_flight_.load(std::memory_order_relaxed) == 0)) {
    if (Run* run = worker.Take()) {
      Execute(worker, *run, &held, lock);
      worker.current = nullptr;
      Finish(*run, &held.finished);
    } else {
      const uint64_t seen = worker.sequence.load(std::memory_order_relaxed);
      const auto news = [&] { return worker.sequence.load(std::memory_order_acquire) != seen; };
      lock.unlock();
      held.finished.clear();
      held.error = nullptr;
      held.fence.reset();
      SpinUntil(spin_microseconds_, news);
      Acquire(lock);
      worker.parked = true;
      const bool tidies = worker.keeps && !worker.wake.wait_for(lock, kTidyAfter, news);
      if (!worker.keeps) worker.wake.wait(lock, news);
      worker.parked = false;
      if (tidies) Tidy(worker, lock);
    }
  }
}

namespace {

class ThreadedEngine final : public Engine {
 public:
  explicit ThreadedEngine(const ThreadedEngineOptions& options) : state_(std::make_shared<ThreadedState>(options)) {}
  ~ThreadedEngine() override { state_->Stop(); }

  VarPtr NewVar() override { return std::make_shared<Var>(state_->token); }
  PreparedPtr Prepare(Operation operation) override { return state_->Prepare(std::move(operation), kPreparedRuns); }
  void Push(Operation operation) override { state_->Push(state_->Prepare(std::move(operation), 1), nullptr, false); }

  void Push(const PreparedPtr& prepared, std::shared_ptr<const void> payload) override {
    CheckOwner(prepared, state_->token);
    state_->Push(std::static_pointer_cast<ThreadedOperation>(prepared), std::move(payload), true);
  }

  void Wait(const VarPtr& var) override {
    CheckOwner(var, state_->token);
    state_->Wait(var, /*tell=*/true);
  }

  void WaitIdle(const VarPtr& var) override {
    CheckOwner(var, state_->token);
    state_->Wait(var, /*tell=*/false);
  }
  std::optional<uint64_t> Version(const VarPtr& var) override {
    CheckOwner(var, state_->token);
    return state_->Version(*var);
  }
  Stream& StreamOf(Device device, Lane lane) override { return state_->StreamOf(device, lane); }
  void WaitAll() override { state_->WaitAll(); }
  void Recover() override { state_->Recover(); }
  const char* name() const override { return "threaded"; }
  bool Join(Device device) override { return state_->Join(device); }
  void Part() noexcept override { state_->Part(); }

 private:
  const std::shared_ptr<ThreadedState> state_;
};

}  // namespace

std::shared_ptr<Engine> MakeThreadedEngine(const ThreadedEngineOptions& options) {
  if (options.spin_microseconds < 0 || options.spin_microseconds > kMaxSpinMicroseconds) {
    Throw("spin_microseconds must be in 0..{}, got {}", kMaxSpinMicroseconds, options.spin_microseconds);
  }
  if (options.hang_milliseconds < 0) Throw("hang_milliseconds must be >= 0, got {}", options.hang_milliseconds);
  return std::make_shared<ThreadedEngine>(options);
}

}  // namespace bindery
