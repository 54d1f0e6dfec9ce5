#include "engine/cuda/stream.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <thread>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "engine/cuda/progress.h"
#include "engine/operation.h"
#include "engine/threaded/spin.h"

namespace bindery::cuda {
namespace {

constexpr int kThreads = 256;           // of a block
constexpr int kBlocksPerProcessor = 8;  // fill it
constexpr int kWords = 4;
constexpr int kSpinMicroseconds = 20;
constexpr std::chrono::microseconds kSleep{50};
constexpr int kSleepsPerLook = 16;

}  // namespace

class CudaStream::Batch final : public Fence, public std::enable_shared_from_this<Batch> {
 public:
  struct Use {
    std::shared_ptr<const Batch> batch;
    Inherits inherits;
  };

  Batch(Gpu& gpu, std::shared_ptr<const Progress> progress, const void* stream)
      : event(gpu.TakeEvent()), gpu_(gpu), progress_(std::move(progress)), stream_(stream) {}
  ~Batch() override { gpu_.GiveBack(event); }

  bool Done() const noexcept {
    if (settled_.load(std::memory_order_acquire)) return true;
    if (!Over()) return false;
    SettleInOrder();
    return true;
  }
  void Wait() const noexcept override {
    while (!WaitFor(std::chrono::hours(1))) {
    }
  }
  bool WaitFor(std::chrono::milliseconds time) const noexcept override {
    const auto deadline = std::chrono::steady_clock::now() + time;
    if (SpinUntil(time.count() == 0 ? 0 : kSpinMicroseconds, [&] { return Done(); })) return true;
    for (int i = 0; std::chrono::steady_clock::now() < deadline; ++i) {
      if (i % kSleepsPerLook == 0) LookAround();
      if (Done()) return true;
      std::this_thread::sleep_for(kSleep);
    }
    return Done();
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

  // What runs, if it is of this: nothing too while it waits for others. Within a graph it is one of several pieces.
  Work Running() const {
    const uint64_t done = progress_->done();
    for (const Use& use : uses) {
      if (!use.batch->Finished()) return {};
    }
    if (done < before || done >= number) return {};
    const auto first = pieces->begin() + static_cast<std::ptrdiff_t>(done - before);
    auto last = first;
    if (recording) {
      const auto at = [&] { return last + 1 - pieces->begin(); };
      while (last + 1 != pieces->end() && (last + 1)->part == first->part && at() % Commands::kPiecesPerMark != 0) {
        ++last;
      }
    }
    Work work{.number = done + 1, .what = fmt::format("operation \"{}\"", *first->part)};
    if (!first->what.empty()) work.what += ", " + first->what;
    if (last != first && !last->what.empty()) work.what += " to " + last->what;
    return work;
  }
  // Has all of it been done? Never of what a failed GPU has left.
  bool Finished() const { return progress_->done() >= number; }

  void Release(std::vector<std::shared_ptr<const void>>* objects) {
    const std::lock_guard lock(mutex_);
    for (Use& use : uses) objects->push_back(std::move(use.batch));
    uses.clear();
    std::ranges::move(kept, std::back_inserter(*objects));
    kept.clear();
    objects->push_back(std::move(recording));
  }

  const CUevent event;
  // Set before End, constant from then on until they are released.
  std::vector<Use> uses;
  std::shared_ptr<const Pieces> pieces;
  std::shared_ptr<const Recording> recording;  // null: they were enqueued one by one
  std::vector<std::shared_ptr<const void>> kept;
  uint64_t before = 0, number = 0;  // the last piece before these, and of these

  // The driver has refused some of it.
  void Refuse(const std::exception_ptr& error) {
    const std::lock_guard lock(mutex_);
    refused_ = error;
  }

 private:
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
      {
        const std::lock_guard lock(batch->mutex_);
        for (const Use& use : batch->uses) {
          if (use.batch->Finished() || use.batch->looked_.exchange(turn) == turn) continue;
          waits_for_lost |= use.batch->gpu_.failed();
          reached.push_back(use.batch);
        }
      }
      if (waits_for_lost) batch->gpu_.Fail(CUDA_ERROR_DEVICE_UNAVAILABLE);
    }
  }
  bool Over() const { return Finished() || gpu_.failed(); }
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
      if (!error_ && use.batch->Done()) error_ = InheritedError(*use.batch, use.inherits);
    }
    inherited_ = error_ != nullptr;
    if (!error_) error_ = refused_;
    uint64_t at = before;
    for (const Piece& piece : *pieces) {
      const Fault* const fault = ++at <= done ? progress_->FaultOf(at) : nullptr;
      if (!fault || error_) continue;
      try {
        Throw<DataError>("{}: {} is not in {}..{}", piece.what, fault->value, fault->low, fault->high);
      } catch (...) {
        error_ = CurrentErrorNamed(*piece.part);
      }
    }
    if (done < number) {  // the GPU failed
      const Piece& first = (*pieces)[std::max(done, before) - before];
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
  mutable std::atomic<uint64_t> looked_ = 0;  // in which turn of LookAround
  mutable bool inherited_ = false;
  mutable std::exception_ptr error_, refused_;
};

