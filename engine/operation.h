// What both engines share: variables, operations made ready to run, and the rules for errors. Private to engine/.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace bindery {

struct PendingAccess;  // of the threaded engine

// Stands for an engine. Whatever an engine makes holds its token, so a token's address is never used again while
// something could be mistaken for another engine's.
using EngineToken = std::shared_ptr<const void>;

class Var {
 public:
  explicit Var(EngineToken owner) : owner(std::move(owner)) {}

  const EngineToken owner;
  // The failure, if `error_round` is the engine's current round (see Failures). Changed only by an operation that has
  // the variable for itself.
  std::exception_ptr error;
  uint64_t error_round = 0;
  // Work on asynchronous devices that may still run: that of the last operation that had the variable for itself, and
  // of those that shared it since, one a stream. `creator`: the last operation that wrote it; if that fails, it fails,
  // provided that `creator_round` is the engine's current round. Changed like `error`.
  FencePtr exclusive, creator;
  std::vector<FencePtr> shared;
  // Of operations that updated it since: one that fails by itself may have stopped half-way, so it fails, too.
  std::vector<FencePtr> updaters;
  uint64_t creator_round = 0;  // of the creator and the updaters
  uint64_t changes = 0;        // operations that were pushed to write or update it
  // Pending accesses in push order (threaded engine, under its mutex).
  PendingAccess* first = nullptr;
  PendingAccess* last = nullptr;
  // How operations that are being joined use it, and those that come behind them (threaded engine, under its mutex).
  enum class Use : uint8_t { kNone, kShared, kExclusive };
  Use joined = Use::kNone, behind = Use::kNone;
};

// How an operation uses one variable: the union of what its lists say about it.
struct DeclaredAccess {
  Var* var = nullptr;
  bool reads = false;      // in `reads` or `updates`: its failure keeps the operation from running
  bool creates = false;    // in `writes`: carries the operation's error
  bool exclusive = false;  // in `writes` or `updates`: nobody else may use it meanwhile
};

// An operation with these accesses has been pushed.
inline void CountChanges(std::span<const DeclaredAccess> accesses) {
  for (const DeclaredAccess& access : accesses) access.var->changes += access.exclusive;
}

class PreparedOperation {
 public:
  // Throws Error if a variable is null or of another engine, or if there is nothing to run; DeviceError for a negative
  // device index.
  PreparedOperation(Operation operation, EngineToken owner);
  virtual ~PreparedOperation() = default;

  // Runs the function; returns what it threw, with the operation's name.
  std::exception_ptr Call(Stream& stream, const void* payload) const noexcept;

  const EngineToken owner;
  Operation operation;                   // keeps the variables alive
  std::vector<DeclaredAccess> accesses;  // each variable once, in the order of the lists
};

// Throws Error unless `prepared` was made by the engine `owner`; the same for a variable.
void CheckOwner(const PreparedPtr& prepared, const EngineToken& owner);
void CheckOwner(const VarPtr& var, const EngineToken& owner);

// The exception being handled, with `operation "name" failed: ` before its message. Our flat types keep their type; any
// other exception stays the object it is, and the name is logged beside its message.
std::exception_ptr CurrentErrorNamed(const std::string& name) noexcept;

// The failures of one engine's variables. Recover() starts a new round; failures of earlier rounds do not count. Not
// thread safe: the engine's lock protects it.
class Failures {
 public:
  // The variable's error or null, for a caller who is told of it now.
  std::exception_ptr Tell(const Var& var) {
    std::exception_ptr error = var.error_round == round_ ? var.error : nullptr;
    if (error == untold_) untold_ = nullptr;
    return error;
  }

  // The error that keeps an operation from running: of the first failed variable that it reads or updates, or null.
  std::exception_ptr Inherited(std::span<const DeclaredAccess> accesses) const;

  // After a run: what the operation creates is whole, or carries `error`. `thrown`: the error came up here and now;
  // `half_way`: in work on an asynchronous device, so that what it updates carries it, too.
  void Settle(std::span<const DeclaredAccess> accesses, const std::exception_ptr& error, bool thrown,
              bool half_way = false);

  // What the work of an operation with these accesses comes after.
  void AppendUses(std::span<const DeclaredAccess> accesses, std::vector<FenceUse>* uses) const;
  // After an operation that was not skipped: the fence of its work (null: over already) is in its variables.
  void SetFence(std::span<const DeclaredAccess> accesses, const FencePtr& fence);
  // The fences by which a variable that is whole so far may still fail.
  struct LateErrors {
    FencePtr creator;
    std::vector<FencePtr> updaters;
    std::exception_ptr Find() const;  // once they are done
  };
  LateErrors LateErrorsOf(const Var& var) const {
    return var.creator_round == round_ ? LateErrors{var.creator, var.updaters} : LateErrors{};
  }
  // See Engine::Version.
  std::optional<uint64_t> VersionOf(const Var& var) const;
  // An error that showed at a fence: found by the stream, or by a caller who is told of it now.
  void NoteLate(const std::exception_ptr& error);
  void TellLate(const std::exception_ptr& error) {
    told_late_ = error;
    if (untold_ == error) untold_ = nullptr;
  }

  std::exception_ptr TakeFirst();                        // the first error thrown since the last TakeFirst or Recover
  std::exception_ptr Untold() const { return untold_; }  // one since then that no caller was told of
  void Recover();

 private:
  uint64_t round_ = 1;
  std::exception_ptr first_;
  std::exception_ptr untold_, told_late_;
};

}  // namespace bindery
