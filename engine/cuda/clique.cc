#include "engine/cuda/clique.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace bindery::cuda {
namespace {

// Of one group: NCCL has documented a limit of 2048.
constexpr size_t kMostCalls = 1024;

// What all cliques share.
struct AllCliques {
  std::mutex mutex;  // of whoever enqueues, or makes a clique
  std::map<const Gpu*, CUstream> streams;
  std::map<std::pair<const NcclApi*, std::vector<Gpu*>>, std::unique_ptr<Clique>> cliques;  // null: it cannot be made
};
AllCliques& All() {
  static AllCliques& all = *new AllCliques;
  return all;
}

CUstream StreamFor(const Gpu& gpu) {
  CUstream& stream = All().streams[&gpu];
  if (!stream) stream = gpu.TakeStream(/*goes_first=*/true);
  return stream;
}

}  // namespace

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(const NcclApi& api, const std::vector<Gpu*>& gpus, std::vector<NcclComm*> comms)
      : comms(std::move(comms)), api_(api), gpus_(gpus) {}

  mutable std::mutex mutex;  // of whoever calls NCCL with it
  const std::vector<NcclComm*> comms;

  bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  // Under the mutex: ends its work on the GPUs. Exchanges from the number `first` on have failed, by `problem`: that is
  // known before any of them can end by this.
  void Abort(const std::string& problem, uint64_t first) noexcept {
    if (aborted()) return;
    problem_ = problem;
    first_ = first;
    aborted_.store(true, std::memory_order_release);
    try {  // it may wait for GPUs, who knows for how long, which nobody may who looks after them
      std::thread(&Communicator::AbortNow, shared_from_this()).detach();
    } catch (const std::system_error&) {
      AbortNow();
    }
  }
  // What NCCL says of what was enqueued; empty: nothing, or it is aborted. May be asked while others enqueue.
  std::string LateError() const {
    if (aborted()) return {};
    const std::lock_guard lock(asking_);
    if (aborted()) return {};
    for (NcclComm* const comm : comms) {
      NcclResult error = kNcclSuccess;
      const NcclResult result = api_.comm_get_async_error(comm, &error);
      if (result != kNcclSuccess) error = result;
      if (error != kNcclSuccess) return api_.get_error_string(error);
    }
    return {};
  }
  // Has its work been ended on all GPUs?
  bool stopped() const {
    const std::lock_guard lock(kept_mutex_);
    return stopped_;
  }
  // Where a GPU is lost, the others may yet write there, until they have been stopped.
  void KeepUntilStopped(std::shared_ptr<const void> memory) {
    const std::lock_guard lock(kept_mutex_);
    if (!stopped_) kept_.push_back(std::move(memory));
  }
  // Of an exchange that is over, once and for all. Whoever asks has locks that others want who enqueue: so not under the
  // mutex.
  std::string Problem(uint64_t number) const {
    if (std::string error = LateError(); !error.empty()) return error;
    return aborted() && number >= first_ ? problem_ : "";
  }

 private:
  // Each part waits for the others, so in a group. What is left of the communicator is nobody's, whatever this returns.
  void AbortNow() {
    {
      const std::lock_guard lock(asking_);  // who asks now is done, and who comes later sees that it is aborted
    }
    const Gpu::Scope first(*gpus_[0]);  // NCCL would go back to a GPU of its own choice
    api_.group_start();
    for (size_t g = 0; g < gpus_.size(); ++g) {
      const Gpu::Scope scope(*gpus_[g]);
      api_.comm_abort(comms[g]);
    }
    api_.group_end();
    std::vector<std::shared_ptr<const void>> kept;
    const std::lock_guard lock(kept_mutex_);
    stopped_ = true;
    kept.swap(kept_);
  }

  const NcclApi& api_;
  const std::vector<Gpu*>& gpus_;
  mutable std::mutex asking_;  // for a late error: taken after all others
  std::atomic<bool> aborted_ = false;
  std::string problem_;  // both constant from then on
  uint64_t first_ = 0;
  mutable std::mutex kept_mutex_;
  bool stopped_ = false;
  std::vector<std::shared_ptr<const void>> kept_;
};

