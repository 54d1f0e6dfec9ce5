#include "tests/engine/cuda/fake/nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/engine/cuda/fake/state.h"

namespace bindery::cuda::fake {
namespace {

constexpr std::chrono::milliseconds kGlance{2};

// Bytes on their way from one rank to one other, or to all.
struct Transfer {
  size_t ends = 2, targets = 1;  // ranks that take part; that receive
  size_t bytes = 0;
  bool differs = false;  // the ends do not agree
  const void* source = nullptr;
  int from = 0;
  size_t entered = 0, arrived = 0, copied = 0;  // ends
};

struct FakeClique {
  std::vector<FakeGpu*> gpus;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<bool> aborted;  // by rank
  bool any_aborted = false;
  NcclResult late_error = kNcclSuccess;
  // Those that some ends have not come to, by from, to (-1: all) and how many came before; and how many each rank has
  // come to, of each kind.
  std::map<std::tuple<int, int, int64_t>, std::shared_ptr<Transfer>> transfers;
  std::map<std::tuple<int, int, int>, int64_t> begun;
};
struct FakeComm {
  std::shared_ptr<FakeClique> clique;
  int rank = 0;
};

struct Library {
  std::mutex mutex;
  std::map<NcclComm*, FakeComm> comms;
  uintptr_t next = 0x1000;  // addresses that nobody can follow
};
Library& TheLibrary() {
  static Library& library = *new Library;  // never destroyed: cliques are not, either
  return library;
}
std::atomic<int64_t> communicators = 0, aborted = 0, groups = 0, sends = 0, broadcasts = 0;
std::atomic<NcclFault> next_fault = NcclFault::kNone;
std::atomic<int> skipped_before = 0;
std::atomic<uint64_t> releases = 0;
std::atomic<bool> refuse_communicators = false, hold_groups = false, hold_aborts = false;
std::atomic<int> held_groups = 0, held_aborts = 0;

NcclResult Reject(const char* call, const std::string& why, NcclResult result = kNcclInvalidUsage) {
  Violation(fmt::format("{}: {}", call, why));
  return result;
}

// One rank's end of a transfer.
struct End {
  std::shared_ptr<Transfer> transfer;
  void* target = nullptr;  // null: it sends
};
struct Call {
  FakeComm comm = {};
  FakeStream* stream = nullptr;
  int from = 0, to = 0;  // -1: all
  const void* source = nullptr;
  void* target = nullptr;
  size_t bytes = 0;
};
struct Group {
  int depth = 0;
  NcclResult error = kNcclSuccess;
  std::vector<Call> calls = {};
  std::set<std::shared_ptr<FakeClique>> aborts = {};
};
Group& TheGroup() {
  thread_local Group group;
  return group;
}

// ---- communicators ----

const char* GetErrorString(NcclResult result) {
  switch (result) {
    case kNcclSuccess: return "no error";
    case kNcclUnhandledCudaError: return "unhandled cuda error";
    case kNcclSystemError: return "unhandled system error";
    case kNcclInvalidUsage: return "invalid usage";
    case kNcclRemoteError: return "remote process exited or there was a network error";
    default: return "internal error";
  }
}

NcclResult CommInitAll(NcclComm** comms, int count, const int* devices) {
  constexpr char kCall[] = "ncclCommInitAll";
  if (TheGroup().depth > 0) return Reject(kCall, "within a group");
  if (RefuseWhileCapturing(kCall) != CUDA_SUCCESS) return kNcclUnhandledCudaError;
  if (std::set<int>(devices, devices + count).size() < static_cast<size_t>(count)) return Reject(kCall, "a GPU twice");
  if (refuse_communicators) return kNcclSystemError;
  const auto clique = std::make_shared<FakeClique>();
  for (int i = 0; i < count; ++i) {
    if (devices[i] < 0 || devices[i] >= kNumGpus) return Reject(kCall, "no such GPU", kNcclInvalidArgument);
    clique->gpus.push_back(&GpuAt(devices[i]));
    if (clique->gpus.back()->error != CUDA_SUCCESS) return kNcclUnhandledCudaError;
  }
  clique->aborted.resize(clique->gpus.size());
  Library& library = TheLibrary();
  const std::lock_guard lock(library.mutex);
  for (int i = 0; i < count; ++i) {
    comms[i] = reinterpret_cast<NcclComm*>(library.next += 16);
    library.comms[comms[i]] = {clique, i};
  }
  communicators += count;
  return kNcclSuccess;
}

// Empty, and a violation, if there is none.
FakeComm Find(const char* call, NcclComm* comm) {
  const std::lock_guard lock(TheLibrary().mutex);
  const auto found = TheLibrary().comms.find(comm);
  if (found != TheLibrary().comms.end()) return found->second;
  Violation(fmt::format("{}: a communicator that is no more", call));
  return {};
}

NcclResult CommAbort(NcclComm* handle) {
  constexpr char kCall[] = "ncclCommAbort";
  if (TheGroup().depth == 0) return Reject(kCall, "it would wait for other ranks, outside of a group");
  const FakeComm comm = Find(kCall, handle);
  if (!comm.clique) return kNcclInvalidArgument;
  {
    const std::lock_guard lock(TheLibrary().mutex);
    TheLibrary().comms.erase(handle);
  }
  ++held_aborts;
  while (hold_aborts) std::this_thread::sleep_for(kGlance);
  --held_aborts;
  const std::lock_guard lock(comm.clique->mutex);
  comm.clique->aborted[static_cast<size_t>(comm.rank)] = comm.clique->any_aborted = true;
  comm.clique->changed.notify_all();
  TheGroup().aborts.insert(comm.clique);
  ++aborted;
  return kNcclSuccess;
}

NcclResult CommGetAsyncError(NcclComm* handle, NcclResult* error) {
  const FakeComm comm = Find("ncclCommGetAsyncError", handle);
  if (!comm.clique) return kNcclInvalidArgument;
  const std::lock_guard lock(comm.clique->mutex);
  *error = comm.clique->late_error;
  return kNcclSuccess;
}

// ---- work ----

// Of a clique on a GPU. That of another at the same time is a violation: on a GPU one may wait for the other's place.
class UnderWay {
 public:
  UnderWay(const FakeClique* clique, const FakeGpu* gpu) : gpu_(gpu) {
    const std::lock_guard lock(Mutex());
    const FakeClique*& other = All()[gpu];
    if (other) Violation(fmt::format("NCCL: work of two communicators at once on GPU {}", gpu->index));
    other = clique;
  }
  ~UnderWay() {
    const std::lock_guard lock(Mutex());
    All()[gpu_] = nullptr;
  }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

