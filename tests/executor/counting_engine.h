// An engine that counts what it runs: as a threaded one, and goes to groups in its place.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace bindery {

class CountingEngine final : public Engine {
 public:
  VarPtr NewVar() override { return engine_->NewVar(); }
  void Push(Operation operation) override { engine_->Push(Counted(std::move(operation))); }
  PreparedPtr Prepare(Operation operation) override { return engine_->Prepare(Counted(std::move(operation))); }
  void Push(const PreparedPtr& prepared, std::shared_ptr<const void> payload) override {
    engine_->Push(prepared, std::move(payload));
  }
  void Wait(const VarPtr& var) override { engine_->Wait(var); }
  void WaitIdle(const VarPtr& var) override { engine_->WaitIdle(var); }
  void WaitAll() override { engine_->WaitAll(); }
  void Recover() override { engine_->Recover(); }
  std::optional<uint64_t> Version(const VarPtr& var) override { return engine_->Version(var); }
  Stream& StreamOf(Device device, Lane lane) override { return engine_->StreamOf(device, lane); }
  const char* name() const override { return "counting"; }
  bool Join(Device device) override { return engine_->Join(device); }
  void Part() noexcept override { engine_->Part(); }

  // Operations that ran so far: whose names begin so, and on devices of a kind. Waits for all that were pushed.
  int Runs(std::string_view begin) {
    engine_->WaitAll();
    const std::lock_guard lock(mutex_);
    int runs = 0;
    for (const auto& [name, count] : by_name_) runs += name.starts_with(begin) ? count : 0;
    return runs;
  }
  int RunsOn(DeviceKind kind) {
    engine_->WaitAll();
    const std::lock_guard lock(mutex_);
    return by_kind_[kind];
  }

 private:
  Operation Counted(Operation operation) {
    operation.run = [this, name = operation.name, kind = operation.device.kind,
                     run = std::move(operation.run)](const OpContext& context) {
      {
        const std::lock_guard lock(mutex_);
        ++by_name_[name];
        ++by_kind_[kind];
      }
      run(context);
    };
    return operation;
  }
  std::mutex mutex_;
  std::map<std::string, int> by_name_;
  std::map<DeviceKind, int> by_kind_;
  const std::shared_ptr<Engine> engine_ = MakeThreadedEngine();  // the last member: ends before the others
};

}  // namespace bindery
