#include "examples/server/batcher.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

#include "base/error.h"

namespace bindery::server {
namespace {

// Of all inputs, along axis 0. Throws DataError.
int64_t SamplesOf(const HostTensorMap& inputs, int64_t most) {
  int64_t samples = -1;
  for (const auto& [name, tensor] : inputs) {
    const int64_t own = tensor.shape().rank() == 0 ? 0 : tensor.shape()[0];
    if (own < 1) Throw<DataError>("\"{}\" has no samples: its shape is {}", name, tensor.shape());
    if (samples >= 0 && own != samples) {
      Throw<DataError>("\"{}\" has {} samples, the inputs before it {}", name, own, samples);
    }
    samples = own;
  }
  if (samples < 0) Throw<DataError>("there are no inputs");
  if (samples > most) Throw<DataError>("{} samples are more than the {} of a batch", samples, most);
  return samples;
}

bool MayJoin(const HostTensorMap& a, const HostTensorMap& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    const Shape &left = x.second.shape(), &right = y.second.shape();
    return x.first == y.first && x.second.dtype() == y.second.dtype() && left.rank() == right.rank() &&
           std::ranges::equal(left.dims().subspan(1), right.dims().subspan(1));
  });
}

}  // namespace

struct Batcher::Request {
  HostTensorMap inputs;
  int64_t samples = 0;
  Clock::time_point arrived, limit;

  std::mutex mutex = {};
  std::condition_variable finished = {};
  bool is_done = false;
  Outputs outputs = {};
  std::exception_ptr error = nullptr;
};

Batcher::Batcher(Predict predict, const BatcherOptions& options, OnBatch on_batch)
    : predict_(std::move(predict)), options_(options), on_batch_(std::move(on_batch)) {
  if (options.max_batch < 1) Throw("a batch has at least 1 sample, got {}", options.max_batch);
  if (options.max_queued < options.max_batch) {
    Throw("the queue takes at least one batch of {} samples, got {}", options.max_batch, options.max_queued);
  }
  if (options.max_delay.count() < 0) Throw("the delay is at least 0, got {} us", options.max_delay.count());
  if (options.workers < 1) Throw("there is at least 1 worker, got {}", options.workers);
  for (int i = 0; i < options.workers; ++i) workers_.emplace_back([this] { Work(); });
}

Batcher::~Batcher() { Stop(); }

Batcher::Outputs Batcher::Run(HostTensorMap inputs, std::chrono::milliseconds limit) {
  const int64_t samples = SamplesOf(inputs, options_.max_batch);
  const auto request = std::make_shared<Request>();
  request->inputs = std::move(inputs);
  request->samples = samples;
  request->arrived = Clock::now();
  request->limit = request->arrived + limit;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) throw StoppedError("the server is shutting down");
    if (queued_ + samples > options_.max_queued) {
      throw OverloadedError(fmt::format("{} samples wait already, {} at most", queued_, options_.max_queued));
    }
    queue_.push_back(request);
    queued_ += samples;
  }
  arrived_.notify_one();
  std::unique_lock lock(request->mutex);
  if (!request->finished.wait_until(lock, request->limit, [&] { return request->is_done; })) {
    throw TimeoutError(fmt::format("no answer in {} ms", limit.count()));
  }
  if (request->error) std::rethrow_exception(request->error);
  return std::move(request->outputs);
}

void Batcher::Hurry() {
  {
    const std::lock_guard lock(mutex_);
    hurries_ = true;
  }
  arrived_.notify_all();
}