 private:
  static std::mutex& Mutex() {
    static std::mutex& mutex = *new std::mutex;  // never destroyed: streams may be static
    return mutex;
  }
  static std::map<const FakeGpu*, const FakeClique*>& All() {
    static auto& all = *new std::map<const FakeGpu*, const FakeClique*>;
    return all;
  }
  const FakeGpu* const gpu_;
};

// What one rank does of a group, on its stream.
CUresult Work(FakeClique* clique, const FakeGpu& gpu, const std::vector<End>& ends, NcclFault fault) {
  const uint64_t released = releases;
  const UnderWay under_way(clique, &gpu);
  std::unique_lock lock(clique->mutex);
  const auto over = [&] { return clique->any_aborted || gpu.error != CUDA_SUCCESS; };
  const auto wait = [&](const auto& done) {
    while (!done() && !over()) clique->changed.wait_for(lock, kGlance);
    return done() && !over();
  };
  if (fault == NcclFault::kFails || fault == NcclFault::kEndsAndFails) {
    clique->late_error = kNcclRemoteError;
    if (fault == NcclFault::kFails) wait([] { return false; });
    return CUDA_SUCCESS;
  }
  if (fault == NcclFault::kHangs) wait([&] { return releases != released; });
  for (const End& end : ends) ++end.transfer->arrived;
  clique->changed.notify_all();
  for (const End& end : ends) {
    if (!wait([&] { return end.transfer->arrived == end.transfer->ends && !end.transfer->differs; })) {
      return CUDA_SUCCESS;
    }
    if (!end.target) continue;
    const Transfer& transfer = *end.transfer;
    const auto resolve = [&](const FakeGpu& of, const void* address) {
      return Resolve(of, reinterpret_cast<CUdeviceptr>(address), transfer.bytes, "NCCL");
    };
    const char* const source = resolve(*clique->gpus[static_cast<size_t>(transfer.from)], transfer.source);
    char* const target = resolve(gpu, end.target);
    if (!source || !target) return CUDA_ERROR_ILLEGAL_ADDRESS;
    std::memcpy(target, source, transfer.bytes);
    ++end.transfer->copied;
    clique->changed.notify_all();
  }
  for (const End& end : ends) wait([&] { return end.transfer->copied == end.transfer->targets; });
  return CUDA_SUCCESS;
}

// The call's end of its transfer, which is that of as many calls before it at the other ends.
End EnterTransfer(const Call& call) {
  FakeClique& clique = *call.comm.clique;
  const std::lock_guard lock(clique.mutex);
  const int64_t number = clique.begun[{call.from, call.to, call.comm.rank}]++;
  const std::tuple key(call.from, call.to, number);
  std::shared_ptr<Transfer> transfer = clique.transfers[key];
  const bool sends_it = call.comm.rank == call.from;
  if (!transfer) {
    const size_t all = clique.gpus.size();
    clique.transfers[key] = transfer = std::make_shared<Transfer>();
    if (call.to < 0) transfer->ends = all, transfer->targets = all - 1;
    transfer->bytes = call.bytes;
    transfer->from = call.from;
  }
  if (transfer->bytes != call.bytes) {
    transfer->differs = true;
    Violation(fmt::format("NCCL: {} bytes at one end, {} at another", transfer->bytes, call.bytes));
  }
  if (sends_it) transfer->source = call.source;
  if (++transfer->entered == transfer->ends) clique.transfers.erase(key);
  return {transfer, sends_it ? nullptr : call.target};
}

NcclResult Launch(const std::vector<Call>& calls) {
  const NcclFault fault = skipped_before-- > 0 ? NcclFault::kNone : next_fault.exchange(NcclFault::kNone);
  if (fault == NcclFault::kIsNotEnqueued) return kNcclSystemError;
  std::map<std::pair<std::shared_ptr<FakeClique>, int>, std::vector<const Call*>> by_rank;
  for (const Call& call : calls) by_rank[{call.comm.clique, call.comm.rank}].push_back(&call);
  for (const auto& [key, mine] : by_rank) {
    std::vector<End> ends;
    Accesses accesses;
    for (const Call* const call : mine) {
      if (call->stream != mine[0]->stream) return Reject("ncclGroupEnd", "a rank's calls on several streams");
      const End& end = ends.emplace_back(EnterTransfer(*call));
      const void* const used = end.target ? end.target : call->source;
      accesses.push_back({reinterpret_cast<CUdeviceptr>(used), call->bytes, end.target != nullptr});
    }
    FakeGpu& gpu = *key.first->gpus[static_cast<size_t>(key.second)];
    mine[0]->stream->Enqueue(
        {[clique = key.first, &gpu, ends, fault] { return Work(clique.get(), gpu, ends, fault); }, "NCCL", accesses});
  }
  return kNcclSuccess;
}

NcclResult GroupStart() {
  ++TheGroup().depth;
  return kNcclSuccess;
}

NcclResult GroupEnd() {
  Group& group = TheGroup();
  if (group.depth == 0) return Reject("ncclGroupEnd", "without a beginning");
  if (--group.depth > 0) return kNcclSuccess;
  const Group ended = std::exchange(group, {});
  ++held_groups;
  while (hold_groups) std::this_thread::sleep_for(kGlance);
  --held_groups;
  for (const std::shared_ptr<FakeClique>& clique : ended.aborts) {
    const std::lock_guard lock(clique->mutex);
    if (!std::ranges::all_of(clique->aborted, std::identity())) {
      Violation("ncclGroupEnd: some ranks of a communicator are aborted, others not");
    }
  }
  if (ended.error != kNcclSuccess) return ended.error;
  if (ended.calls.empty()) return kNcclSuccess;
  ++groups;
  return Launch(ended.calls);
}

NcclResult Add(const char* name, Call call, NcclDataType type, NcclComm* comm, CUstream stream) {
  const auto check = [&]() -> NcclResult {
    call.comm = Find(name, comm);
    if (!call.comm.clique) return kNcclInvalidArgument;
    const int ranks = static_cast<int>(call.comm.clique->gpus.size()), rank = call.comm.rank;
    if (TheGroup().depth == 0) return Reject(name, "it would wait for other ranks, outside of a group");
    if (FindStream(name, stream, &call.stream) != CUDA_SUCCESS) return kNcclUnhandledCudaError;
    if (&call.stream->gpu != call.comm.clique->gpus[static_cast<size_t>(rank)]) {
      return Reject(name, "a stream of another GPU than the communicator's");
    }
    if (call.stream->capturing()) return Reject(name, "while the stream is captured");
    if (type != kNcclUint8) return Reject(name, "what the fake does not do", kNcclInvalidArgument);
    if (call.from < 0 || call.from >= ranks || call.to >= ranks || call.from == call.to) {
      return Reject(name, "no such rank", kNcclInvalidArgument);
    }
    return kNcclSuccess;
  };
  const NcclResult result = check();
  if (result == kNcclSuccess) {
    TheGroup().calls.push_back(std::move(call));
  } else if (TheGroup().depth > 0 && TheGroup().error == kNcclSuccess) {
    TheGroup().error = result;
  }
  return result;
}

int RankOf(NcclComm* comm) {
  const std::lock_guard lock(TheLibrary().mutex);
  const auto found = TheLibrary().comms.find(comm);
  return found == TheLibrary().comms.end() ? 0 : found->second.rank;
}

NcclResult Broadcast(const void* source, void* target, size_t count, NcclDataType type, int root, NcclComm* comm,
                     CUstream stream) {
  if (RankOf(comm) == root && source != target) return Reject("ncclBroadcast", "what the fake does not do");
  ++broadcasts;
  return Add("ncclBroadcast", {.from = root, .to = -1, .source = source, .target = target, .bytes = count}, type, comm,
             stream);
}
NcclResult Send(const void* source, size_t count, NcclDataType type, int peer, NcclComm* comm, CUstream stream) {
  ++sends;
  return Add("ncclSend", {.from = RankOf(comm), .to = peer, .source = source, .bytes = count}, type, comm, stream);
}
NcclResult Receive(void* target, size_t count, NcclDataType type, int peer, NcclComm* comm, CUstream stream) {
  return Add("ncclRecv", {.from = peer, .to = RankOf(comm), .target = target, .bytes = count}, type, comm, stream);
}

}  // namespace

NcclPtr Nccl() {
  static const NcclPtr api(new NcclApi{.get_error_string = &GetErrorString,
                                       .comm_init_all = &CommInitAll,
                                       .comm_abort = &CommAbort,
                                       .comm_get_async_error = &CommGetAsyncError,
                                       .group_start = &GroupStart,
                                       .group_end = &GroupEnd,
                                       .broadcast = &Broadcast,
                                       .send = &Send,
                                       .receive = &Receive});
  return api;
}

NcclCounts CountNccl() { return {communicators, aborted, groups, sends, broadcasts}; }
void BreakNccl(NcclFault fault, int skipped) {
  skipped_before = skipped;
  next_fault = fault;
}
void ReleaseNccl() { ++releases; }
void HoldGroups(bool yes) { hold_groups = yes; }
int HeldGroups() { return held_groups; }
void HoldAborts(bool yes) { hold_aborts = yes; }
int HeldAborts() { return held_aborts; }
void RefuseCommunicators(bool yes) { refuse_communicators = yes; }

}  // namespace bindery::cuda::fake
