// An engine that counts what it runs: as a threaded one, and goes to groups in its place.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "engine/engine.h"
#include "engine/wrapped_engine.h"

namespace bindery {

class CountingEngine final : public WrappedEngine {
 public:
  CountingEngine() : WrappedEngine(MakeThreadedEngine()) {}

  const char* name() const override { return "counting"; }

  // Operations that ran so far: whose names begin so, and on devices of a kind. Waits for all that were pushed.
  int Runs(std::string_view begin) {
    WaitAll();
    const std::lock_guard lock(counts_->mutex);
    int runs = 0;
    for (const auto& [name, count] : counts_->by_name) runs += name.starts_with(begin) ? count : 0;
    return runs;
  }
  int RunsOn(DeviceKind kind) {
    WaitAll();
    const std::lock_guard lock(counts_->mutex);
    return counts_->by_kind[kind];
  }

 private:
  struct Counts {
    std::mutex mutex;
    std::map<std::string, int> by_name;
    std::map<DeviceKind, int> by_kind;
  };

  Operation Changed(Operation operation) override {
    operation.run = [counts = counts_, name = operation.name, kind = operation.device.kind,
                     run = std::move(operation.run)](const OpContext& context) {
      {
        const std::lock_guard lock(counts->mutex);
        ++counts->by_name[name];
        ++counts->by_kind[kind];
      }
      run(context);
    };
    return operation;
  }

  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace bindery
