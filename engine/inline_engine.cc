// The engine without threads: an operation runs inside Push, which waits for work on an asynchronous device, too. An
// operation that is pushed from inside another one waits until that one is over, and runs before the outer Push
// returns: so it sees what the outer operation wrote and whether it failed, exactly as in the threaded engine. Pushes
// from several threads run one after the other.
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/operation.h"

namespace bindery {
namespace {

class InlineEngine final : public Engine {
 public:
  VarPtr NewVar() override { return std::make_shared<Var>(token_); }

  void Push(Operation operation) override { RunOrQueue({Prepare(std::move(operation)), nullptr}); }

  PreparedPtr Prepare(Operation operation) override {
    auto prepared = std::make_shared<PreparedOperation>(std::move(operation), token_);
    StreamOf(prepared->operation.device, prepared->operation.lane);
    return prepared;
  }

  Stream& StreamOf(Device device, Lane lane) override {
    Backend& backend = Backend::Of(device);
    if (backend.host_addressable()) lane = Lane::kCompute;
    const std::lock_guard lock(streams_mutex_);
    std::unique_ptr<Stream>& stream = streams_[{device, lane}];
    if (!stream) stream = backend.MakeStream(device, lane);
    return *stream;
  }

  void Push(const PreparedPtr& prepared, std::shared_ptr<const void> payload) override {
    CheckOwner(prepared, token_);
    RunOrQueue({prepared, std::move(payload)});
  }

  void Wait(const VarPtr& var) override {
    CheckOwner(var, token_);
    const auto lock = LockOutside("Wait");
    if (std::exception_ptr error = failures_.Tell(*var)) std::rethrow_exception(error);
  }

  void WaitIdle(const VarPtr& var) override {
    CheckOwner(var, token_);
    const auto lock = LockOutside("WaitIdle");
  }

  void WaitAll() override {
    const auto lock = LockOutside("WaitAll");
    if (std::exception_ptr error = failures_.TakeFirst()) std::rethrow_exception(error);
  }

  void Recover() override {
    const auto lock = LockOutside("Recover");
    failures_.Recover();
  }

  std::optional<uint64_t> Version(const VarPtr& var) override {
    CheckOwner(var, token_);
    if (InsideOperation()) return failures_.VersionOf(*var);
    const std::lock_guard lock(mutex_);
    return failures_.VersionOf(*var);
  }

  const char* name() const override { return "inline"; }

 private:
  struct Pushed {
    PreparedPtr operation;
    std::shared_ptr<const void> payload;
  };

  bool InsideOperation() const { return runner_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

  std::unique_lock<std::mutex> LockOutside(const char* method) {
    if (InsideOperation()) Throw("{} was called from inside an operation; it would wait for that operation", method);
    return std::unique_lock(mutex_);
  }

  void RunOrQueue(Pushed pushed) {
    if (InsideOperation()) {
      CountChanges(pushed.operation->accesses);
      nested_.push_back(std::move(pushed));
      return;
    }
    const std::lock_guard lock(mutex_);
    CountChanges(pushed.operation->accesses);
    runner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    Run(std::move(pushed));
    while (!nested_.empty()) {
      Pushed next = std::move(nested_.front());
      nested_.pop_front();
      Run(std::move(next));
    }
    runner_.store(std::thread::id(), std::memory_order_relaxed);
  }

  void Run(Pushed pushed) noexcept {
    const PreparedOperation& operation = *pushed.operation;
    std::exception_ptr error = failures_.Inherited(operation.accesses);
    const bool skipped = error != nullptr;
    bool half_way = false;
    if (!skipped) error = RunNow(pushed, &half_way);
    failures_.Settle(operation.accesses, error, !skipped, half_way);
  }

  std::exception_ptr RunNow(const Pushed& pushed, bool* half_way) noexcept {
    const PreparedOperation& operation = *pushed.operation;
    Stream& stream = StreamOf(operation.operation.device, operation.operation.lane);
    stream.Begin(operation.operation.name, {});  // nothing is ever left to be waited for
    std::exception_ptr error = operation.Call(stream, pushed.payload.get());
    const FencePtr fence = stream.End(pushed.operation, pushed.payload);
    if (!fence) return error;
    fence->Wait();
    const std::exception_ptr late = fence->error();
    stream.Synchronize();  // lets go of what it kept
    *half_way = late != nullptr;
    return error ? error : late;
  }

  const EngineToken token_ = std::make_shared<char>();
  std::mutex mutex_;                       // held by the thread that runs operations
  std::atomic<std::thread::id> runner_{};  // that thread
  std::deque<Pushed> nested_;              // pushed from inside the running operation; used by that thread only
  Failures failures_;
  std::mutex streams_mutex_;
  std::map<std::pair<Device, Lane>, std::unique_ptr<Stream>> streams_;
};

}  // namespace

std::shared_ptr<Engine> MakeInlineEngine() { return std::make_shared<InlineEngine>(); }

}  // namespace bindery
