// An engine that passes everything on to another, and may change operations on their way: to measure or count what runs.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "engine/engine.h"

namespace bindery {

// Operations may run as long as the engine behind it lives, which others may have, too: what they hold of this one must
// be shared with them.
class WrappedEngine : public Engine {
 public:
  explicit WrappedEngine(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  VarPtr NewVar() override { return engine_->NewVar(); }
  void Push(Operation operation) override { engine_->Push(Changed(std::move(operation))); }
  PreparedPtr Prepare(Operation operation) override { return engine_->Prepare(Changed(std::move(operation))); }
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
  // What is pushed or prepared in its place.
  virtual Operation Changed(Operation operation) = 0;

  const std::shared_ptr<Engine> engine_;
};

}  // namespace bindery
