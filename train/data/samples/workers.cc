#include "train/data/samples/workers.h"

#include <system_error>

#include "base/error.h"

namespace bindery {

Workers::Workers(int threads) {
  constexpr int kMost = 1024;
  if (threads < 1 || threads > kMost) Throw("workers: expected 1 to {} threads, got {}", kMost, threads);
  try {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  } catch (const std::system_error& error) {
    const size_t started = threads_.size();
    Stop();
    Throw("workers: thread {} of {} cannot be started: {}", started + 1, threads - 1, error.what());
  }
}

Workers::~Workers() { Stop(); }

void Workers::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    begun_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Workers::Take(const std::function<void(int64_t)>& work, int64_t count) {
  for (int64_t i = next_++; i < count; i = next_++) work(i);
}

void Workers::Run() {
  int64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    begun_.wait(lock, [&] { return stop_ || round_ != seen; });
    if (stop_) return;
    seen = round_;
    const auto* work = work_;
    const int64_t count = count_;
    lock.unlock();
    Take(*work, count);
    lock.lock();
    if (--busy_ == 0) ended_.notify_all();
  }
}

void Workers::ForEach(int64_t count, const std::function<void(int64_t)>& work) {
  {
    std::lock_guard lock(mutex_);
    work_ = &work;
    count_ = count;
    next_ = 0;
    busy_ = threads_.size();
    ++round_;
    begun_.notify_all();
  }
  Take(work, count);
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return busy_ == 0; });
}

}  // namespace bindery
