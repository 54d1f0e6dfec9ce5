// Batcher: requests of many threads, computed together.
//
// Requests wait in a queue. A worker takes the oldest one and those behind it whose inputs have the same names, types
// and extents but for the samples, until `max_batch` samples are together or the oldest has waited for `max_delay`;
// computes them as one batch, and gives each its rows of the outputs. Batches are filled up to the next power of two (or
// `max_batch`) with copies of the last sample, so that no more shapes are bound than there are powers of two.
//
// A batch that fails is computed again request by request: an error reaches only whom it belongs to.
//
// Thread safe. What a request waits for at most is its own time limit: behind it nothing of it is computed any more,
// unless it has begun.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/host_tensor.h"

namespace bindery::server {

// The queue is full: come again later.
class OverloadedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// The time limit has passed.
class TimeoutError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// The batcher takes no more requests.
class StoppedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct BatcherOptions {
  int64_t max_batch = 32;                  // samples, at least 1
  std::chrono::microseconds max_delay{0};  // that a sample waits for others while a worker is free
  int64_t max_queued = 256;                // samples that wait, at least max_batch
  int workers = 1;                         // batches that are computed at once, at least 1
};

class Batcher {
 public:
  using Outputs = std::vector<HostTensor>;
  // Computes a batch, of 1 to max_batch samples along axis 0 of each input, from several threads at once: outputs with
  // as many samples along axis 0.
  using Predict = std::function<Outputs(const HostTensorMap& inputs)>;
  // Of each batch that was computed: how many samples were asked for, and how many computed. From workers.
  using OnBatch = std::function<void(int64_t samples, int64_t computed)>;
  using Clock = std::chrono::steady_clock;

  // Throws Error for options out of their ranges.
  Batcher(Predict predict, const BatcherOptions& options, OnBatch on_batch = nullptr);
  // As Stop.
  ~Batcher();
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  // Waits for the outputs. Throws OverloadedError at once, TimeoutError, StoppedError; DataError for inputs without
  // samples, of different numbers of them, or of more than max_batch; what `predict` threw.
  Outputs Run(HostTensorMap inputs, std::chrono::milliseconds limit);

  // From now on nothing waits for others.
  void Hurry();
  // No more requests are taken; those that wait are computed. Returns when all have been.
  void Stop();

  int64_t queued() const;  // samples that wait

 private:
  struct Request;
  using RequestPtr = std::shared_ptr<Request>;

  void Work();
  std::vector<RequestPtr> Next();
  void Compute(const std::vector<RequestPtr>& requests);
  Outputs ComputeRows(const HostTensorMap& inputs, int64_t samples);
  static void Finish(Request* request, Outputs outputs, std::exception_ptr error);

  const Predict predict_;
  const BatcherOptions options_;
  const OnBatch on_batch_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<RequestPtr> queue_;
  int64_t queued_ = 0;
  bool hurries_ = false, stopped_ = false;
  std::mutex stopping_;
  std::vector<std::thread> workers_;
};

}  // namespace bindery::server
