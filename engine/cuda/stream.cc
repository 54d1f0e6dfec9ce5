#include "engine/cuda/stream.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <thread>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "engine/operation.h"
#include "engine/threaded/spin.h"

namespace bindery::cuda {
namespace {

constexpr int kThreads = 256;           // of a block
constexpr int kBlocksPerProcessor = 8;  // fill it
constexpr int kWords = 3;
constexpr int kSpinMicroseconds = 20;
constexpr std::chrono::microseconds kSleep{50};
constexpr int kSleepsPerLook = 16;

}  // namespace

class CudaStream::Progress {
 public:
  Progress(Gpu& gpu, Lane lane) : gpu_(gpu) {
    void* const memory = gpu.AllocateHost(sizeof(Said));
    if (!memory) Throw<DeviceError>("{}: no memory of the host for a stream", gpu.device);
    said_ = new (memory) Said;
    const Gpu::Scope scope(gpu);
    int least = 0, greatest = 0;
    gpu.Check(gpu.api.ctx_get_stream_priority_range(&least, &greatest), "cuCtxGetStreamPriorityRange");
    // What other devices wait for goes first.
    gpu.Check(gpu.api.stream_create_with_priority(&stream_, CU_STREAM_NON_BLOCKING,
                                                  lane == Lane::kCompute ? least : greatest),
              "cuStreamCreateWithPriority");
  }
  ~Progress() {
    const Gpu::Scope scope(gpu_);
    gpu_.api.stream_destroy(stream_);
    gpu_.FreeHost(said_);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  CUstream stream() const { return stream_; }
  CUdeviceptr word() const { return reinterpret_cast<CUdeviceptr>(&said_->done); }  // one address for all
  uint64_t done() const { return std::atomic_ref<uint64_t>(said_->done).load(std::memory_order_acquire); }
  Fault* faults() const { return said_->faults; }
  // Of a piece that is done; null: none.
  const Fault* FaultOf(uint64_t piece) const {
    const Fault& fault = said_->faults[piece % FaultRing::kSize];
    return fault.piece == piece ? &fault : nullptr;
  }
  // Asks the driver whether the GPU still works.
  void Look() const noexcept {
    if (gpu_.failed()) return;
    const Gpu::Scope scope(gpu_);
    const CUresult result = gpu_.api.stream_query(stream_);
    if (result != CUDA_ERROR_NOT_READY) gpu_.FailUnless(result);
  }

 private:
  struct Said {  // by the GPU
    uint64_t done = 0;
    Fault faults[FaultRing::kSize] = {};
  };
  Gpu& gpu_;
  Said* said_ = nullptr;
  CUstream stream_ = nullptr;
};

class CudaStream::Batch final : public Fence, public std::enable_shared_from_this<Batch> {
 public:
  struct Piece {
    uint64_t number;
    std::string what;
    const std::string* part;  // of the operation, which is kept
  };
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

  // The piece that runs, if it is one of these: null too while it waits for others.
  const Piece* Running() const {
    const uint64_t next = progress_->done() + 1;
    for (const Use& use : uses) {
      if (!use.batch->Finished()) return nullptr;
    }
    const auto piece = std::ranges::find(pieces, next, &Piece::number);
    return piece == pieces.end() ? nullptr : &*piece;
  }
  // Has all of it been done? Never of what a failed GPU has left.
  bool Finished() const { return progress_->done() >= number; }

  void Release(std::vector<std::shared_ptr<const void>>* objects) {
    const std::lock_guard lock(mutex_);
    for (Use& use : uses) objects->push_back(std::move(use.batch));
    uses.clear();
    std::ranges::move(kept, std::back_inserter(*objects));
    kept.clear();
  }

