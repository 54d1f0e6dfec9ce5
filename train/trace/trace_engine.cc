#include <utility>

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

class TraceEngine final : public Engine {
 public:
  TraceEngine(std::shared_ptr<Engine> engine, std::shared_ptr<Trace> trace)
      : engine_(std::move(engine)), trace_(std::move(trace)) {}

  VarPtr NewVar() override { return engine_->NewVar(); }
  void Push(Operation operation) override { engine_->Push(Traced(std::move(operation))); }
  PreparedPtr Prepare(Operation operation) override { return engine_->Prepare(Traced(std::move(operation))); }
  void Push(const PreparedPtr& prepared, std::shared_ptr<const void> payload) override {
    engine_->Push(prepared, std::move(payload));
  }
  void Wait(const VarPtr& var) override { engine_->Wait(var); }
  void WaitIdle(const VarPtr& var) override { engine_->WaitIdle(var); }
  void WaitAll() override { engine_->WaitAll(); }
  void Recover() override { engine_->Recover(); }
  std::optional<uint64_t> Version(const VarPtr& var) override { return engine_->Version(var); }
  Stream& StreamOf(Device device, Lane lane) override { return engine_->StreamOf(device, lane); }
  const char* name() const override { return engine_->name(); }
  bool Join(Device device) override { return engine_->Join(device); }
  void Part() noexcept override { engine_->Part(); }

 private:
  Operation Traced(Operation operation) const {
    if (!operation.run) return operation;  // which the engine refuses
    operation.run = [trace = trace_, name = operation.name, device = operation.device, lane = operation.lane,
                     run = std::move(operation.run)](const OpContext& context) {
      if (!trace->recording()) return run(context);
      const Recorded recorded(trace.get(), name, device, lane);
      run(context);
    };
    return operation;
  }

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<Trace> trace_;
};

}  // namespace

std::shared_ptr<Engine> MakeTraceEngine(std::shared_ptr<Engine> engine, std::shared_ptr<Trace> trace) {
  return std::make_shared<TraceEngine>(std::move(engine), std::move(trace));
}

}  // namespace bindery