CudaStream::CudaStream(Gpu& gpu, Lane lane)
    : Stream(gpu.device, lane), gpu_(gpu), progress_(std::make_shared<Progress>(gpu, lane)),
      words_(static_cast<uint64_t*>(gpu.Allocate(kWords * sizeof(uint64_t)))), recordings_(gpu) {
  if (!words_) Throw<DeviceError>("{}: no memory for a stream", gpu.device);
  GraphsAreUsed();  // throws now, if the environment asks for something else
  gpu_.Add(this);
}

CudaStream::~CudaStream() {
  Synchronize();
  gpu_.Remove(this);
  gpu_.Free(words_);
}

std::exception_ptr CudaStream::Begin(const std::string&, std::span<const FenceUse> uses) {
  Forget();
  auto batch = std::make_shared<Batch>(gpu_, progress_, this);
  for (const FenceUse& use : uses) {
    const auto* other = dynamic_cast<const Batch*>(use.fence);
    if (!other) use.fence->Wait();  // of another kind of device
    if (!other || other->Done()) {
      if (const std::exception_ptr error = InheritedError(*use.fence, use.inherits)) return error;
    } else {
      batch->uses.push_back({other->shared_from_this(), use.inherits});
    }
  }
  gpu_.Enter();
  commands_.Clear();
  pieces_.clear();
  numbered_ = 0;
  open_ = std::move(batch);
  for (const Batch::Use& use : open_->uses) {
    if (use.batch->stream() == this || gpu_.failed()) continue;
    gpu_.FailUnless(gpu_.api.stream_wait_event(progress_->stream(), use.batch->event, CU_EVENT_WAIT_DEFAULT));
  }
  return nullptr;
}

void CudaStream::EnterPiece(const std::string& what) {
  Check(open_ != nullptr, "work is enqueued by an operation");
  const std::string& name = what.empty() ? naming_ : what;
  const bool same_part = !pieces_.empty() && pieces_.back().part == &part();
  if (same_part && pieces_.back().what == name) return;
  if (!pieces_.empty()) commands_.EndPiece(static_cast<int>(pieces_.size()), !same_part);
  pieces_.push_back({name, &part()});
}

void CudaStream::LaunchKernel(CUfunction kernel, const char* name, const void* arguments, size_t bytes, int64_t threads,
                              const std::string& what) {
  if (threads <= 0) return;
  EnterPiece(what);
  const auto blocks = static_cast<unsigned>(
      std::min<int64_t>(CeilDiv(threads, kThreads), int64_t{gpu_.facts.multiprocessors} * kBlocksPerProcessor));
  commands_.Launch(kernel, name, arguments, bytes, blocks, kThreads);
}

