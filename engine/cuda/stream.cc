#include "engine/cuda/stream.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "engine/cuda/batch.h"
#include "engine/cuda/progress.h"
#include "engine/operation.h"

namespace bindery::cuda {
namespace {

constexpr int kBlocksPerProcessor = 8;  // fill it

}  // namespace

CudaStream::CudaStream(Gpu& gpu, Lane lane)
    : Stream(gpu.device, lane), gpu_(gpu), progress_(std::make_shared<Progress>(gpu, lane)),
      words_(static_cast<uint64_t*>(gpu.Allocate(kWords * sizeof(uint64_t) + kMaxParts * sizeof(UpdateSquares)))),
      recordings_(gpu) {
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
    const bool done = !other || other->Done();
    if (done || other->refused()) {
      if (const std::exception_ptr error = InheritedError(*use.fence, use.inherits)) return error;
    }
    if (!done) batch->uses.push_back({other->shared_from_this(), use.inherits});
  }
  entered_ = gpu_.Enter();
  batch->begin = pieces_.size();
  open_ = std::move(batch);
  for (const Batch::Use& use : open_->uses) {
    if (use.batch->stream() == this || gpu_.failed()) continue;
    gpu_.FailUnless(gpu_.api.stream_wait_event(progress_->stream(), use.batch->event->event, CU_EVENT_WAIT_DEFAULT));
  }
  return nullptr;
}

void CudaStream::EnterPiece(const std::string& what) {
  Check(open_ != nullptr, "work is enqueued by an operation");
  const std::string& name = what.empty() ? naming_ : what;
  // One operation may be joined twice in a row: each has pieces of its own.
  const bool same_part = pieces_.size() > open_->begin && pieces_.back().part == &part();
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

void CudaStream::CallLibrary(LibraryFunction function, const char* name, const std::shared_ptr<const void>& plan,
                             std::span<void* const> addresses, const std::string& what) {
  EnterPiece(what);
  commands_.Call(function, name, plan, addresses);
  Keep(plan);
}

void CudaStream::CallAcross(std::shared_ptr<AcrossGpus> across, const std::string& what) {
  EnterPiece(what);
  commands_.Call(across);
  open_->across.push_back(std::move(across));
}

void CudaStream::Copy(const CopyCommand& copy, const std::string& what) {
  EnterPiece(what);
  commands_.Copy(copy);
}

void CudaStream::Fill(void* to, unsigned char value, size_t bytes, const std::string& what) {
  EnterPiece(what);
  commands_.Fill(to, value, bytes);
}

FaultRing CudaStream::faults(Refusal* refused) const { return {progress_->faults(), words_ + 1, words_ + 2, refused}; }

void CudaStream::NumberPiece(const std::string& what) {
  EnterPiece(what);
  if (std::exchange(numbered_, pieces_.size()) == pieces_.size()) return;
  commands_.NumberPiece(static_cast<int>(pieces_.size()));
}

void CudaStream::Keep(std::shared_ptr<const void> object) { open_->kept.push_back(std::move(object)); }

FencePtr CudaStream::End(std::shared_ptr<const void> operation, std::shared_ptr<const void> payload) {
  if (pieces_.size() == open_->begin) EnterPiece({});  // its fence comes after what it waits for
  open_->end = pieces_.size();
  open_->kept.push_back(operation);
  open_->kept.push_back(std::move(payload));
  operations_.push_back(std::move(operation));
  batches_.push_back(open_);
  if (!joining_) Submit();
  if (entered_) gpu_.Leave();
  return std::move(open_);
}

void CudaStream::Join() { joining_ = true; }

void CudaStream::Part() noexcept {
  joining_ = false;
  if (batches_.empty()) return;  // all were skipped
  const Gpu::Scope scope(gpu_);
  Submit();
}

void CudaStream::Submit() noexcept {
  const CUstream stream = progress_->stream();
  const ProgressWords words{.done = progress_->word(),
                            .within = progress_->within(),
                            .piece = words_ + 1,
                            .heard = words_ + 2,
                            .base = words_ + 3};
  const Recordings::Found found = recordings_.Find(operations_, commands_, pieces_, words);
  const auto event = std::make_shared<const Batch::Event>(gpu_);
  const uint64_t before = std::exchange(issued_, issued_ + pieces_.size());
  {
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<Batch>& batch : batches_) {
      batch->Submitted(found.pieces, found.recording, before, event);
      in_flight_.push_back(batch);  // before the calls that may tell of a failure, which asks what is in flight
    }
  }
  int piece = 0;
  try {
    if (found.recording) {
      found.recording->Launch(stream, words, before);
    } else {
      commands_.Enqueue(gpu_, stream, words, before, &piece);
    }
  } catch (...) {  // nothing from there on was enqueued
    const std::exception_ptr error = CurrentErrorNamed(*pieces_[static_cast<size_t>(piece)].part);
    for (const std::shared_ptr<Batch>& batch : batches_) {
      if (batch->end > static_cast<size_t>(piece)) batch->Refuse(error);
    }
  }
  if (!gpu_.failed()) gpu_.FailUnless(gpu_.api.stream_write_value64(stream, words.done, issued_, 0));
  if (!gpu_.failed()) gpu_.FailUnless(gpu_.api.event_record(event->event, stream));
  batches_.clear();
  operations_.clear();
  commands_.Clear();  // and with it what its calls need, which others let go of
  pieces_.clear();
  numbered_ = 0;
}

std::exception_ptr CudaStream::Synchronize() noexcept {
  while (!WaitFor(std::chrono::hours(1))) {
  }
  Forget();
  recordings_.Forget();
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

const CudaStream::Batch* CudaStream::FirstUnfinished() const {
  const auto first = std::ranges::find_if(in_flight_, [](const auto& batch) { return !batch->Finished(); });
  return first == in_flight_.end() ? nullptr : first->get();
}

Stream::Work CudaStream::Doing() const {
  const std::lock_guard lock(mutex_);
  const Batch* const batch = FirstUnfinished();
  return batch ? batch->Running() : Work();
}

const CudaStream::Batch* CudaStream::UnfinishedAt(uint64_t number) const {
  const Batch* const batch = FirstUnfinished();
  return batch && batch->Running().number == number ? batch : nullptr;
}

bool CudaStream::MayGiveUp(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const Batch* const batch = UnfinishedAt(number);
  return batch && !batch->across.empty();
}

bool CudaStream::IsBehind(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const Batch* const batch = UnfinishedAt(number);
  return batch && std::ranges::any_of(batch->across, [](const auto& call) { return !call->Behind().empty(); });
}

bool CudaStream::GiveUp(uint64_t number, const std::string& why) {
  const std::lock_guard lock(mutex_);
  const Batch* const batch = UnfinishedAt(number);
  return batch && std::ranges::any_of(batch->across, [&](const auto& call) { return call->GiveUp(why); });
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
