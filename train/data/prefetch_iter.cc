#include "train/data/prefetch_iter.h"

#include <utility>

#include "base/error.h"

namespace bindery {

PrefetchIter::PrefetchIter(std::unique_ptr<DataIter> source, int depth)
    : source_(std::move(source)), depth_(static_cast<size_t>(depth)), data_(source_->ProvideData()),
      label_(source_->ProvideLabel()), batch_size_(source_->batch_size()), samples_(source_->samples()),
      parts_(source_->parts()), queue_(std::make_unique<Queue>()) {
  if (depth < 1) Throw("PrefetchIter: expected a depth of at least 1, got {}", depth);
  handed_out_ = Describe(nullptr);
  Start();
}

PrefetchIter::~PrefetchIter() {
  if (queue_.IsHere()) Stop();
}

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
    std::unique_lock lock(queue_->mutex);
    queue_->changed.wait(lock, [&] { return queue_->stop || queue_->ready.size() < depth_; });
    if (queue_->stop) return;
    queue_->ready.push_back(std::move(item));
    queue_->changed.notify_all();
    if (last) return;
  }
}

void PrefetchIter::Start() {
  queue_->stop = false;
  queue_->thread = std::thread([this] { Run(); });
}

void PrefetchIter::Stop() {
  {
    std::lock_guard lock(queue_->mutex);
    queue_->stop = true;
    queue_->changed.notify_all();
  }
  if (queue_->thread.joinable()) queue_->thread.join();
  queue_->ready.clear();
}

std::shared_ptr<const Batch> PrefetchIter::Next() {
  queue_.Check("the iterator");
  std::unique_lock lock(queue_->mutex);
  queue_->changed.wait(lock, [&] { return !queue_->ready.empty(); });
  if (queue_->ready.front().error) std::rethrow_exception(queue_->ready.front().error);
  if (queue_->ready.front().last()) {  // stays, for the calls after this one
    handed_out_ = queue_->ready.front();
    return nullptr;
  }
  handed_out_ = std::move(queue_->ready.front());
  queue_->ready.pop_front();
  queue_->changed.notify_all();
  return std::exchange(handed_out_.batch, nullptr);
}

// Stops the thread, moves the source, and goes on from there; if that fails, from where the caller was. If that fails
// too, Next reports it and never waits in vain.
void PrefetchIter::Restart(const std::function<void()>& move) {
  queue_.Check("the iterator");
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
      queue_->ready.push_back(std::move(failure));
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
