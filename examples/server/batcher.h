// Batcher: puts requests of many threads together, so that a model computes them as few, larger batches.
//
//   Batcher batcher([&](const HostTensorMap& batch) { return predictor.Predict(batch); }, {.max_batch = 32});
//   std::vector<HostTensor> outputs = batcher.Predict({{"data", one_image}});   // from any thread; waits
//
// Requests wait in a queue, in order. A worker that is free takes those at its front: at once if they fill a batch,
// or else when the oldest has waited `max_delay`. It runs them as one batch and hands each its rows. The axis 0 of all
// inputs and outputs is the batch. Extents of batches are those of RoundedBatch only, so what a model keeps for each
// shape stays bounded; missing rows are copies of the last sample, whose results nobody sees.
//
// A batch that throws is run again request by request: only who asked for what cannot be computed gets the error.
//
// Thread safe. No HTTP here.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "bindery/bindery.h"

namespace bindery::server {

// The queue has no room: come back later.
class OverloadError final : public Error {
 public:
  explicit OverloadError(const std::string& message) : Error("OverloadError", message) {}
};
// The result did not come within the limit of time.
class TimeoutError final : public Error {
 public:
  explicit TimeoutError(const std::string& message) : Error("TimeoutError", message) {}
};
// The batcher takes no more requests.
class ShutdownError final : public Error {
 public:
  explicit ShutdownError(const std::string& message) : Error("ShutdownError", message) {}
};

struct BatcherOptions {
  int64_t max_batch = 32;                                              // samples; also the most of one request
  std::chrono::microseconds max_delay = std::chrono::milliseconds(1);  // that a request waits for others
  int64_t queue = 128;  // samples that wait, at most; those that a worker has taken do not count. At least max_batch
  std::chrono::microseconds timeout = std::chrono::seconds(10);  // from Predict's call to its result
  int workers = 1;                                               // batches that run at once
  // Called by workers after each run, with the samples asked for, copies left out. Must not throw.
  std::function<void(int64_t samples)> on_batch = {};
};

// The extent that a batch of so many samples runs with: the next power of two, or `max_batch` if that is less.
int64_t RoundedBatch(int64_t samples, int64_t max_batch);

class Batcher {
 public:
  // Outputs for a batch, each of as many rows. Called by several threads at once, with at most max_batch rows.
  using Run = std::function<std::vector<HostTensor>(const HostTensorMap& batch)>;

  // Throws Error for options that make no sense.
  Batcher(Run run, const BatcherOptions& options);
  ~Batcher();  // as Shutdown
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  // Inputs of the same names and sample shapes in all requests, 1 to max_batch rows each. Throws DataError for other
  // numbers of rows, OverloadError at once, TimeoutError, ShutdownError, and what `run` threw.
  std::vector<HostTensor> Predict(HostTensorMap inputs);

  // Takes no more requests, computes those that wait, and ends the workers. May be called again.
  void Shutdown();

  int64_t queued() const;  // samples that wait
  const BatcherOptions& options() const { return options_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Request;
  using RequestPtr = std::shared_ptr<Request>;

  void Work();
  std::vector<RequestPtr> TakeBatch();  // waits for one; empty: shut down
  void DropLate(Clock::time_point now);
  void RunBatch(const std::vector<RequestPtr>& batch);
  std::vector<HostTensor> RunRounded(const HostTensorMap& inputs, int64_t samples) const;

  const Run run_;
  const BatcherOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // for workers
  std::deque<RequestPtr> queue_;
  int64_t queued_ = 0;  // samples in queue_
  bool shut_down_ = false;
  std::mutex joining_;
  std::vector<std::thread> workers_;
};

}  // namespace bindery::server
