// What one operation enqueued on a stream of a GPU: its fence. A list of work is submitted to the stream at once, that
// of one operation or of several that are joined, each of which has its pieces of it. Private to engine/cuda.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/cuda/progress.h"
#include "engine/cuda/recording.h"
#include "engine/cuda/stream.h"
#include "engine/operation.h"
#include "engine/threaded/spin.h"

namespace bindery::cuda {

class CudaStream::Batch final : public Fence, public std::enable_shared_from_this<Batch> {
 public:
  static constexpr int kSpinMicroseconds = 20;
  static constexpr std::chrono::microseconds kSleep{50};
  static constexpr int kSleepsPerLook = 16;

  struct Use {
    std::shared_ptr<const Batch> batch;
    Inherits inherits;
  };

  Batch(Gpu& gpu, std::shared_ptr<const Progress> progress, const void* stream)
      : gpu_(gpu), progress_(std::move(progress)), stream_(stream) {}

  bool Done() const noexcept {
    if (settled_.load(std::memory_order_acquire)) return true;
    if (!Over()) return false;
    SettleInOrder();
    return true;
  }
  void Wait() const noexcept override {
    if (Done()) return;
    ++TheCounters().waits;
    while (!Await(std::chrono::hours(1))) {
    }
  }
  bool WaitFor(std::chrono::milliseconds time) const noexcept override {
    if (Done()) return true;
    if (time.count() > 0) ++TheCounters().waits_of_callers;
    return Await(time);
  }
  std::exception_ptr error() const override {
    const std::lock_guard lock(mutex_);
    return error_ ? error_ : refused_;
  }
  bool inherited() const override {
    const std::lock_guard lock(mutex_);
    return inherited_;
  }
  const void* stream() const noexcept override { return stream_; }
  bool spoilt() const {
    const std::lock_guard lock(mutex_);
    return spoilt_;
  }

  // What runs, if it is of this: nothing too while it waits for others. Within a graph it is one of several pieces.
  Work Running() const {
    const uint64_t done = progress_->done();
    for (const Use& use : uses) {
      if (!use.batch->Finished()) return {};
    }
    if (done < before || done >= number) return {};
    const auto first = pieces->begin() + static_cast<std::ptrdiff_t>(done - base);
    const auto end = pieces->begin() + static_cast<std::ptrdiff_t>(number - base);
    auto last = first;
    if (recording) {
      const auto at = [&] { return last + 1 - pieces->begin(); };
      while (last + 1 != end && (last + 1)->part == first->part && at() % Commands::kPiecesPerMark != 0) {
        ++last;
      }
    }
    Work work{.number = done + 1, .what = fmt::format("operation \"{}\"", *first->part)};
    if (!first->what.empty()) work.what += ", " + first->what;
    if (last != first && !last->what.empty()) work.what += " to " + last->what;
    for (const std::shared_ptr<AcrossGpus>& call : across) work.what += call->Behind();
    return work;
  }
  // Has all of it been done? Never of what a failed GPU has left.
  bool Finished() const { return submitted() && progress_->done() >= number; }

  void Release(std::vector<std::shared_ptr<const void>>* objects) {
    const std::lock_guard lock(mutex_);
    for (Use& use : uses) objects->push_back(std::move(use.batch));
    uses.clear();
    std::ranges::move(kept, std::back_inserter(*objects));
    kept.clear();
    std::ranges::move(across, std::back_inserter(*objects));
    across.clear();
    objects->push_back(std::move(recording));
  }

  // The end of what was submitted together.
  class Event {
   public:
    explicit Event(Gpu& gpu) : event(gpu.TakeEvent()), gpu_(gpu) {}
    ~Event() { gpu_.GiveBack(event); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    const CUevent event;

   private:
    Gpu& gpu_;
  };

  // Set before End, constant from then on until they are released.
  std::vector<Use> uses;
  std::vector<std::shared_ptr<const void>> kept;
  std::vector<std::shared_ptr<AcrossGpus>> across;  // its calls that work on other GPUs, too
  size_t begin = 0, end = 0;                        // its pieces, in the list

  // It is a part of what was submitted: the list of `pieces_of`, which came after the piece `last_before`.
  void Submitted(std::shared_ptr<const Pieces> pieces_of, std::shared_ptr<const Recording> as, uint64_t last_before,
                 std::shared_ptr<const Event> event_of) {
    pieces = std::move(pieces_of);
    recording = std::move(as);
    event = std::move(event_of);
    base = last_before;
    before = base + begin;
    number = base + end;
    submitted_.store(true, std::memory_order_release);
  }
  // Others see it before that, where operations are joined.
  bool submitted() const { return submitted_.load(std::memory_order_acquire); }
  // From then on.
  std::shared_ptr<const Pieces> pieces;        // of the list
  std::shared_ptr<const Recording> recording;  // null: they were enqueued one by one
  std::shared_ptr<const Event> event;
  uint64_t base = 0, before = 0, number = 0;  // the last piece before the list, before these, and of these

