#include "train/data/samples/workers.h"

#include <system_error>

#include "base/error.h"

namespace bindery {

Workers::Workers(int threads) : work_(std::make_unique<Work>()) {
  constexpr int kMost = 1024;
  if (threads < 1 || threads > kMost) Throw("workers: expected 1 to {} threads, got {}", kMost, threads);
  try {
    for (int i = 1; i < threads; ++i) work_->threads.emplace_back([this] { Run(); });
  } catch (const std::system_error& error) {
    const size_t started = work_->threads.size();
    Stop();
    Throw("workers: thread {} of {} cannot be started: {}", started + 1, threads - 1, error.what());
  }
}

Workers::~Workers() {
  if (work_.IsHere()) Stop();
}

void Workers::Stop() {
  {
    std::lock_guard lock(work_->mutex);
    work_->stop = true;
    work_->begun.notify_all();
  }
  for (std::thread& thread : work_->threads) thread.join();
}

void Workers::Take(const std::function<void(int64_t)>& work, int64_t count) {
  for (int64_t i = work_->next++; i < count; i = work_->next++) work(i);
}

void Workers::Run() {
  int64_t seen = 0;
  std::unique_lock lock(work_->mutex);
  for (;;) {
    work_->begun.wait(lock, [&] { return work_->stop || work_->round != seen; });
    if (work_->stop) return;
    seen = work_->round;
    const auto* piece = work_->piece;
    const int64_t count = work_->count;
    lock.unlock();
    Take(*piece, count);
    lock.lock();
    if (--work_->busy == 0) work_->ended.notify_all();
  }
}

void Workers::ForEach(int64_t count, const std::function<void(int64_t)>& work) {
  if (!work_->threads.empty()) work_.Check("the iterator");
  {
    std::lock_guard lock(work_->mutex);
    work_->piece = &work;
    work_->count = count;
    work_->next = 0;
    work_->busy = work_->threads.size();
    ++work_->round;
    work_->begun.notify_all();
  }
  Take(work, count);
  std::unique_lock lock(work_->mutex);
  work_->ended.wait(lock, [&] { return work_->busy == 0; });
}

}  // namespace bindery