class Clique::Exchange final : public AcrossGpus {
 public:
  Exchange(Clique* clique, Pieces pieces) : clique_(*clique), pieces_(std::move(pieces)) {}
  ~Exchange() override {
    if (!enqueued_.communicator || enqueued_.number <= clique_.done()) return;
    enqueued_.communicator->KeepUntilStopped(pieces_);
  }

  void Enqueue(CUstream stream) override {
    Enqueued enqueued = clique_.Enqueue(*pieces_, stream);
    const std::lock_guard lock(mutex_);
    enqueued_ = std::move(enqueued);
  }
  void Look() noexcept override {
    if (const auto communicator = TheCommunicator()) clique_.Look(communicator.get());
  }
  bool GiveUp(const std::string& why) override {
    const auto communicator = TheCommunicator();
    return communicator && clique_.GiveUp(communicator.get(), why);
  }
  std::string Behind() const override {
    const Enqueued enqueued = Get();
    for (const auto& [clique, communicator, number] : enqueued.after) {
      if (communicator->stopped()) continue;  // of which nothing is in the way any more
      if (const uint64_t done = clique->done(); done < number) {
        return fmt::format(", behind exchange {} of {}", done + 1, clique->ToText());
      }
    }
    return {};
  }
  std::string Problem() const override {
    const Enqueued enqueued = Get();
    std::string problem = enqueued.problem;
    if (problem.empty() && enqueued.communicator) problem = enqueued.communicator->Problem(enqueued.number);
    return problem.empty() ? problem : clique_.ToText() + ": " + problem;
  }

 private:
  Enqueued Get() const {
    const std::lock_guard lock(mutex_);
    return enqueued_;
  }
  std::shared_ptr<Communicator> TheCommunicator() const {
    const std::lock_guard lock(mutex_);
    return enqueued_.communicator;
  }

  Clique& clique_;
  const Pieces pieces_;
  mutable std::mutex mutex_;  // others look while it is being enqueued
  Enqueued enqueued_;
};

Clique::Clique(NcclPtr api, std::vector<Gpu*> gpus) : api_(std::move(api)), gpus_(std::move(gpus)) {
  for (Gpu* const gpu : gpus_) {
    streams_.push_back(StreamFor(*gpu));
    ends_.push_back(gpu->TakeEvent());
  }
  begin_ = gpus_[0]->TakeEvent();
  void* const memory = gpus_[0]->AllocateHost(sizeof *done_);
  if (!memory) Throw<DeviceError>("{}: no memory of the host", gpus_[0]->device);
  done_ = new (memory) uint64_t(0);
}

std::shared_ptr<AcrossGpus> Clique::Call(Pieces pieces) { return std::make_shared<Exchange>(this, std::move(pieces)); }

std::string Clique::Connect() {
  if (std::string lost = Lost(); !lost.empty()) return lost;
  if (communicator_ && !communicator_->aborted()) return {};
  std::vector<int> devices;
  for (const Gpu* const gpu : gpus_) devices.push_back(gpu->device.index);
  std::vector<NcclComm*> comms(gpus_.size());
  const Gpu::Scope scope(*gpus_[0]);  // NCCL uses contexts of its own choice meanwhile
  const NcclResult result = api_->comm_init_all(comms.data(), static_cast<int>(comms.size()), devices.data());
  if (result != kNcclSuccess) return fmt::format("ncclCommInitAll: {}", api_->get_error_string(result));
  communicator_ = std::make_shared<Communicator>(*api_, gpus_, std::move(comms));
  return {};
}

