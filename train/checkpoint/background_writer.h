// Writes checkpoints to a store in a thread of its own, one at a time, while training goes on. A process that ends by
// exit(), or by main's return, waits for what is being written; errors are logged then. Private to train/.
// Thread safety: one thread at a time, beside the writer's own.
#pragma once

#include <atomic>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "train/checkpoint/checkpoint.h"

namespace bindery {

class BackgroundWriter {
 public:
  explicit BackgroundWriter(CheckpointStore store) : store_(std::move(store)) {}
  // Waits until what was handed over is written. Its error, if nobody took it, is logged.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;

  const CheckpointStore& store() const { return store_; }

  // Nothing must be left to take: call TakeWhenDone before, and before the checkpoint is copied, so that there are never
  // two copies.
  void Start(Checkpoint checkpoint);
  // The path of the checkpoint that was handed over last, once it is written; no value while it is not, or if it was
  // taken before. Throws what its writing failed by, once.
  std::optional<std::string> Take();
  // The same, but waits for it.
  std::optional<std::string> TakeWhenDone();

 private:
  void Write() noexcept;

  CheckpointStore store_;
  // Of the write under way or over: its thread's own until `done_`.
  Checkpoint checkpoint_;
  std::string path_;
  std::exception_ptr error_;
  std::atomic<bool> done_{false};
  bool started_ = false;
  std::jthread thread_;  // last: joins before the rest goes
};

}  // namespace bindery
