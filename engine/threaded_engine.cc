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

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/spin.h"
#include "engine/threaded_run.h"

namespace bindery {
namespace {

constexpr int kWaiterSpinMicroseconds = 20;
constexpr int kMaxSpinMicroseconds = 1'000'000;
constexpr int kPreparedRuns = 3;    // as many steps as are in flight, and the end of one more
constexpr int kLockAttempts = 200;  // the holder needs less than a microsecond, being woken by the kernel some 45

// What the engine and its worker threads share.
class State : public std::enable_shared_from_this<State> {
 public:
  explicit State(const ThreadedEngineOptions& options)
      : spin_microseconds_(options.spin_microseconds), watchdog_(options.hang_milliseconds), on_hang_(options.on_hang) {
  }

  const EngineToken token = std::make_shared<char>();

  std::shared_ptr<ThreadedOperation> Prepare(Operation operation, int runs) {
    auto prepared = std::make_shared<ThreadedOperation>(std::move(operation), token);
    prepared->worker = FindWorker(prepared->operation.device, prepared->operation.lane);
    for (int i = 0; i < runs; ++i) AddRun(prepared.get());
    return prepared;
  }

  Stream& StreamOf(Device device, Lane lane) { return *FindWorker(device, lane)->stream; }

  void Push(std::shared_ptr<ThreadedOperation> operation, std::shared_ptr<const void> payload) {
    const auto lock = Lock();
    Run& run = TakeRun(*operation);
    run.operation = std::move(operation);
    run.payload = std::move(payload);
    AddInFlight(1);
    if (Enter(run, {run.accesses.get(), run.count})) GoAhead(run);
  }

  void Wait(const VarPtr& var, bool tell) {
    CheckOutside(tell ? "Wait" : "WaitIdle");
    Waiter waiter;
    waiter.tell = tell;
    {
      const auto lock = Lock();
      waiter.waiting = true;
      waiter.access.claim = &waiter;
      waiter.access.var = var.get();
      waiter.access.exclusive = true;
      if (Enter(waiter, {&waiter.access, 1})) GoAhead(waiter);
    }
    const auto done = [&] { return waiter.done.load(std::memory_order_acquire); };
    if (!SpinUntil(std::min(spin_microseconds_, kWaiterSpinMicroseconds), done)) {
      auto lock = Lock();
      std::string hang;
      if (!Block(lock, done, tell ? &hang : nullptr)) {
        Leave(waiter.access, [](Claim&) {});  // it was not granted: nobody can go ahead by that
        lock.unlock();
        throw HangError(hang);
      }
    }
    for (const FencePtr& fence : waiter.fences) {
      while (!fence->WaitFor(watchdog_.period())) Watch(/*patient=*/!tell);
    }
    if (!waiter.error && tell) {
      waiter.error = waiter.late.Find();
      if (waiter.error) {
        const auto lock = Lock();
        failures_.TellLate(waiter.error);
      }
    }
    if (waiter.error) std::rethrow_exception(waiter.error);
  }

  void WaitAll() {
    CheckOutside("WaitAll");
    SynchronizeStreams();
    std::exception_ptr error;
    {
      const auto lock = LockWhenIdle();
      error = failures_.TakeFirst();
    }
    if (error) std::rethrow_exception(error);
  }

  void Recover() {
    CheckOutside("Recover");
    SynchronizeStreams();
    const auto lock = LockWhenIdle();
    failures_.Recover();
  }

  // The engine is gone. If an operation (by dropping the last reference to it) destroyed it, nobody can wait: then the
  // workers finish by themselves, and the last of them takes this state along.
  void Stop() noexcept {
    const bool inside = current == this;
    if (!inside) SynchronizeStreams(/*patient=*/true);
    {
      const auto lock = inside ? Lock() : LockWhenIdle(/*patient=*/true);
      stopping_ = true;
      for (auto& worker : workers_) {
        if (inside) worker->thread.detach();
        Signal(*worker);
      }
    }
    if (inside) return;
    for (auto& worker : workers_) worker->thread.join();
    LogUntoldError();
  }

 private:
  // The state whose worker the calling thread is.
  static thread_local const State* current;

  void CheckOutside(const char* method) const {
    if (current == this) {
      Throw("{} was called from inside an operation; it would wait for that operation", method);
    }
  }