  // The driver has refused some of it.
  void Refuse(const std::exception_ptr& error) {
    const std::lock_guard lock(mutex_);
    refused_ = error;
  }
  // So that it will fail, whatever the rest does: known before it is done.
  bool refused() const {
    const std::lock_guard lock(mutex_);
    return refused_ != nullptr;
  }

 private:
  bool Await(std::chrono::milliseconds time) const noexcept {
    const auto deadline = std::chrono::steady_clock::now() + time;
    if (SpinUntil(time.count() == 0 ? 0 : kSpinMicroseconds, [&] { return Done(); })) return true;
    for (int i = 0; std::chrono::steady_clock::now() < deadline; ++i) {
      if (i % kSleepsPerLook == 0) LookAround();
      if (Done()) return true;
      std::this_thread::sleep_for(kSleep);
    }
    return Done();
  }
  // Asks after all GPUs that it waits for, by whatever way. One that waits for a lost GPU waits for ever: it is lost,
  // too.
  void LookAround() const {
    static std::atomic<uint64_t> turns = 0;
    const uint64_t turn = ++turns;
    std::vector<std::shared_ptr<const Batch>> reached = {shared_from_this()};
    for (size_t i = 0; i < reached.size(); ++i) {
      const std::shared_ptr<const Batch> batch = reached[i];
      batch->progress_->Look();
      bool waits_for_lost = false;
      std::vector<std::shared_ptr<AcrossGpus>> calls;
      {
        const std::lock_guard lock(batch->mutex_);
        if (!batch->Finished()) calls = batch->across;
        for (const Use& use : batch->uses) {
          if (use.batch->Finished() || use.batch->looked_.exchange(turn) == turn) continue;
          waits_for_lost |= use.batch->gpu_.failed();
          reached.push_back(use.batch);
        }
      }
      for (const std::shared_ptr<AcrossGpus>& call : calls) call->Look();
      if (waits_for_lost) batch->gpu_.Fail(CUDA_ERROR_DEVICE_UNAVAILABLE);
    }
  }
  bool Over() const { return submitted() && (Finished() || gpu_.failed()); }
  // First what it waited for, and so on: a row of batches as long as all that is in flight, so not by recursion.
  void SettleInOrder() const noexcept {
    std::vector<std::shared_ptr<const Batch>> open = {shared_from_this()};
    while (!open.empty()) {
      const std::shared_ptr<const Batch> batch = open.back();
      const size_t size = open.size();
      batch->AppendUnsettled(&open);
      if (open.size() > size) continue;
      batch->Settle();
      open.pop_back();
    }
  }
  void AppendUnsettled(std::vector<std::shared_ptr<const Batch>>* open) const {
    const std::lock_guard lock(mutex_);
    for (const Use& use : uses) {
      if (!use.batch->settled_.load(std::memory_order_acquire) && use.batch->Over()) open->push_back(use.batch);
    }
  }
  void Settle() const noexcept {
    const std::lock_guard lock(mutex_);
    if (settled_.load(std::memory_order_relaxed)) return;
    const uint64_t done = progress_->done();
    for (const Use& use : uses) {
      if (!use.batch->Done()) continue;
      const std::exception_ptr error = InheritedError(*use.batch, use.inherits);
      if (!error_) error_ = error;
      spoilt_ |= error && use.batch->spoilt() && done >= number;
    }
    inherited_ = error_ && !spoilt_;
    if (!error_) error_ = refused_;
    for (const std::shared_ptr<AcrossGpus>& call : across) {
      const std::string problem = call->Problem();
      if (problem.empty()) continue;
      spoilt_ = done >= number;
      if (error_) continue;
      try {
        Throw<DeviceError>("{}", problem);
      } catch (...) {
        error_ = CurrentErrorNamed(*(*pieces)[before - base].part);
      }
    }
    for (uint64_t at = before + 1; at <= number; ++at) {
      const Piece& piece = (*pieces)[at - base - 1];
      const Fault* const fault = at <= done ? progress_->FaultOf(at) : nullptr;
      if (!fault || error_) continue;
      try {
        Throw<DataError>("{}: {} is not in {}..{}: element {} of its input", piece.what, fault->value, fault->low,
                         fault->high, fault->at);
      } catch (...) {
        error_ = CurrentErrorNamed(*piece.part);
      }
    }
    if (done < number) {  // the GPU failed
      const Piece& first = (*pieces)[std::max(done, before) - base];
      try {
        if (!error_) Throw<DeviceError>("{}", gpu_.failure());
      } catch (...) {
        error_ = CurrentErrorNamed(*first.part);
      }
    }
    settled_.store(true, std::memory_order_release);
  }

  Gpu& gpu_;
  const std::shared_ptr<const Progress> progress_;
  const void* const stream_;
  mutable std::mutex mutex_;
  mutable std::atomic<bool> settled_ = false;
  std::atomic<bool> submitted_ = false;
  mutable std::atomic<uint64_t> looked_ = 0;  // in which turn of LookAround
  // It ran all the same, on what work of several GPUs left that failed: so what it updated is not what it was.
  mutable bool spoilt_ = false;
  mutable bool inherited_ = false;
  mutable std::exception_ptr error_, refused_;
};

}  // namespace bindery::cuda