Clique::Enqueued Clique::Enqueue(const std::vector<Piece>& pieces, CUstream stream) {
  const std::lock_guard order(All().mutex);
  Enqueued enqueued;
  for (const auto& [gpus, other] : All().cliques) {
    if (!other) continue;
    // One that hangs would keep this from beginning.
    if (other->communicator_ && !other->Lost().empty()) other->Look(other->communicator_.get());
    if (other->issued_ > other->done() && Shares(*other)) {
      enqueued.after.push_back({other.get(), other->communicator_, other->issued_});
    }
  }
  std::unique_lock<std::mutex> lock;
  for (bool again = false;; again = true) {
    enqueued.problem = Connect();
    if (!enqueued.problem.empty()) return enqueued;
    enqueued.communicator = communicator_;
    lock = std::unique_lock(communicator_->mutex);
    const std::string error = communicator_->LateError();
    if (!error.empty()) communicator_->Abort(error, 0);  // as Look does
    if (!communicator_->aborted()) break;
    lock.unlock();
    if (!again) continue;
    enqueued.problem = communicator_->Problem(issued_ + 1);  // the next would not fare better
    return enqueued;
  }
  enqueued.number = ++issued_;
  const auto abort_unless = [&](const auto& does) {
    try {
      does();
    } catch (const DeviceError& error) {
      communicator_->Abort(error.message(), done() + 1);  // it ends those before, too, that are not over
      FailIfItWaitsForLost();
    }
  };
  abort_unless([&] {
    Begin(stream);
    Bring(pieces);
  });
  abort_unless([&] { End(stream, enqueued.number); });  // also of what was enqueued before something was refused
  return enqueued;
}

