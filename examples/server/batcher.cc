#include "examples/server/batcher.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <future>
#include <system_error>
#include <utility>

namespace bindery::server {
namespace {

// The rows of all inputs; throws DataError unless they have the same number of them, 1 to `most`.
int64_t SamplesOf(const HostTensorMap& inputs, int64_t most) {
  int64_t samples = -1;
  for (const auto& [name, value] : inputs) {
    if (value.shape().rank() == 0) Throw<DataError>("input \"{}\" has no batch axis", name);
    const int64_t rows = value.shape()[0];
    if (samples >= 0 && rows != samples) {
      Throw<DataError>("input \"{}\" has {} samples, the ones before have {}", name, rows, samples);
    }
    samples = rows;
  }
  if (samples < 1) throw DataError("a request without samples");
  if (samples > most) Throw<DataError>("a request of {} samples: at most {} are taken at once", samples, most);
  return samples;
}

}  // namespace

struct Batcher::Request {
  HostTensorMap inputs;
  int64_t samples;
  Clock::time_point arrived, deadline;
  std::promise<std::vector<HostTensor>> outputs;
};

int64_t RoundedBatch(int64_t samples, int64_t max_batch) {
  return std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(samples))), max_batch);
}

Batcher::Batcher(Run run, const BatcherOptions& options) : run_(std::move(run)), options_(options) {
  if (options_.max_batch < 1 || options_.workers < 1) {
    Throw("a batcher of {} samples and {} workers: expected 1 or more", options_.max_batch, options_.workers);
  }
  if (options_.queue < options_.max_batch) {
    Throw("a queue of {} samples: expected at least a batch, {}", options_.queue, options_.max_batch);
  }
  if (options_.max_delay.count() < 0 || options_.timeout.count() <= 0) {
    Throw("a delay of {} and a timeout of {} microseconds: expected 0 or more, and more than 0",
          options_.max_delay.count(), options_.timeout.count());
  }
  try {
    for (int i = 0; i < options_.workers; ++i) workers_.emplace_back([this] { Work(); });
  } catch (const std::system_error& error) {
    const size_t started = workers_.size();
    Shutdown();
    Throw("worker {} of {} cannot be started: {}", started + 1, options_.workers, error.what());
  }
}

Batcher::~Batcher() { Shutdown(); }

void Batcher::Shutdown() {
  {
    const std::lock_guard lock(mutex_);
    shut_down_ = true;
  }
  changed_.notify_all();
  const std::lock_guard lock(joining_);
  for (std::thread& worker : workers_) {
    if (worker.joinable()) worker.join();
  }
}

int64_t Batcher::queued() const {
  const std::lock_guard lock(mutex_);
  return queued_;
}

std::vector<HostTensor> Batcher::Predict(HostTensorMap inputs) {
  const Clock::time_point now = Clock::now();
  const int64_t samples = SamplesOf(inputs, options_.max_batch);
  const auto request = std::make_shared<Request>();
  request->inputs = std::move(inputs);
  request->samples = samples;
  request->arrived = now;
  request->deadline = now + options_.timeout;
  std::future<std::vector<HostTensor>> outputs = request->outputs.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (shut_down_) throw ShutdownError("shutting down");
    if (queued_ + samples > options_.queue) DropLate(now);  // their callers wait no more
    if (queued_ + samples > options_.queue) {
      Throw<OverloadError>("{} samples are waiting, {} more do not fit into the queue of {}", queued_, samples,
                           options_.queue);
    }
    queue_.push_back(request);
    queued_ += samples;
  }
  // All: the one that waits for a batch to fill and one that waits for work use the same condition.
  changed_.notify_all();
  if (outputs.wait_until(request->deadline) == std::future_status::timeout) {
    Throw<TimeoutError>("no result within {} ms", options_.timeout.count() / 1000.0);
  }
  return outputs.get();
}

void Batcher::Work() {
  while (true) {
    const std::vector<RequestPtr> batch = TakeBatch();
    if (batch.empty()) return;
    RunBatch(batch);
  }
}

// Called with the lock.
void Batcher::DropLate(Clock::time_point now) {
  std::erase_if(queue_, [&](const RequestPtr& request) {
    const bool late = request->deadline <= now;
    if (late) queued_ -= request->samples;
    return late;
  });
}

std::vector<Batcher::RequestPtr> Batcher::TakeBatch() {
  std::unique_lock lock(mutex_);
  while (true) {
    DropLate(Clock::now());
    if (queue_.empty()) {
      if (shut_down_) return {};
      changed_.wait(lock);
      continue;
    }
    const Clock::time_point full_time = queue_.front()->arrived + options_.max_delay;
    if (queued_ < options_.max_batch && !shut_down_ && Clock::now() < full_time) {
      changed_.wait_until(lock, full_time);
      continue;
    }
    std::vector<RequestPtr> batch;
    int64_t samples = 0;
    while (!queue_.empty() && samples + queue_.front()->samples <= options_.max_batch) {
      samples += queue_.front()->samples;
      batch.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    queued_ -= samples;
    return batch;
  }
}

std::vector<HostTensor> Batcher::RunRounded(const HostTensorMap& inputs, int64_t samples) const {
  const int64_t missing = RoundedBatch(samples, options_.max_batch) - samples;
  std::vector<HostTensor> outputs;
  if (missing == 0) {
    outputs = run_(inputs);
  } else {
    HostTensorMap filled;
    for (const auto& [name, value] : inputs) {
      std::vector<HostTensor> parts = {value};
      parts.insert(parts.end(), static_cast<size_t>(missing), value.Slice(0, samples - 1, samples));
      filled.emplace(name, Concatenate(parts, 0));
    }
    outputs = run_(filled);
  }
  for (const HostTensor& output : outputs) {
    if (output.shape().rank() > 0 && output.shape()[0] == samples + missing) continue;
    Throw("an output of shape {} for a batch of {} samples", output.shape(), samples + missing);
  }
  return outputs;
}

void Batcher::RunBatch(const std::vector<RequestPtr>& batch) {
  int64_t samples = 0;
  for (const RequestPtr& request : batch) samples += request->samples;
  std::vector<HostTensor> outputs;
  std::vector<std::vector<HostTensor>> shares(batch.size());
  try {
    HostTensorMap inputs;
    for (const auto& [name, value] : batch[0]->inputs) {
      std::vector<HostTensor> parts;
      for (const RequestPtr& request : batch) {
        const auto found = request->inputs.find(name);
        if (found == request->inputs.end()) Throw<DataError>("input \"{}\" is missing", name);
        parts.push_back(found->second);
      }
      inputs.emplace(name, parts.size() == 1 ? std::move(parts[0]) : Concatenate(parts, 0));
    }
    outputs = RunRounded(inputs, samples);
    int64_t first = 0;
    for (size_t i = 0; i < batch.size(); ++i) {
      for (const HostTensor& output : outputs) {
        shares[i].push_back(output.Slice(0, first, first + batch[i]->samples));
      }
      first += batch[i]->samples;
    }
  } catch (...) {
    if (batch.size() == 1) {
      batch[0]->outputs.set_exception(std::current_exception());
    } else {
      for (const RequestPtr& request : batch) RunBatch({request});
    }
    return;
  }
  if (options_.on_batch) options_.on_batch(samples);
  for (size_t i = 0; i < batch.size(); ++i) batch[i]->outputs.set_value(std::move(shares[i]));
}

}  // namespace bindery::server
