// One worker thread per lane of a device, and one mutex for everything that is not an operation's own work: a bound
// program is a few operations per step, so the lock is held for some hundred nanoseconds, some thousand times a second.
//
// The life of a pushed operation:
//   1. Push, in the caller's thread, under the mutex: a Run (the record of this one execution) is taken from the
//      prepared operation's free list, its accesses enter their variables' queues (access_queue.h). When all are
//      granted, at once or later, the run is appended to its device's worker, which is woken if it sleeps.
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

#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "engine/backend.h"
#include "engine/threaded/state.h"

namespace bindery {
namespace {

constexpr int kMaxSpinMicroseconds = 1'000'000;
constexpr int kPreparedRuns = 3;  // as many steps as are in flight, and the end of one more

void AddRun(ThreadedOperation* operation) {
  Run& run = *operation->runs.emplace_back(std::make_unique<Run>());
  run.count = operation->accesses.size();
  run.accesses = std::make_unique<PendingAccess[]>(run.count);
  for (size_t i = 0; i < run.count; ++i) {
    run.accesses[i].claim = &run;
    run.accesses[i].var = operation->accesses[i].var;
    run.accesses[i].exclusive = operation->accesses[i].exclusive;
  }
  run.next = operation->free;
  operation->free = &run;
}

}  // namespace

thread_local const ThreadedState* ThreadedState::current = nullptr;

template <class Operations>
std::shared_ptr<ThreadedOperation> ThreadedState::Prepare(Operations operations, int runs) {
  auto prepared = std::make_shared<ThreadedOperation>(std::move(operations), token);
  prepared->worker = FindWorker(prepared->operation.device, prepared->operation.lane);
  for (int i = 0; i < runs; ++i) AddRun(prepared.get());
  return prepared;
}

void ThreadedState::Push(std::shared_ptr<ThreadedOperation> operation, std::shared_ptr<const void> payload) {
  const auto lock = Lock();
  Run& run = TakeRun(*operation);
  CountChanges(operation->accesses);
  run.operation = std::move(operation);
  run.payload = std::move(payload);
  AddInFlight(1);
  if (Enter(run, {run.accesses.get(), run.count})) GoAhead(run);
}

Run& ThreadedState::TakeRun(ThreadedOperation& operation) {
  if (!operation.free) AddRun(&operation);
  Run& run = *operation.free;
  operation.free = run.next;
  return run;
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
    run.operation->worker->Add(&run);
    Signal(*run.operation->worker);
  }
}

std::shared_ptr<ThreadedOperation> ThreadedState::Finish(Run& run) {
  for (size_t i = 0; i < run.count; ++i) Leave(run.accesses[i], [this](Claim& next) { GoAhead(next); });
  auto operation = std::move(run.operation);
  run.next = operation->free;
  operation->free = &run;
  AddInFlight(-1);
  if (in_flight_.load(std::memory_order_relaxed) == 0) {
    if (sleepers_ > 0) finished_.notify_all();
    if (stopping_) {
      for (auto& worker : workers_) Signal(*worker);
    }
  }
  return operation;
}

Worker* ThreadedState::FindWorker(Device device, Lane lane) {
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
  PreparedOperation& all = *run.operation;
  const size_t count = all.count();
  for (size_t i = 0; i < count; ++i) {
    const PreparedOperation& one = all.at(i);
    worker.current = &one.operation;
    ++worker.taken;
    std::exception_ptr& error = held->error;
    error = failures_.Inherited(one.accesses);
    held->uses.clear();
    if (!error) failures_.AppendUses(one.accesses, &held->uses);
    lock.unlock();
    held->finished.reset();
    held->fence.reset();
    if (i == 0 && count > 1) stream.Join();
    worker.waits.store(true, std::memory_order_relaxed);
    if (!error) error = stream.Begin(one.operation.name, held->uses);
    worker.waits.store(false, std::memory_order_relaxed);
    const bool skipped = error != nullptr;
    if (!skipped) {
      error = one.Call(stream, run.payload.get());
      held->fence = stream.End(run.operation, run.payload);
    }
    if (i + 1 == count) {
      if (count > 1) stream.Part();
      run.payload.reset();
      if (run.operation.use_count() == 1) all.ForgetFunctions();
    }
    Acquire(lock);
    failures_.Settle(one.accesses, error, !skipped);
    if (!skipped) failures_.SetFence(one.accesses, held->fence);
  }
}

void ThreadedState::Work(Worker& worker) {
  Held held;
  auto lock = Lock();
  while (!(stopping_ && in_flight_.load(std::memory_order_relaxed) == 0)) {
    if (Run* run = worker.Take()) {
      Execute(worker, *run, &held, lock);
      worker.current = nullptr;
      held.finished = Finish(*run);
    } else {
      const uint64_t seen = worker.sequence.load(std::memory_order_relaxed);
      const auto news = [&] { return worker.sequence.load(std::memory_order_acquire) != seen; };
      lock.unlock();
      held.finished.reset();
      held.error = nullptr;
      held.fence.reset();
      SpinUntil(spin_microseconds_, news);
      Acquire(lock);
      worker.parked = true;
      worker.wake.wait(lock, news);
      worker.parked = false;
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
  PreparedPtr PrepareJoined(std::vector<Operation> operations) override {
    return state_->Prepare(std::move(operations), kPreparedRuns);
  }
  void Push(Operation operation) override { state_->Push(state_->Prepare(std::move(operation), 1), nullptr); }

  void Push(const PreparedPtr& prepared, std::shared_ptr<const void> payload) override {
    CheckOwner(prepared, state_->token);
    state_->Push(std::static_pointer_cast<ThreadedOperation>(prepared), std::move(payload));
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