void Clique::Begin(CUstream stream) const {
  gpus_[0]->CheckWork(gpus_[0]->api.event_record(begin_, stream), "cuEventRecord");
  for (size_t g = 0; g < gpus_.size(); ++g) {
    const Gpu& gpu = *gpus_[g];
    const Gpu::Scope scope(gpu);
    gpu.CheckWork(gpu.api.stream_wait_event(streams_[g], begin_, CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent");
  }
}

void Clique::Bring(const std::vector<Piece>& pieces) const {
  const auto wanted = [](const Piece& piece) {
    return piece.targets.size() - static_cast<size_t>(std::ranges::count(piece.targets, nullptr));
  };
  const size_t others = gpus_.size() - 1;
  const bool to_all = others > 1 && std::ranges::all_of(pieces, [&](const Piece& p) { return wanted(p) == others; });
  for (auto next = pieces.begin(); next != pieces.end();) {
    NcclResult result = api_->group_start();
    for (size_t calls = 0; next != pieces.end() && calls < kMostCalls; ++next) {
      BringPiece(*next, to_all, &result);
      calls += to_all ? gpus_.size() : 2 * wanted(*next);
    }
    const NcclResult end = api_->group_end();  // in any case
    if (result == kNcclSuccess) result = end;
    if (result != kNcclSuccess) Throw<DeviceError>("{}", api_->get_error_string(result));
  }
}

// `result`: the first that is not success.
void Clique::BringPiece(const Piece& piece, bool to_all, NcclResult* result) const {
  const auto on = [&](size_t g, const auto& call) {
    const Gpu::Scope scope(*gpus_[g]);
    const NcclResult of_call = call(communicator_->comms[g], streams_[g]);
    if (*result == kNcclSuccess) *result = of_call;
  };
  for (size_t g = 0; g < gpus_.size(); ++g) {
    if (to_all) {
      on(g, [&](NcclComm* comm, CUstream stream) {  // in place, where it comes from
        void* const target = g == piece.from ? const_cast<void*>(piece.source) : piece.targets[g]->data();
        const void* const source = g == piece.from ? piece.source : target;
        return api_->broadcast(source, target, piece.bytes, kNcclUint8, static_cast<int>(piece.from), comm, stream);
      });
    } else if (piece.targets[g]) {
      on(piece.from, [&](NcclComm* comm, CUstream stream) {
        return api_->send(piece.source, piece.bytes, kNcclUint8, static_cast<int>(g), comm, stream);
      });
      on(g, [&](NcclComm* comm, CUstream stream) {
        return api_->receive(piece.targets[g]->data(), piece.bytes, kNcclUint8, static_cast<int>(piece.from), comm,
                             stream);
      });
    }
  }
}

void Clique::End(CUstream stream, uint64_t number) {
  for (size_t g = 1; g < gpus_.size(); ++g) {
    const Gpu& gpu = *gpus_[g];
    const Gpu::Scope scope(gpu);
    gpu.CheckWork(gpu.api.event_record(ends_[g], streams_[g]), "cuEventRecord");
  }
  // Of a lost one nothing was recorded: to wait for its event would be to wait for its last exchange.
  if (const std::string lost = Lost(); !lost.empty()) Throw<DeviceError>("{}", lost);
  awaited_.store(number, std::memory_order_release);
  const Gpu& first = *gpus_[0];
  const Gpu::Scope scope(first);
  for (size_t g = 1; g < gpus_.size(); ++g) {
    first.CheckWork(first.api.stream_wait_event(streams_[0], ends_[g], CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent");
  }
  first.CheckWork(first.api.stream_write_value64(streams_[0], reinterpret_cast<CUdeviceptr>(done_), number, 0),
                  "cuStreamWriteValue64");
  first.CheckWork(first.api.event_record(ends_[0], streams_[0]), "cuEventRecord");
  first.CheckWork(first.api.stream_wait_event(stream, ends_[0], CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent");
}

// For the lost one its stream would wait for ever.
void Clique::FailIfItWaitsForLost() const noexcept {
  if (Lost().empty() || gpus_[0]->failed() || done() >= awaited_.load(std::memory_order_acquire)) return;
  gpus_[0]->Fail(CUDA_ERROR_DEVICE_UNAVAILABLE);
}

// While somebody else calls NCCL nothing is asked: the next who waits will.
void Clique::Look(Communicator* communicator) noexcept {
  const std::unique_lock lock(communicator->mutex, std::try_to_lock);
  if (!lock) return;
  for (size_t g = 0; g < gpus_.size(); ++g) {
    const Gpu& gpu = *gpus_[g];
    if (gpu.failed()) continue;
    const Gpu::Scope scope(gpu);
    const CUresult result = gpu.api.stream_query(streams_[g]);
    if (result != CUDA_ERROR_NOT_READY) gpu.FailUnless(result);
  }
  if (const std::string lost = Lost(); !lost.empty()) {
    communicator->Abort(lost, done() + 1);
    FailIfItWaitsForLost();
  } else if (const std::string error = communicator->LateError(); !error.empty()) {
    communicator->Abort(error, 0);  // NCCL promises nothing then, of what is over, either
  }
}

// Those who look have the mutex for less than so many milliseconds, whoever is in a call that does not return for longer.
constexpr int kOfWhoLooks = 100;

bool Clique::GiveUp(Communicator* communicator, const std::string& why) {
  // Not by a timed mutex, of which ThreadSanitizer sees nothing but the unlocking.
  std::unique_lock lock(communicator->mutex, std::defer_lock);
  for (int i = 0; !lock.try_lock(); ++i) {
    if (i == kOfWhoLooks) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (communicator->aborted()) return false;
  communicator->Abort("aborted, as " + why, done() + 1);
  return true;
}

bool Clique::Shares(const Clique& other) const {
  return std::ranges::any_of(gpus_, [&](Gpu* gpu) { return std::ranges::find(other.gpus_, gpu) != other.gpus_.end(); });
}

uint64_t Clique::done() const { return std::atomic_ref(*done_).load(std::memory_order_acquire); }

std::string Clique::Lost() const {
  const auto lost = std::ranges::find_if(gpus_, &Gpu::failed);
  return lost == gpus_.end() ? "" : (*lost)->failure();
}

std::string Clique::ToText() const {
  std::string text = "NCCL";
  for (const Gpu* const gpu : gpus_) text += (gpu == gpus_[0] ? " on " : ", ") + ToString(gpu->device);
  return text;
}

Clique* CliqueOf(const std::vector<Gpu*>& gpus) {
  const NcclPtr api = Nccl();
  if (!api || std::ranges::any_of(gpus, &Gpu::failed)) return nullptr;
  const std::lock_guard lock(All().mutex);
  const auto [found, is_new] = All().cliques.try_emplace({api.get(), gpus}, nullptr);
  if (!is_new) return found->second.get();
  std::string problem;
  try {
    auto made = std::make_unique<Clique>(api, gpus);
    problem = made->Connect();
    if (problem.empty()) found->second = std::move(made);
  } catch (const DeviceError& error) {
    problem = error.message();
  }
  if (problem.empty()) return found->second.get();
  std::string names;
  for (const Gpu* const gpu : gpus) names += (names.empty() ? "" : ", ") + ToString(gpu->device);
  LogLine(LogLevel::kWarning, fmt::format("{} copy what they exchange: {}", names, problem));
  return nullptr;
}

}  // namespace bindery::cuda