void Batcher::Stop() {
  Hurry();
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  arrived_.notify_all();
  const std::lock_guard lock(stopping_);
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

int64_t Batcher::queued() const {
  const std::lock_guard lock(mutex_);
  return queued_;
}

void Batcher::Work() {
  for (;;) {
    const std::vector<RequestPtr> requests = Next();
    if (requests.empty()) return;
    Compute(requests);
  }
}

// Those that make the next batch; none: stopped, and nothing waits.
std::vector<Batcher::RequestPtr> Batcher::Next() {
  std::vector<RequestPtr> taken;
  int64_t samples = 0;
  std::unique_lock lock(mutex_);
  // What can go into the batch and has time left. Where the next one does not fit, the batch is full.
  const auto take = [&] {
    for (auto it = queue_.begin(); it != queue_.end();) {
      const RequestPtr request = *it;
      const bool is_late = request->limit <= Clock::now();
      if (!is_late && !taken.empty() && !MayJoin(taken[0]->inputs, request->inputs)) {
        ++it;
        continue;
      }
      if (!is_late && samples + request->samples > options_.max_batch) return true;
      it = queue_.erase(it);
      queued_ -= request->samples;
      if (is_late) continue;  // its thread knows by itself
      samples += request->samples;
      taken.push_back(request);
    }
    return samples == options_.max_batch;
  };
  bool is_full = false;
  for (;;) {
    arrived_.wait(lock, [&] { return stopped_ || !queue_.empty(); });
    is_full = take();
    if (!taken.empty()) break;
    if (stopped_ && queue_.empty()) return taken;
  }
  const Clock::time_point until = taken[0]->arrived + options_.max_delay;
  while (!is_full && !hurries_ && arrived_.wait_until(lock, until) != std::cv_status::timeout) is_full = take();
  if (!queue_.empty()) arrived_.notify_one();  // to whom a request is left that cannot come along
  return taken;
}

void Batcher::Compute(const std::vector<RequestPtr>& requests) {
  try {
    HostTensorMap joined;
    int64_t samples = 0;
    for (const RequestPtr& request : requests) samples += request->samples;
    for (const auto& [name, first] : requests[0]->inputs) {
      std::vector<HostTensor> parts;
      for (const RequestPtr& request : requests) parts.push_back(request->inputs.at(name));
      joined[name] = parts.size() == 1 ? std::move(parts[0]) : Concatenate(parts, 0);
    }
    const Outputs all = ComputeRows(joined, samples);
    int64_t begin = 0;
    for (const RequestPtr& request : requests) {
      Outputs own;
      for (const HostTensor& output : all) own.push_back(output.Slice(0, begin, begin + request->samples));
      begin += request->samples;
      Finish(request.get(), std::move(own), nullptr);
    }
  } catch (...) {
    if (requests.size() == 1) {
      Finish(requests[0].get(), {}, std::current_exception());
    } else {
      for (const RequestPtr& request : requests) Compute({request});
    }
  }
}

// Of a batch that is filled up; the outputs' rows of these samples.
Batcher::Outputs Batcher::ComputeRows(const HostTensorMap& inputs, int64_t samples) {
  const int64_t computed =
      std::min(options_.max_batch, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(samples))));
  HostTensorMap filled;
  if (computed > samples) {
    for (const auto& [name, tensor] : inputs) {
      std::vector<HostTensor> parts = {tensor};
      parts.resize(static_cast<size_t>(computed - samples) + 1, tensor.Slice(0, samples - 1, samples));
      filled[name] = Concatenate(parts, 0);
    }
  }
  Outputs outputs = predict_(computed > samples ? filled : inputs);
  for (const HostTensor& output : outputs) {
    if (output.shape().rank() == 0 || output.shape()[0] != computed) {
      Throw<ModelError>("an output of shape {} has no row for each of {} samples", output.shape(), computed);
    }
  }
  if (on_batch_) on_batch_(samples, computed);
  return outputs;
}

void Batcher::Finish(Request* request, Outputs outputs, std::exception_ptr error) {
  {
    const std::lock_guard lock(request->mutex);
    request->outputs = std::move(outputs);
    request->error = std::move(error);
    request->is_done = true;
  }
  request->finished.notify_one();
}

}  // namespace bindery::server
