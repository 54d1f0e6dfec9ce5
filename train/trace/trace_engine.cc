#include <utility>

#include "engine/wrapped_engine.h"
#include "train/trace/trace.h"

namespace bindery {
namespace {

// Adds a slice when it goes, however the operation ended.
class Recorded {
 public:
  Recorded(Trace* trace, const std::string& name, Device device, Lane lane)
      : trace_(trace), slice_{.name = name, .category = "operation", .device = device, .lane = lane} {
    slice_.begin = Trace::Now();
  }
  ~Recorded() {
    slice_.end = Trace::Now();
    trace_->Add(std::move(slice_));
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

 private:
  Trace* trace_;
  Trace::Slice slice_;
};

class TraceEngine final : public WrappedEngine {
 public:
  TraceEngine(std::shared_ptr<Engine> engine, std::shared_ptr<Trace> trace)
      : WrappedEngine(std::move(engine)), trace_(std::move(trace)) {}

 private:
  Operation Changed(Operation operation) override {
    if (!operation.run) return operation;  // which the engine refuses
    operation.run = [trace = trace_, name = operation.name, device = operation.device, lane = operation.lane,
                     run = std::move(operation.run)](const OpContext& context) {
      if (!trace->recording()) return run(context);
      const Recorded recorded(trace.get(), name, device, lane);
      run(context);
    };
    return operation;
  }

  const std::shared_ptr<Trace> trace_;
};

}  // namespace

std::shared_ptr<Engine> MakeTraceEngine(std::shared_ptr<Engine> engine, std::shared_ptr<Trace> trace) {
  return std::make_shared<TraceEngine>(std::move(engine), std::move(trace));
}

}  // namespace bindery