  std::unique_lock<std::mutex> Lock() {
    std::unique_lock lock(mutex_, std::defer_lock);
    Acquire(lock);
    return lock;
  }

  static void Acquire(std::unique_lock<std::mutex>& lock) {
    for (int i = 0; i < kLockAttempts; ++i) {
      if (lock.try_lock()) return;
      CpuPause();
    }
    lock.lock();
  }

  // Until nothing is in flight and everything that was enqueued is over; notes the errors that showed there. Without
  // the mutex: streams let go of what they kept, and that may be anything.
  void SynchronizeStreams(bool patient = false) {
    std::vector<Stream*> streams;
    {
      const auto lock = LockWhenIdle(patient);
      for (const auto& worker : workers_) {
        if (!HostAddressable(worker->stream->device())) streams.push_back(worker->stream.get());
      }
    }
    for (Stream* stream : streams) {
      while (!stream->WaitFor(watchdog_.period())) Watch(patient);
      const std::exception_ptr error = stream->Synchronize();
      const auto lock = Lock();
      failures_.NoteLate(error);
    }
  }

  std::unique_lock<std::mutex> LockWhenIdle(bool patient = false) {
    const auto idle = [&] { return in_flight_.load(std::memory_order_acquire) == 0; };
    SpinUntil(std::min(spin_microseconds_, kWaiterSpinMicroseconds), idle);
    auto lock = Lock();
    std::string hang;
    if (Block(lock, idle, patient ? nullptr : &hang)) return lock;
    lock.unlock();
    throw HangError(hang);
  }

  // Until `done`. With `hang` also until a device hangs, and what is to be said of it: is it done?
  template <class Done>
  bool Block(std::unique_lock<std::mutex>& lock, const Done& done, std::string* hang) {
    ++sleepers_;
    while (!finished_.wait_for(lock, watchdog_.period(), done)) {
      std::string found = Hang(lock);
      if (found.empty() || !hang) continue;
      *hang = std::move(found);
      break;
    }
    --sleepers_;
    return done();
  }

  // What is to be said of devices that hang, if any do; it is told, without the lock, if that is news.
  std::string Hang(std::unique_lock<std::mutex>& lock) {
    bool news = false;
    std::string found = watchdog_.Look(workers_, &news);
    if (news) {
      lock.unlock();
      try {
        Log(LogLevel::kError, found);
        if (on_hang_) on_hang_(HangError(found));
      } catch (...) {  // what tells of it may not keep anybody from waiting
      }
      lock.lock();
    }
    return found;
  }

  void Watch(bool patient) {
    auto lock = Lock();
    const std::string hang = Hang(lock);
    lock.unlock();
    if (!hang.empty() && !patient) throw HangError(hang);
  }

  // Everything below: under the mutex.

  void AddInFlight(int64_t difference) {
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) + difference, std::memory_order_release);
  }

  static Run& TakeRun(ThreadedOperation& operation) {
    if (!operation.free) AddRun(&operation);
    Run& run = *operation.free;
    operation.free = run.next;
    return run;
  }

  static void AddRun(ThreadedOperation* operation) {
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

  void GoAhead(Claim& claim) {
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
      Worker& worker = *run.operation->worker;
      run.next = nullptr;
      (worker.last ? worker.last->next : worker.first) = &run;
      worker.last = &run;
      Signal(worker);
    }
  }

  static void Signal(Worker& worker) {
    worker.sequence.fetch_add(1, std::memory_order_release);
    if (worker.parked) worker.wake.notify_one();
  }

