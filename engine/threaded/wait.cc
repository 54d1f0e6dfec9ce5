// The threaded engine: threads that wait, for a variable or for everything, and what they see of devices that hang.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/backend.h"
#include "engine/threaded/state.h"

namespace bindery {
namespace {

constexpr int kWaiterSpinMicroseconds = 20;

}  // namespace

template <class Done>
bool ThreadedState::SpinFor(const Done& done) const {
  return SpinUntil(std::min(spin_microseconds_, kWaiterSpinMicroseconds), done);
}

template <class Done>
bool ThreadedState::Block(std::unique_lock<std::mutex>& lock, const Done& done, std::string* hang) {
  ++sleepers_;
  while (!finished_.wait_for(lock, watchdog_.period(), done)) {
    std::string found = Hang(lock);
    if (found.empty() || !hang) continue;
    *hang = std::move(found);
    break;
  }
  --sleepers_;
  return done();
}

void ThreadedState::Wait(const VarPtr& var, bool tell) {
  if (!tell && !process_.IsHere()) return;  // destructors
  CheckOutside(tell ? "Wait" : "WaitIdle");
  Waiter waiter;
  waiter.tell = tell;
  {
    const auto lock = Lock();
    if (var->joined != Var::Use::kNone || var->behind != Var::Use::kNone) Release();
    waiter.waiting = true;
    waiter.access.claim = &waiter;
    waiter.access.var = var.get();
    waiter.access.exclusive = true;
    if (Enter(waiter, {&waiter.access, 1})) GoAhead(waiter);
  }
  const auto done = [&] { return waiter.done.load(std::memory_order_acquire); };
  if (!SpinFor(done)) {
    auto lock = Lock();
    std::string hang;
    if (!Block(lock, done, tell ? &hang : nullptr)) {
      Leave(waiter.access, [this](Claim& claim) { GoAhead(claim); });
      lock.unlock();
      throw HangError(hang);
    }
  }
  for (const FencePtr& fence : waiter.fences) {
    while (!fence->WaitFor(watchdog_.period())) Watch(/*patient=*/!tell);
  }
  if (!waiter.error && tell) {
    waiter.error = waiter.late.Find();
    if (waiter.error) {
      const auto lock = Lock();
      failures_.TellLate(waiter.error);
    }
  }
  if (waiter.error) std::rethrow_exception(waiter.error);
}

void ThreadedState::WaitAll() {
  CheckOutside("WaitAll");
  SynchronizeStreams();
  std::exception_ptr error;
  {
    const auto lock = LockWhenIdle();
    error = failures_.TakeFirst();
  }
  if (error) std::rethrow_exception(error);
}

void ThreadedState::Recover() {
  CheckOutside("Recover");
  SynchronizeStreams();
  const auto lock = LockWhenIdle();
  failures_.Recover();
}

void ThreadedState::Stop() noexcept {
  if (!process_.IsHere()) return;  // nothing to be waited for, and whoever runs on keeps it
  const bool inside = current == this;
  if (!inside) SynchronizeStreams(/*patient=*/true);
  {
    const auto lock = inside ? Lock() : LockWhenIdle(/*patient=*/true);
    Release();
    stopping_ = true;
    for (auto& worker : workers_) {
      if (inside) worker->thread.detach();
      Signal(*worker);
    }
  }
  if (inside) return;
  for (auto& worker : workers_) worker->thread.join();
  LogUntoldError();
}

void ThreadedState::CheckOutside(const char* method) const {
  CheckProcess();
  if (current == this) {
    Throw("{} was called from inside an operation; it would wait for that operation", method);
  }
}

void ThreadedState::SynchronizeStreams(bool patient) {
  std::vector<Stream*> streams;
  {
    const auto lock = LockWhenIdle(patient);
    for (const auto& worker : workers_) {
      if (!HostAddressable(worker->stream->device())) streams.push_back(worker->stream.get());
    }
  }
  for (Stream* stream : streams) {
    while (!stream->WaitFor(watchdog_.period())) Watch(patient);
    const std::exception_ptr error = stream->Synchronize();
    const auto lock = Lock();
    failures_.NoteLate(error);
  }
}

std::unique_lock<std::mutex> ThreadedState::LockWhenIdle(bool patient) {
  const auto idle = [&] { return in_flight_.load(std::memory_order_acquire) == 0; };
  auto lock = Lock();
  Release();
  lock.unlock();
  SpinFor(idle);
  lock.lock();
  std::string hang;
  if (Block(lock, idle, patient ? nullptr : &hang)) return lock;
  lock.unlock();
  throw HangError(hang);
}

std::string ThreadedState::Hang(std::unique_lock<std::mutex>& lock) {
  bool news = false;
  std::string found = watchdog_.Look(workers_, &news);
  if (news) {
    lock.unlock();
    LogLine(LogLevel::kError, found);
    try {
      if (on_hang_) on_hang_(HangError(found));
    } catch (...) {  // what tells of it may not keep anybody from waiting
    }
    lock.lock();
  }
  return found;
}

void ThreadedState::Watch(bool patient) {
  auto lock = Lock();
  const std::string hang = Hang(lock);
  lock.unlock();
  if (!hang.empty() && !patient) throw HangError(hang);
}

void ThreadedState::LogUntoldError() noexcept {
  try {
    if (std::exception_ptr error = failures_.Untold()) std::rethrow_exception(error);
  } catch (const std::exception& error) {
    LogLine(LogLevel::kWarning, fmt::format("an engine ended with an error that nobody waited for: {}", error.what()));
  } catch (...) {  // nothing to say about an exception of a foreign type
  }
}

}  // namespace bindery
