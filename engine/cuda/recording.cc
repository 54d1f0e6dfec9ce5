#include "engine/cuda/recording.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/log.h"
#include "engine/cuda/switch.h"

namespace bindery::cuda {
namespace {

constexpr int kFewestCommands = 3;  // less is as fast one by one
constexpr size_t kMostLists = 3;    // of an operation: as many steps as are in flight have staging memory, and one more
constexpr size_t kMostEntries = 32;  // lists of operations that take turns: what is joined may be cut anywhere
constexpr int kMostReplaced = 8;     // without a launch, of an operation that may repeat itself yet

std::atomic<bool>& Used() {
  static std::atomic<bool> used = SwitchOf("BINDERY_CUDA_GRAPHS", true);
  return used;
}

// A stream to capture on, for as long as that takes.
class CaptureStream {
 public:
  explicit CaptureStream(const Gpu& gpu) : gpu_(gpu), stream_(gpu.TakeStream(/*goes_first=*/false)) {}
  ~CaptureStream() { gpu_.GiveBack(stream_, /*goes_first=*/false); }
  CaptureStream(const CaptureStream&) = delete;
  CaptureStream& operator=(const CaptureStream&) = delete;
  CUstream get() const { return stream_; }

 private:
  const Gpu& gpu_;
  const CUstream stream_;
};

}  // namespace

Recording::Recording(const Gpu& gpu, const Commands& commands, const ProgressWords& words)
    : gpu_(gpu), numbers_(commands.numbers()), plans_(commands.plans()) {
  const CaptureStream stream(gpu);
  gpu.Check(gpu.api.stream_begin_capture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
  CUgraph graph = nullptr;
  try {
    commands.Capture(gpu, stream.get(), words);
  } catch (...) {
    if (gpu.api.stream_end_capture(stream.get(), &graph) == CUDA_SUCCESS) gpu.api.graph_destroy(graph);
    throw;
  }
  gpu.Check(gpu.api.stream_end_capture(stream.get(), &graph), "cuStreamEndCapture");
  const CUresult result = gpu.api.graph_instantiate(&graph_, graph, 0);
  gpu.api.graph_destroy(graph);
  gpu.Check(result, "cuGraphInstantiate");
}

Recording::~Recording() {
  const Gpu::Scope scope(gpu_);
  gpu_.api.graph_exec_destroy(graph_);
}

void Recording::Launch(CUstream stream, const ProgressWords& words, uint64_t before) const {
  if (numbers_) LaunchOne(gpu_, stream, NumberPieceArgs{.piece = words.base, .heard = words.heard, .number = before});
  gpu_.CheckWork(gpu_.api.graph_launch(graph_, stream), "cuGraphLaunch");
  // Before the next number of `done`, so that the two are never added up wrongly (Progress::done).
  gpu_.CheckWork(gpu_.api.stream_write_value64(stream, reinterpret_cast<CUdeviceptr>(words.within), 0, 0),
                 "cuStreamWriteValue64");
}

Recordings::Found Recordings::Find(const Operations& operations, const Commands& commands, const Pieces& pieces,
                                   const ProgressWords& words) {
  const auto own = [&] { return std::make_shared<const Pieces>(pieces); };
  if (!GraphsAreUsed() || !commands.may_repeat() || commands.work() < kFewestCommands) return {own(), nullptr};
  const std::lock_guard lock(mutex_);
  Entry& entry = EntryOf(operations);
  const auto same = std::ranges::find_if(
      entry.lists, [&](const List& list) { return commands == list.commands && pieces == *list.pieces; });
  if (same != entry.lists.end()) {
    if (same->recording) entry.replaced = 0;  // it was worth while
    if (!same->recording && !refused_ && !gpu_.failed()) {
      try {
        same->recording = std::make_shared<const Recording>(gpu_, commands, words);
      } catch (const DeviceError& error) {
        refused_ = true;
        LogLine(LogLevel::kWarning, fmt::format("work is not captured into graphs from now on: {}", error.message()));
      }
    }
    std::rotate(same, same + 1, entry.lists.end());
    return {entry.lists.back().pieces, entry.lists.back().recording};
  }
  if (entry.lists.size() == kMostLists) {
    entry.lists.erase(entry.lists.begin());
    ++entry.replaced;
  }
  if (entry.replaced > kMostReplaced) {  // it is another each time
    entry.lists.clear();
    return {own(), nullptr};
  }
  entry.lists.push_back({commands, own()});
  return {entry.lists.back().pieces, nullptr};
}

Recordings::Entry& Recordings::EntryOf(const Operations& operations) {
  std::vector<const void*> key;
  for (const auto& operation : operations) key.push_back(operation.get());
  auto at = entries_.find(key);
  if (at == entries_.end() || at->second.expired()) {
    EraseExpired();
    if (entries_.size() >= kMostEntries) {
      entries_.erase(std::ranges::min_element(entries_, {}, [](const auto& entry) { return entry.second.found; }));
    }
    at = entries_.try_emplace(std::move(key), Entry{{operations.begin(), operations.end()}}).first;
  }
  at->second.found = ++finds_;
  return at->second;
}

void Recordings::Forget() {
  const std::lock_guard lock(mutex_);
  EraseExpired();
}

void Recordings::EraseExpired() {
  std::erase_if(entries_, [](const auto& entry) { return entry.second.expired(); });
}

void UseGraphs(bool use) { Used() = use; }
bool GraphsAreUsed() { return Used().load(std::memory_order_relaxed); }

}  // namespace bindery::cuda
