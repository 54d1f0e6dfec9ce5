// The stream of a simulated device: a thread that does, later, what operations enqueued. Private to engine/sim and
// executor/kernels/sim.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/sim/device.h"
#include "engine/stream.h"

namespace bindery::sim {

class SimStream final : public Stream {
 public:
  SimStream(Device device, Lane lane);
  ~SimStream() override;

  std::exception_ptr Begin(const std::string& operation, std::span<const FenceUse> uses) override;
  FencePtr End(std::shared_ptr<const void> operation, std::shared_ptr<const void> payload) override;
  std::exception_ptr Synchronize() noexcept override;
  bool WaitFor(std::chrono::milliseconds time) const noexcept override;
  Work Doing() const override;

  // Between Begin and End: `work` will run on the stream's thread. A device address is followed through View. `what`
  // names it in errors; empty: the operation alone does.
  void Enqueue(std::function<void()> work, std::string what = {});
  char* View(const void* address) const { return device_state_.memory.View(address); }

 private:
  class Batch;  // what one operation enqueued: its fence
  void Main();
  void Say(std::string what);  // what it is doing
  void Forget();               // lets go of what finished operations kept; not on the stream's own thread

  SimulatedDevice& device_state_;
  std::shared_ptr<Batch> open_;  // between Begin and End
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<std::shared_ptr<Batch>> queue_;
  std::vector<std::shared_ptr<const void>> finished_;  // kept by batches that are over
  bool busy_ = false, stopping_ = false;
  Work doing_;
  std::exception_ptr first_error_;
  std::thread thread_;
};

// A stream of this device. Throws Error for another kind.
SimStream& SimStreamOf(Stream& stream);

}  // namespace bindery::sim
