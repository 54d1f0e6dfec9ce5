#include "train/checkpoint/background_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace bindery {
namespace {

void LogLost(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    LogLine(LogLevel::kError, fmt::format("a checkpoint was not written: {}", e.what()));
  }
}

// How many are being written in this process. exit() joins no thread, and destroys what they use under their feet: it
// waits for them instead.
class WritesUnderWay {
 public:
  // Never destroyed: the last of them is over while the process ends.
  static WritesUnderWay& All() {
    static WritesUnderWay* const all = new WritesUnderWay;
    return *all;
  }
  void Begin() {
    [[maybe_unused]] static const int registered = std::atexit([] { All().Await(); });
    const std::lock_guard lock(mutex_);
    if (process_ != ::getpid()) count_ = 0;  // a fork has none of its parent's threads
    process_ = ::getpid();
    ++count_;
  }
  // `error`: what it failed by, or none.
  void End(const std::exception_ptr& error) {
    const std::lock_guard lock(mutex_);
    if (error && awaited_) LogLost(error);  // nobody takes it any more
    if (--count_ == 0) over_.notify_all();
  }
  static thread_local bool is_mine;  // the calling thread writes

 private:
  void Await() {
    if (is_mine || process_ != ::getpid()) return;  // a log callback that ends the process, a fork
    std::unique_lock lock(mutex_);
    awaited_ = true;
    over_.wait(lock, [&] { return count_ == 0; });
  }

  std::mutex mutex_;
  std::condition_variable over_;
  int count_ = 0;
  bool awaited_ = false;
  pid_t process_ = ::getpid();
};
thread_local bool WritesUnderWay::is_mine = false;

}  // namespace

BackgroundWriter::~BackgroundWriter() {
  try {
    TakeWhenDone();
  } catch (...) {
    LogLost(std::current_exception());
  }
}

void BackgroundWriter::Write() noexcept {
  try {
    path_ = store_.Save(checkpoint_);
  } catch (...) {
    error_ = std::current_exception();
  }
  checkpoint_ = {};  // its memory is free as soon as it is written
  WritesUnderWay::All().End(error_);
  done_.store(true, std::memory_order_release);
}

void BackgroundWriter::Start(Checkpoint checkpoint) {
  Check(!started_, "a checkpoint is written at a time");
  started_ = true;
  done_.store(false, std::memory_order_relaxed);
  checkpoint_ = std::move(checkpoint);
  WritesUnderWay::All().Begin();
  try {
    thread_ = std::jthread([this] {
      WritesUnderWay::is_mine = true;
      Write();
    });
  } catch (const std::system_error&) {  // no thread can be had
    Write();
  }
}

std::optional<std::string> BackgroundWriter::Take() {
  if (!started_ || !done_.load(std::memory_order_acquire)) return std::nullopt;
  return TakeWhenDone();
}

std::optional<std::string> BackgroundWriter::TakeWhenDone() {
  if (!started_) return std::nullopt;
  if (thread_.joinable()) thread_.join();
  started_ = false;
  if (const std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
  return std::exchange(path_, {});
}

}  // namespace bindery
