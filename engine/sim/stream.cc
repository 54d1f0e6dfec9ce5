#include "engine/sim/stream.h"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "base/error.h"
#include "engine/operation.h"

namespace bindery::sim {

class SimStream::Batch final : public Fence, public std::enable_shared_from_this<Batch> {
 public:
  struct Piece {
    std::function<void()> run;
    std::string what;
    const std::string* part;  // of the operation, which is kept
  };
  struct Use {
    FencePtr fence;
    Inherits inherits;
  };

  explicit Batch(const void* stream) : stream_(stream) {}

  void Wait() const noexcept override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
  }
  bool WaitFor(std::chrono::milliseconds time) const noexcept override {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return done_; });
  }
  std::exception_ptr error() const override {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  bool inherited() const override {
    const std::lock_guard lock(mutex_);
    return inherited_;
  }
  const void* stream() const noexcept override { return stream_; }

  void Finish(const std::exception_ptr& error, bool inherited) {
    const std::lock_guard lock(mutex_);
    error_ = error;
    inherited_ = inherited;
    done_ = true;
    changed_.notify_all();
  }

  std::vector<Use> uses;
  std::vector<Piece> work;
  std::shared_ptr<const void> kept_operation, kept_payload;

 private:
  const void* const stream_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false, inherited_ = false;
  std::exception_ptr error_;
};

SimStream::SimStream(Device device, Lane lane)
    : Stream(device, lane), device_state_(DeviceOf(device)), thread_(&SimStream::Main, this) {}

SimStream::~SimStream() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

std::exception_ptr SimStream::Begin(const std::string&, std::span<const FenceUse> uses) {
  Forget();
  open_ = std::make_shared<Batch>(this);
  for (const FenceUse& use : uses) {
    if (const auto* batch = dynamic_cast<const Batch*>(use.fence)) {
      open_->uses.push_back({batch->shared_from_this(), use.inherits});
      continue;
    }
    use.fence->Wait();  // of another kind of device
    if (const std::exception_ptr error = InheritedError(*use.fence, use.inherits)) {
      open_ = nullptr;
      return error;
    }
  }
  return nullptr;
}

void SimStream::Enqueue(std::function<void()> work, std::string what) {
  Check(open_ != nullptr, "work is enqueued by an operation");
  open_->work.push_back({std::move(work), std::move(what), &part()});
}

FencePtr SimStream::End(std::shared_ptr<const void> operation, std::shared_ptr<const void> payload) {
  std::shared_ptr<Batch> batch = std::move(open_);
  batch->kept_operation = std::move(operation);
  batch->kept_payload = std::move(payload);
  const std::lock_guard lock(mutex_);
  queue_.push_back(batch);
  changed_.notify_all();
  return batch;
}

std::exception_ptr SimStream::Synchronize() noexcept {
  std::exception_ptr error;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
    error = std::exchange(first_error_, nullptr);
  }
  Forget();
  return error;
}

bool SimStream::WaitFor(std::chrono::milliseconds time) const noexcept {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] { return queue_.empty() && !busy_; });
}

Stream::Work SimStream::Doing() const {
  const std::lock_guard lock(mutex_);
  return doing_;
}

void SimStream::Forget() {
  std::vector<std::shared_ptr<const void>> finished;
  const std::lock_guard lock(mutex_);
  finished.swap(finished_);
}  // `finished` goes after the lock

void SimStream::Say(std::string what) {
  const std::lock_guard lock(mutex_);
  doing_ = {.number = doing_.number + 1, .what = std::move(what)};
}

void SimStream::Main() {
  pthread_setname_np(pthread_self(), (ToString(device()) + " stream").substr(0, 15).c_str());
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::shared_ptr<Batch> batch = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();

    std::exception_ptr error;
    for (const Batch::Use& use : batch->uses) {
      use.fence->Wait();
      if (!error) error = InheritedError(*use.fence, use.inherits);
    }
    const bool inherited = error != nullptr;
    if (const int delay = NextDelay()) std::this_thread::sleep_for(std::chrono::microseconds(delay));
    if (!error) {
      const Batch::Piece* at = nullptr;
      try {
        for (const Batch::Piece& work : batch->work) {
          at = &work;
          Say(fmt::format("operation \"{}\"{}{}", *work.part, work.what.empty() ? "" : ", ", work.what));
          device_state_.faults.BeforeKernel();
          work.run();
        }
      } catch (...) {
        try {
          if (at->what.empty()) throw;
          std::rethrow_exception(CurrentErrorAfter(at->what + ": "));
        } catch (...) {
          error = CurrentErrorNamed(*at->part);
        }
      }
    }
    Say({});
    batch->uses.clear();
    batch->Finish(error, inherited);

    lock.lock();
    finished_.push_back(std::move(batch->kept_operation));
    finished_.push_back(std::move(batch->kept_payload));
    if (error && !inherited && !first_error_) first_error_ = error;
    busy_ = false;
    changed_.notify_all();
  }
}

SimStream& SimStreamOf(Stream& stream) {
  Check(stream.device().kind == DeviceKind::kSim, "a simulated device's work goes to its stream");
  return static_cast<SimStream&>(stream);
}

}  // namespace bindery::sim
