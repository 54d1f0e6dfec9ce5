#include "train/data/prefetch_iter.h"

#include <utility>

#include "base/error.h"

namespace bindery {

PrefetchIter::PrefetchIter(std::unique_ptr<DataIter> source, int depth)
    : source_(std::move(source)), depth_(static_cast<size_t>(depth)), data_(source_->ProvideData()),
      label_(source_->ProvideLabel()), batch_size_(source_->batch_size()), samples_(source_->samples()),
      parts_(source_->parts()) {
  if (depth < 1) Throw("PrefetchIter: expected a depth of at least 1, got {}", depth);
  handed_out_ = Describe(nullptr);
  Start();
}

PrefetchIter::~PrefetchIter() { Stop(); }

PrefetchIter::Item PrefetchIter::Describe(std::shared_ptr<const Batch> batch) const {
  return {.batch = std::move(batch),
          .error = nullptr,
          .state = source_->SaveState(),
          .epoch = source_->epoch(),
          .epoch_detail = source_->epoch_detail(),
          .previous_epoch_detail = source_->previous_epoch_detail(),
          .is_new_epoch = source_->is_new_epoch()};
}

void PrefetchIter::Run() {
  for (;;) {
    Item item;
    try {
      item = Describe(source_->Next());
    } catch (...) {
      item.error = std::current_exception();
    }
    const bool last = item.last();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_ || ready_.size() < depth_; });
    if (stop_) return;
    ready_.push_back(std::move(item));
    changed_.notify_all();
    if (last) return;
  }
}

void PrefetchIter::Start() {
  stop_ = false;
  thread_ = std::thread([this] { Run(); });
}

void PrefetchIter::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  ready_.clear();
}

std::shared_ptr<const Batch> PrefetchIter::Next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty(); });
  if (ready_.front().error) std::rethrow_exception(ready_.front().error);
  if (ready_.front().last()) {  // stays, for the calls after this one
    handed_out_ = ready_.front();
    return nullptr;
  }
  handed_out_ = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  return std::exchange(handed_out_.batch, nullptr);
}

// Stops the thread, moves the source, and goes on from there; if that fails, from where the caller was. If that fails
// too, Next reports it and never waits in vain.
void PrefetchIter::Restart(const std::function<void()>& move) {
  Stop();
  try {
    move();
    Item place = Describe(nullptr);
    Start();
    handed_out_ = std::move(place);
  } catch (...) {
    const std::exception_ptr refusal = std::current_exception();
    try {
      source_->LoadState(handed_out_.state);
      Start();
    } catch (...) {
      Item failure;
      failure.error = std::current_exception();
      ready_.push_back(std::move(failure));
    }
    std::rethrow_exception(refusal);
  }
}

// The source is ahead: it first goes back to where the caller believes it to be.
void PrefetchIter::Reset() {
  Restart([&] {
    source_->LoadState(handed_out_.state);
    source_->Reset();
  });
}

void PrefetchIter::LoadState(const IterState& state) {
  Restart([&] { source_->LoadState(state); });
}

}  // namespace bindery