  const CUevent event;
  // Set before End, constant from then on until they are released.
  std::vector<Use> uses;
  std::vector<Piece> pieces;
  std::vector<std::shared_ptr<const void>> kept;
  uint64_t number = 0;  // of the last piece

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
    for (const Piece& piece : pieces) {
      const Fault* const fault = piece.number <= done ? progress_->FaultOf(piece.number) : nullptr;
      if (!fault || error_) continue;
      try {
        Throw<DataError>("{}: {} is not in {}..{}", piece.what, fault->value, fault->low, fault->high);
      } catch (...) {
        error_ = CurrentErrorNamed(*piece.part);
      }
    }
    if (done < number) {  // the GPU failed
      const auto first = std::ranges::find_if(pieces, [&](const Piece& piece) { return piece.number > done; });
      try {
        if (!error_) Throw<DeviceError>("{}", gpu_.failure());
      } catch (...) {
        error_ = CurrentErrorNamed(*first->part);
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
  mutable std::exception_ptr error_;
};

CudaStream::CudaStream(Gpu& gpu, Lane lane)
    : Stream(gpu.device, lane), gpu_(gpu), progress_(std::make_shared<Progress>(gpu, lane)),
      words_(static_cast<uint64_t*>(gpu.Allocate(kWords * sizeof(uint64_t)))) {
  if (!words_) Throw<DeviceError>("{}: no memory for a stream", gpu.device);
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
  open_ = std::move(batch);
  for (const Batch::Use& use : open_->uses) {
    if (use.batch->stream() == this || gpu_.failed()) continue;
    gpu_.FailUnless(gpu_.api.stream_wait_event(progress_->stream(), use.batch->event, CU_EVENT_WAIT_DEFAULT));
  }
  return nullptr;
}

CUstream CudaStream::Handle(const std::string& what) {
  Check(open_ != nullptr, "work is enqueued by an operation");
  const auto& pieces = open_->pieces;
  const std::string& name = what.empty() ? naming_ : what;
  if (pieces.empty() || pieces.back().part != &part() || pieces.back().what != name) BeginPiece(name);
  return progress_->stream();
}

void CudaStream::BeginPiece(const std::string& what) {
  EndPiece();
  open_->pieces.push_back({++issued_, what, &part()});
}

void CudaStream::EndPiece() noexcept {
  if (open_->pieces.empty() || gpu_.failed()) return;
  gpu_.FailUnless(
      gpu_.api.stream_write_value64(progress_->stream(), progress_->word(), open_->pieces.back().number, 0));
}

void CudaStream::LaunchKernel(CUfunction kernel, const char* name, void** arguments, int64_t threads,
                              const std::string& what) {
  if (threads <= 0) return;
  const CUstream stream = Handle(what);
  const auto blocks = static_cast<unsigned>(
      std::min<int64_t>(CeilDiv(threads, kThreads), int64_t{gpu_.facts.multiprocessors} * kBlocksPerProcessor));
  gpu_.CheckWork(gpu_.api.launch_kernel(kernel, blocks, 1, 1, kThreads, 1, 1, 0, stream, arguments, nullptr), name);
}

FaultRing CudaStream::faults() const { return {progress_->faults(), words_ + 1, words_ + 2}; }

void CudaStream::NumberPiece(const std::string& what) {
  Handle(what);
  const uint64_t number = open_->pieces.back().number;
  if (std::exchange(numbered_, number) == number) return;
  Launch(NumberPieceArgs{.piece = words_ + 1, .heard = words_ + 2, .number = number}, 1, what);
}

void CudaStream::Keep(std::shared_ptr<const void> object) { open_->kept.push_back(std::move(object)); }

FencePtr CudaStream::End(std::shared_ptr<const void> operation, std::shared_ptr<const void> payload) {
  if (open_->pieces.empty()) BeginPiece({});  // its fence comes after what it waits for
  open_->number = open_->pieces.back().number;
  open_->kept.push_back(std::move(operation));
  open_->kept.push_back(std::move(payload));
  {
    const std::lock_guard lock(mutex_);
    in_flight_.push_back(open_);  // before the calls that may tell of a failure, which wants to know what is in flight
  }
  EndPiece();
  if (!gpu_.failed()) gpu_.FailUnless(gpu_.api.event_record(open_->event, progress_->stream()));
  gpu_.Leave();
  return std::move(open_);
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
    const Batch::Piece* const piece = batch->Running();
    if (!piece) return {};
    return {.number = piece->number,
            .what = fmt::format("operation \"{}\"{}{}", *piece->part, piece->what.empty() ? "" : ", ", piece->what)};
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