void CudaStream::Copy(const CopyCommand& copy, const std::string& what) {
  EnterPiece(what);
  commands_.Copy(copy);
}

void CudaStream::Fill(void* to, unsigned char value, size_t bytes, const std::string& what) {
  EnterPiece(what);
  commands_.Fill(to, value, bytes);
}

FaultRing CudaStream::faults() const { return {progress_->faults(), words_ + 1, words_ + 2}; }

void CudaStream::NumberPiece(const std::string& what) {
  EnterPiece(what);
  if (std::exchange(numbered_, pieces_.size()) == pieces_.size()) return;
  commands_.NumberPiece(static_cast<int>(pieces_.size()));
}

void CudaStream::Keep(std::shared_ptr<const void> object) { open_->kept.push_back(std::move(object)); }

FencePtr CudaStream::End(std::shared_ptr<const void> operation, std::shared_ptr<const void> payload) {
  if (pieces_.empty()) EnterPiece({});  // its fence comes after what it waits for
  open_->kept.push_back(operation);
  open_->kept.push_back(std::move(payload));
  Submit(operation);
  gpu_.Leave();
  return std::move(open_);
}

void CudaStream::Submit(const std::shared_ptr<const void>& operation) noexcept {
  const CUstream stream = progress_->stream();
  const ProgressWords words{.done = progress_->word(),
                            .within = progress_->within(),
                            .piece = words_ + 1,
                            .heard = words_ + 2,
                            .base = words_ + 3};
  const Recordings::Found found = recordings_.Find(operation, commands_, pieces_, words);
  open_->pieces = found.pieces;
  open_->recording = found.recording;
  open_->before = issued_;
  open_->number = issued_ += pieces_.size();
  {
    const std::lock_guard lock(mutex_);
    in_flight_.push_back(open_);  // before the calls that may tell of a failure, which wants to know what is in flight
  }
  int piece = 0;
  try {
    if (found.recording) {
      found.recording->Launch(stream, words, open_->before);
    } else {
      commands_.Enqueue(gpu_, stream, words, open_->before, &piece);
    }
  } catch (...) {
    open_->Refuse(CurrentErrorNamed(*pieces_[static_cast<size_t>(piece)].part));
  }
  if (!gpu_.failed()) gpu_.FailUnless(gpu_.api.stream_write_value64(stream, words.done, open_->number, 0));
  if (!gpu_.failed()) gpu_.FailUnless(gpu_.api.event_record(open_->event, stream));
}

std::exception_ptr CudaStream::Synchronize() noexcept {
  while (!WaitFor(std::chrono::hours(1))) {
  }
  Forget();
  const std::lock_guard lock(mutex_);
  return std::exchange(first_error_, nullptr);
}

bool CudaStream::WaitFor(std::chrono::milliseconds time) const noexcept {
  std::shared_ptr<const Batch> last;
  {
    const std::lock_guard lock(mutex_);
    if (!in_flight_.empty()) last = in_flight_.back();
  }
  return !last || last->WaitFor(time);
}

Stream::Work CudaStream::Doing() const {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Batch>& batch : in_flight_) {
    if (batch->Finished()) continue;
    return batch->Running();
  }
  return {};
}

void CudaStream::Forget() {
  std::vector<std::shared_ptr<const void>> finished;
  const std::lock_guard lock(mutex_);
  while (!in_flight_.empty() && in_flight_.front()->Done()) {
    const Batch& batch = *in_flight_.front();
    if (!first_error_ && batch.error() && !batch.inherited()) first_error_ = batch.error();
    in_flight_.front()->Release(&finished);
    finished.push_back(std::move(in_flight_.front()));
    in_flight_.pop_front();
  }
}  // `finished` goes after the lock: a batch gives back its event, and events have a lock of their own

CudaStream& CudaStreamOf(Stream& stream) {
  Check(stream.device().kind == DeviceKind::kCuda, "a GPU's work goes to its stream");
  return static_cast<CudaStream&>(stream);
}

}  // namespace bindery::cuda
