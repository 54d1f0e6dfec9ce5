// One GPU of the fake, and what it has: memory, streams, events. Private to the fake.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/sim/device.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/engine/cuda/fake/races.h"

namespace bindery::cuda::fake {

struct FakeGpu;

void Violation(std::string text);
std::string WhenMade();  // "in Suite.Test", of what is made now

// A point in a stream: how often it was recorded, and reached.
struct FakeEvent {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, reached = 0;
  Clock clock;  // of the stream, where it was recorded last
};

// What is put on a stream.
struct FakeWork {
  std::function<CUresult()> run;  // fails by what it returns; to be copied, for what it does to itself is of one run
  std::string what = {};          // empty: it touches no memory, and is not delayed, made to fail or to hang
  Accesses accesses = {};
};

// Work that was captured, one after the other.
struct FakeGraph {
  int gpu = 0;
  std::thread::id by = std::this_thread::get_id();
  bool valid = true;
  std::vector<FakeWork> nodes = {};
  std::string made = WhenMade();
};
struct FakeGraphInstance {
  const FakeGraph graph;
  std::atomic<int> under_way = 0;  // launches that are not over
};

class FakeStream {
 public:
  explicit FakeStream(FakeGpu& gpu) : gpu(gpu), thread_(&FakeStream::Main, this) {}
  ~FakeStream();  // when all is done, or can never be

  FakeGpu& gpu;
  inline static std::atomic<bool> at_once = false;

  void Enqueue(FakeWork work);
  void WaitFor(std::shared_ptr<FakeEvent> event);
  void Synchronize();  // until nothing is left, or the device is lost
  bool idle() const;

  // Work that is enqueued in between goes into the graph instead.
  void BeginCapture();
  bool capturing() const;
  void SpoilCapture();  // by a call that cannot be captured
  std::unique_ptr<FakeGraph> EndCapture();

 private:
  struct Item {
    FakeWork work;
    Over over;
  };
  void Main();
  void DoNext(std::unique_lock<std::mutex>& lock);
  bool Stuck() const;  // waits for what cannot come

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<Item> queue_;
  std::unique_ptr<FakeGraph> capture_;
  bool busy_ = false;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> never_ = false;  // what comes now is not done: it waits for what cannot come
  std::thread thread_;
};

struct FakeGpu {
  explicit FakeGpu(int index);

  const int index;
  sim::Memory memory;
  sim::Faults faults;
  sim::Faults writers{Cuda(index)};  // of what begins at `written`
  std::atomic<CUdeviceptr> written = 0;

  void Lose(CUresult result) {
    CUresult none = CUDA_SUCCESS;
    error.compare_exchange_strong(none, result);
  }
  std::atomic<CUresult> error = CUDA_SUCCESS;

  // Live pieces of memory, by address: allocated, or mapped into reserved address space.
  struct Piece {
    size_t bytes;
    bool ready;  // its stream has come to where it was allocated
    bool mapped;
    std::set<int> access;  // by these GPUs
    std::string made = WhenMade();
  };
  std::mutex mutex;
  std::map<CUdeviceptr, Piece> pieces;
  std::map<CUdeviceptr, size_t> reservations;
  std::set<int> pool_access;
  std::map<std::string, int64_t> done;  // work, by name
};

FakeGpu& GpuAt(int index);

// Where the host finds `bytes` bytes that `gpu` uses; null, and a violation, if it may not.
char* Resolve(const FakeGpu& gpu, CUdeviceptr address, size_t bytes, const char* what);
// Of pinned memory.
bool IsPinned(const void* memory, size_t bytes);

}  // namespace bindery::cuda::fake
