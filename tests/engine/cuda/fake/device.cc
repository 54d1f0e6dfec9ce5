#include "tests/engine/cuda/fake/device.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/error.h"

namespace bindery::cuda::fake {
namespace {

constexpr std::chrono::milliseconds kGlance{5};

struct Violations {
  std::mutex mutex;
  std::vector<std::string> texts;
};
Violations& TheViolations() {
  static Violations& violations = *new Violations;
  return violations;
}

}  // namespace

void Violation(std::string text) {
  const std::lock_guard lock(TheViolations().mutex);
  TheViolations().texts.push_back(std::move(text));
}

std::vector<std::string> TakeViolations() {
  const std::lock_guard lock(TheViolations().mutex);
  return std::exchange(TheViolations().texts, {});
}

FakeGpu::FakeGpu(int i) : index(i), memory(Cuda(i)), faults(Cuda(i)) {}

FakeGpu& GpuAt(int index) {
  static auto& gpus = *new std::array<std::unique_ptr<FakeGpu>, kNumGpus>;  // never destroyed: tensors may be static
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::unique_ptr<FakeGpu>& gpu = gpus.at(static_cast<size_t>(index));
  if (!gpu) gpu = std::make_unique<FakeGpu>(index);
  return *gpu;
}

char* Resolve(const FakeGpu& gpu, CUdeviceptr address, size_t bytes, const char* what) {
  for (int i = 0; i < kNumGpus; ++i) {
    FakeGpu& owner = GpuAt(i);
    if (!owner.memory.Holds(reinterpret_cast<const void*>(address))) continue;
    const std::lock_guard lock(owner.mutex);
    auto piece = owner.pieces.upper_bound(address);
    if (piece == owner.pieces.begin()) break;
    --piece;
    // Mapped pieces that touch are one.
    CUdeviceptr end = piece->first + piece->second.bytes;
    for (auto next = std::next(piece); next != owner.pieces.end() && next->first == end && next->second.mapped; ++next)
      end += next->second.bytes;
    if (address + bytes > end) break;
    if (!piece->second.ready) {
      Violation(fmt::format("{} on GPU {} uses memory before it is allocated", what, gpu.index));
    } else if (!piece->second.access.contains(gpu.index)) {
      Violation(fmt::format("{} on GPU {} uses memory of GPU {}, which it may not", what, gpu.index, owner.index));
    } else {
      return owner.memory.View(reinterpret_cast<const void*>(address));
    }
    return nullptr;
  }
  Violation(
      fmt::format("{} on GPU {} uses {} bytes at {:#x}, where nothing is (any more)", what, gpu.index, bytes, address));
  return nullptr;
}

FakeStream::~FakeStream() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
  ForgetStream(this);
}

void FakeStream::Enqueue(FakeWork work) {
  std::unique_lock lock(mutex_);
  if (capture_) return capture_->nodes.push_back(std::move(work));
  Over over = work.what.empty() ? nullptr : EnterWork(this, work.what, work.accesses);
  queue_.push_back({std::move(work), std::move(over)});
  if (at_once && queue_.size() == 1 && !busy_) return DoNext(lock);
  changed_.notify_all();
}

void FakeStream::WaitFor(std::shared_ptr<FakeEvent> event) {
  uint64_t number = 0;
  {
    const std::lock_guard event_lock(event->mutex);
    number = event->recorded;
    ComeAfter(this, event->clock);
    if (event->reached >= number) return;
  }
  Enqueue({[this, event, number] {
    std::unique_lock lock(event->mutex);
    while (event->reached < number && !Stuck()) event->changed.wait_for(lock, kGlance);
    if (event->reached < number) never_ = true;
    return CUDA_SUCCESS;
  }});
}

// It waits for a device that was lost: for ever, unless its own end comes.
bool FakeStream::Stuck() const { return stopping_ || gpu.error != CUDA_SUCCESS; }

void FakeStream::Synchronize() {
  std::unique_lock lock(mutex_);
  while ((!queue_.empty() || busy_) && gpu.error == CUDA_SUCCESS) changed_.wait_for(lock, kGlance);
}

bool FakeStream::idle() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && !busy_;
}

void FakeStream::BeginCapture() {
  const std::lock_guard lock(mutex_);
  capture_ = std::make_unique<FakeGraph>(FakeGraph{.gpu = gpu.index});
}

bool FakeStream::capturing() const {
  const std::lock_guard lock(mutex_);
  return capture_ != nullptr;
}

void FakeStream::SpoilCapture() {
  const std::lock_guard lock(mutex_);
  if (capture_) capture_->valid = false;
}

std::unique_ptr<FakeGraph> FakeStream::EndCapture() {
  const std::lock_guard lock(mutex_);
  return std::move(capture_);
}

void FakeStream::Main() {
  pthread_setname_np(pthread_self(), "fake CUDA");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || (!queue_.empty() && !busy_); });
    if (queue_.empty()) return;
    DoNext(lock);
  }
}

void FakeStream::DoNext(std::unique_lock<std::mutex>& lock) {
  Item item = std::move(queue_.front());
  queue_.pop_front();
  busy_ = true;
  lock.unlock();
  CUresult result = CUDA_SUCCESS;
  if (item.over && gpu.error == CUDA_SUCCESS) {
    if (const int delay = sim::NextDelay()) std::this_thread::sleep_for(std::chrono::microseconds(delay));
    try {
      gpu.faults.BeforeKernel();
      const auto is_meant = [&](const Access& access) { return access.writes && access.begin == gpu.written; };
      if (std::ranges::any_of(item.work.accesses, is_meant)) gpu.writers.BeforeKernel();
    } catch (const DeviceError&) {
      result = CUDA_ERROR_ILLEGAL_ADDRESS;
    }
  }
  if (result == CUDA_SUCCESS && gpu.error == CUDA_SUCCESS && !never_) {
    result = item.work.run();
    const std::lock_guard gpu_lock(gpu.mutex);
    ++gpu.done[item.work.what];
  }
  if (result != CUDA_SUCCESS) gpu.Lose(result);
  item.work = {};
  if (item.over) *item.over = true;
  lock.lock();
  busy_ = false;
  changed_.notify_all();
}

void RunAtOnce() { FakeStream::at_once = true; }

void FailKernel(int gpu, int64_t nth) { GpuAt(gpu).faults.FailKernel(nth); }
void HangKernel(int gpu, int64_t nth) { GpuAt(gpu).faults.HangKernel(nth); }
void HangWriter(int gpu, const void* address) {
  GpuAt(gpu).written = reinterpret_cast<CUdeviceptr>(address);
  GpuAt(gpu).writers.HangKernel(1);
}
void Release(int gpu) {
  GpuAt(gpu).faults.Release();
  GpuAt(gpu).writers.Release();
}
int64_t CountDone(int gpu, const std::string& name) {
  const std::lock_guard lock(GpuAt(gpu).mutex);
  return GpuAt(gpu).done[name];
}
void FailAllocation(int gpu, int64_t nth) { GpuAt(gpu).faults.FailAllocation(nth); }
void SetMemoryLimit(int gpu, int64_t bytes) { GpuAt(gpu).memory.SetLimit(bytes); }

}  // namespace bindery::cuda::fake
