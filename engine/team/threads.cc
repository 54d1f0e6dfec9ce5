// Team on std::thread, for ThreadSanitizer: every thread that asks keeps helpers of its own, parked between loops.
#include <condition_variable>
#include <memory>
#include <thread>
#include <vector>

#include "engine/team.h"
#include "engine/team/parts.h"

namespace bindery {
namespace {

class Helpers {
 public:
  explicit Helpers(int count) {
    threads_.reserve(count);
    for (int i = 0; i < count; ++i) threads_.emplace_back([this, i] { Main(i + 1); });
  }
  ~Helpers() {
    {
      const std::lock_guard lock(mutex_);
      job_ = nullptr;
      ++round_;
    }
    start_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  int count() const { return static_cast<int>(threads_.size()); }

  // Part 0 runs in the caller's thread.
  void Run(TeamJob& job) {
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
      busy_ = count();
      ++round_;
    }
    start_.notify_all();
    job.RunPart(0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  void Main(int part) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      start_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      TeamJob* const job = job_;
      if (!job) return;
      lock.unlock();
      job->RunPart(part);
      lock.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable start_, done_;
  uint64_t round_ = 0;
  int busy_ = 0;
  TeamJob* job_ = nullptr;  // null: the end
  std::vector<std::thread> threads_;
};

thread_local std::unique_ptr<Helpers> helpers;

}  // namespace

TeamScope::TeamScope(int threads) : previous_(TeamSizeOfThread()) {
  CheckTeamSize(threads);
  TeamSizeOfThread() = threads;
}

TeamScope::~TeamScope() { TeamSizeOfThread() = previous_; }

void TeamFor(int64_t n, int64_t grain, int64_t serial_below, TeamBody body, const void* context) {
  const int team = TeamOf(n, grain, serial_below);
  if (team == 1) return body(context, 0, n, 0);
  TeamJob job(n, grain, team, body, context);
  if (!helpers || helpers->count() != team - 1) {
    helpers.reset();
    helpers = std::make_unique<Helpers>(team - 1);
  }
  {
    const SerialInside serial;
    helpers->Run(job);
  }
  job.RethrowError();
}

}  // namespace bindery