  // Returns the reference that the run held, to be dropped outside the mutex.
  std::shared_ptr<ThreadedOperation> Finish(Run& run, const std::exception_ptr& error, bool skipped,
                                            const FencePtr& fence) {
    failures_.Settle(run.operation->accesses, error, !skipped);
    if (!skipped) failures_.SetFence(run.operation->accesses, fence);
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

  Worker* FindWorker(Device device, Lane lane) {
    Backend& backend = Backend::Of(device);
    if (backend.host_addressable()) lane = Lane::kCompute;
    const auto lock = Lock();
    for (const auto& worker : workers_) {
      if (worker->stream->device() == device && worker->stream->lane() == lane) return worker.get();
    }
    workers_.reserve(workers_.size() + 1);
    auto worker = std::make_unique<Worker>(backend.MakeStream(device, lane));
    try {
      worker->thread = std::thread(&State::Main, shared_from_this(), worker.get());
    } catch (const std::system_error& error) {
      Throw<DeviceError>("{}: cannot start its worker thread: {}", device, error.what());
    }
    workers_.push_back(std::move(worker));
    return workers_.back().get();
  }

  static void Main(std::shared_ptr<State> state, Worker* worker) {
    current = state.get();
    pthread_setname_np(pthread_self(), ToString(worker->stream->device()).substr(0, 15).c_str());
    state->Work(*worker);
  }

  void Work(Worker& worker) {
    std::shared_ptr<ThreadedOperation> finished;
    std::exception_ptr error;
    FencePtr fence;
    std::vector<FenceUse> uses;  // point into the variables, which change for nobody while they are in use
    Stream& stream = *worker.stream;
    auto lock = Lock();
    while (!(stopping_ && in_flight_.load(std::memory_order_relaxed) == 0)) {
      if (Run* run = worker.first) {
        worker.first = run->next;
        if (!worker.first) worker.last = nullptr;
        worker.current = run;
        ++worker.taken;
        error = failures_.Inherited(run->operation->accesses);
        uses.clear();
        if (!error) failures_.AppendUses(run->operation->accesses, &uses);
        lock.unlock();
        finished.reset();
        fence.reset();
        worker.waits.store(true, std::memory_order_relaxed);
        if (!error) error = stream.Begin(run->operation->operation.name, uses);
        worker.waits.store(false, std::memory_order_relaxed);
        const bool skipped = error != nullptr;
        if (!skipped) {
          error = run->operation->Call(stream, run->payload.get());
          fence = stream.End(run->operation, run->payload);
        }
        run->payload.reset();
        if (run->operation.use_count() == 1) run->operation->operation.run = nullptr;
        Acquire(lock);
        worker.current = nullptr;
        finished = Finish(*run, error, skipped, fence);
      } else {
        const uint64_t seen = worker.sequence.load(std::memory_order_relaxed);
        const auto news = [&] { return worker.sequence.load(std::memory_order_acquire) != seen; };
        lock.unlock();
        finished.reset();
        error = nullptr;
        fence.reset();
        SpinUntil(spin_microseconds_, news);
        Acquire(lock);
        worker.parked = true;
        worker.wake.wait(lock, news);
        worker.parked = false;
      }
    }
  }

  void LogUntoldError() noexcept {
    try {
      if (std::exception_ptr error = failures_.Untold()) std::rethrow_exception(error);
    } catch (const std::exception& error) {
      try {
        Log(LogLevel::kWarning, fmt::format("an engine ended with an error that nobody waited for: {}", error.what()));
      } catch (...) {  // a log callback that throws must not end the process
      }
    } catch (...) {  // nothing to say about an exception of a foreign type
    }
  }

  const int spin_microseconds_;
  std::mutex mutex_;
  std::condition_variable finished_;  // waited on by `sleepers_` threads in Wait, WaitAll, Recover, Stop
  int sleepers_ = 0;
  std::atomic<int64_t> in_flight_{0};  // changed under the mutex; read without it while spinning
  bool stopping_ = false;
  std::vector<std::unique_ptr<Worker>> workers_;
  Failures failures_;
  Watchdog watchdog_;
  const std::function<void(const HangError&)> on_hang_;
};

thread_local const State* State::current = nullptr;

class ThreadedEngine final : public Engine {
 public:
  explicit ThreadedEngine(const ThreadedEngineOptions& options) : state_(std::make_shared<State>(options)) {}
  ~ThreadedEngine() override { state_->Stop(); }

  VarPtr NewVar() override { return std::make_shared<Var>(state_->token); }
  PreparedPtr Prepare(Operation operation) override { return state_->Prepare(std::move(operation), kPreparedRuns); }
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
  Stream& StreamOf(Device device, Lane lane) override { return state_->StreamOf(device, lane); }
  void WaitAll() override { state_->WaitAll(); }
  void Recover() override { state_->Recover(); }
  const char* name() const override { return "threaded"; }

 private:
  const std::shared_ptr<State> state_;
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
