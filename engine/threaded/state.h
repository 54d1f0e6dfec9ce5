// What a threaded engine and its worker threads share; how it works is told in engine.cc, which pushes and
// runs. wait.cc waits. Private to engine/.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/forks.h"
#include "engine/engine.h"
#include "engine/operation.h"
#include "engine/threaded/run.h"
#include "engine/threaded/spin.h"
#include "engine/threaded/watchdog.h"

namespace bindery {

class ThreadedState : public std::enable_shared_from_this<ThreadedState> {
 public:
  explicit ThreadedState(const ThreadedEngineOptions& options)
      : spin_microseconds_(options.spin_microseconds), watchdog_(options.hang_milliseconds), on_hang_(options.on_hang) {
  }

  const EngineToken token = std::make_shared<char>();

  // With records for `runs` runs at a time.
  std::shared_ptr<ThreadedOperation> Prepare(Operation operation, int runs);
  Stream& StreamOf(Device device, Lane lane) { return *FindWorker(device, lane)->stream; }
  // `again`: it may be pushed again.
  void Push(std::shared_ptr<ThreadedOperation> operation, std::shared_ptr<const void> payload, bool again);
  bool Join(Device device);
  void Part() noexcept;

  void Wait(const VarPtr& var, bool tell);
  void WaitAll();
  void Recover();
  std::optional<uint64_t> Version(const Var& var) {
    CheckProcess();
    const auto lock = Lock();
    return failures_.VersionOf(var);
  }
  // The engine is gone. If an operation (by dropping the last reference to it) destroyed it, nobody can wait: then the
  // workers finish by themselves, and the last of them takes this state along.
  void Stop() noexcept;

 private:
  // The state whose worker the calling thread is.
  static thread_local const ThreadedState* current;
  static constexpr int kLockAttempts = 200;  // the holder needs under a microsecond, being woken by the kernel some 45

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
  // Its threads, and who holds the mutex, are of the process that has made it.
  void CheckProcess() const { process_.Check("the engine"); }
  Worker* FindWorker(Device device, Lane lane);
  static void Main(std::shared_ptr<ThreadedState> state, Worker* worker);
  void Work(Worker& worker);
  // What a worker holds from one run to the next, to let go of it outside the mutex.
  struct Held {
    std::vector<Pushed> finished = {};
    std::exception_ptr error = nullptr;
    FencePtr fence = nullptr;
    std::vector<FenceUse> uses = {};  // point into the variables, which change for nobody while they are in use
  };
  void Execute(Worker& worker, Run& run, Held* held, std::unique_lock<std::mutex>& lock);
  void Tidy(Worker& worker, std::unique_lock<std::mutex>& lock);

  // Waiting. `patient`: also for a device that hangs; otherwise that is an error.
  void CheckOutside(const char* method) const;
  // Until nothing is in flight and everything that was enqueued is over; notes the errors that showed there. Without
  // the mutex: streams let go of what they kept, and that may be anything.
  void SynchronizeStreams(bool patient = false);
  std::unique_lock<std::mutex> LockWhenIdle(bool patient = false);
  template <class Done>
  bool SpinFor(const Done& done) const;
  // Until `done`. With `hang` also until a device hangs, and what is to be said of it: is it done?
  template <class Done>
  bool Block(std::unique_lock<std::mutex>& lock, const Done& done, std::string* hang);
  // What is to be said of devices that hang, if any do; it is told, without the lock, if that is news.
  std::string Hang(std::unique_lock<std::mutex>& lock);
  void Watch(bool patient);
  void LogUntoldError() noexcept;

  // Under the mutex.
  void AddInFlight(int64_t difference) {
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) + difference, std::memory_order_release);
  }
  void Enqueue(Pushed pushed);
  // Is it joined to others, or does it come behind them?
  bool Keep(Pushed* pushed, bool again);
  void Release();  // those that are joined begin, and what comes behind them
  void GoAhead(Claim& claim);
  static void Signal(Worker& worker) {
    worker.sequence.fetch_add(1, std::memory_order_release);
    if (worker.parked) worker.wake.notify_one();
  }
  // `finished` gets the references that the run held, to be dropped outside the mutex.
  void Finish(Run& run, std::vector<Pushed>* finished);
  void Land();  // one less is in flight

  const OfProcess process_;
  const int spin_microseconds_;
  std::mutex mutex_;
  std::condition_variable finished_;  // waited on by `sleepers_` threads in Wait, WaitAll, Recover, Stop
  int sleepers_ = 0;
  std::atomic<int64_t> in_flight_{0};  // changed under the mutex; read without it while spinning
  bool stopping_ = false;
  std::vector<std::unique_ptr<Worker>> workers_;
  // Operations that are being joined: by whom, for which worker, calls of Join without Part; and what comes behind.
  std::thread::id joiner_;
  Worker* joining_ = nullptr;
  int joins_ = 0;
  Run* joined_ = nullptr;  // not in flight yet
  std::vector<Pushed> behind_;
  std::vector<std::unique_ptr<Run>> joined_runs_;
  Run* free_joined_ = nullptr;
  Failures failures_;
  Watchdog watchdog_;
  const std::function<void(const HangError&)> on_hang_;
};

}  // namespace bindery
