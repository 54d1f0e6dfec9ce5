#include "train/checkpoint/background_writer.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace bindery {

BackgroundWriter::~BackgroundWriter() {
  try {
    TakeWhenDone();
  } catch (const std::exception& e) {
    LogLine(LogLevel::kError, fmt::format("a checkpoint was not written: {}", e.what()));
  }
}

void BackgroundWriter::Write() noexcept {
  try {
    path_ = store_.Save(checkpoint_);
  } catch (...) {
    error_ = std::current_exception();
  }
  checkpoint_ = {};  // its memory is free as soon as it is written
  done_.store(true, std::memory_order_release);
}

void BackgroundWriter::Start(Checkpoint checkpoint) {
  Check(!started_, "a checkpoint is written at a time");
  started_ = true;
  done_.store(false, std::memory_order_relaxed);
  checkpoint_ = std::move(checkpoint);
  try {
    thread_ = std::jthread([this] { Write(); });
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
