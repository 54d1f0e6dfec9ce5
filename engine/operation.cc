#include "engine/operation.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace bindery {
namespace {

// Each variable once, with the union of what the lists say, in the order of its first mention.
std::vector<DeclaredAccess> MergeAccesses(const Operation& operation) {
  struct Mention {
    DeclaredAccess access;
    size_t position;
  };
  std::vector<Mention> mentions;
  mentions.reserve(operation.reads.size() + operation.updates.size() + operation.writes.size());
  const auto mention = [&](const std::vector<VarPtr>& vars, DeclaredAccess access) {
    for (const VarPtr& var : vars) {
      access.var = var.get();
      mentions.push_back({access, mentions.size()});
    }
  };
  mention(operation.reads, {.reads = true});
  mention(operation.updates, {.reads = true, .exclusive = true});
  mention(operation.writes, {.creates = true, .exclusive = true});

  std::sort(mentions.begin(), mentions.end(), [](const Mention& a, const Mention& b) {
    return std::less<Var*>()(a.access.var, b.access.var) || (a.access.var == b.access.var && a.position < b.position);
  });
  size_t kept = 0;
  for (const Mention& m : mentions) {
    if (kept > 0 && mentions[kept - 1].access.var == m.access.var) {
      DeclaredAccess& access = mentions[kept - 1].access;
      access.reads |= m.access.reads;
      access.creates |= m.access.creates;
      access.exclusive |= m.access.exclusive;
    } else {
      mentions[kept++] = m;
    }
  }
  mentions.resize(kept);
  std::sort(mentions.begin(), mentions.end(),
            [](const Mention& a, const Mention& b) { return a.position < b.position; });

  std::vector<DeclaredAccess> result;
  result.reserve(kept);
  for (const Mention& m : mentions) result.push_back(m.access);
  return result;
}

}  // namespace

PreparedOperation::PreparedOperation(Operation op, EngineToken token)
    : owner(std::move(token)), operation(std::move(op)) {
  if (!operation.run) Throw("operation \"{}\" has no function to run", operation.name);
  if (operation.device.index < 0) {
    Throw<DeviceError>("operation \"{}\": device index must be >= 0, got {}", operation.name, operation.device.index);
  }
  for (const auto* list : {&operation.reads, &operation.updates, &operation.writes}) {
    for (const VarPtr& var : *list) {
      if (!var) Throw("operation \"{}\" names a null variable", operation.name);
      if (var->owner != owner) Throw("operation \"{}\" names a variable of another engine", operation.name);
    }
  }
  accesses = MergeAccesses(operation);
}

std::exception_ptr PreparedOperation::Call(Stream& stream, const void* payload) const noexcept {
  stream.Enter(operation.name);
  try {
    operation.run(OpContext{stream, payload});
    return nullptr;
  } catch (...) {
    return CurrentErrorNamed(stream.part());
  }
}

void CheckOwner(const PreparedPtr& prepared, const EngineToken& owner) {
  if (!prepared) Throw("a null prepared operation was pushed");
  if (prepared->owner != owner) Throw("operation \"{}\" was prepared by another engine", prepared->operation.name);
}

void CheckOwner(const VarPtr& var, const EngineToken& owner) {
  if (!var) Throw("a null variable: there is nothing to wait for, or to ask about");
  if (var->owner != owner) Throw("a variable of another engine: only that one can wait for it, or tell about it");
}

std::exception_ptr CurrentErrorNamed(const std::string& name) noexcept {
  std::exception_ptr original = std::current_exception();
  if (name.empty()) return original;
  try {
    std::exception_ptr named = CurrentErrorAfter(fmt::format("operation \"{}\" failed: ", name));
    if (named != original) return named;
    try {
      std::rethrow_exception(original);
    } catch (const Error& error) {
      LogLine(LogLevel::kError, fmt::format("operation \"{}\" failed: {}", name, error.message()));
    } catch (const std::exception& error) {
      LogLine(LogLevel::kError, fmt::format("operation \"{}\" failed: {}", name, error.what()));
    }
  } catch (...) {  // no memory for the message, or a foreign type: the original will do
  }
  return original;
}

std::exception_ptr Failures::Inherited(std::span<const DeclaredAccess> accesses) const {
  for (const DeclaredAccess& access : accesses) {
    if (access.reads && access.var->error && access.var->error_round == round_) return access.var->error;
  }
  return nullptr;
}

void Failures::Settle(std::span<const DeclaredAccess> accesses, const std::exception_ptr& error, bool thrown,
                      bool half_way) {
  for (const DeclaredAccess& access : accesses) {
    if (!access.creates && !(half_way && access.exclusive)) continue;
    if (error || access.var->error) access.var->error = error;
    access.var->error_round = round_;
  }
  if (!error || !thrown) return;
  if (!first_) first_ = error;
  if (!untold_) untold_ = error;
}

void Failures::AppendUses(std::span<const DeclaredAccess> accesses, std::vector<FenceUse>* uses) const {
  for (const DeclaredAccess& access : accesses) {
    const Var& var = *access.var;
    const Fence* last = var.exclusive.get();
    const auto inherit = [&](const FencePtr& fence, Inherits what) {
      if (!fence) return;
      uses->push_back({fence.get(), what});
      if (fence.get() == last) last = nullptr;
    };
    if (access.reads && var.creator_round == round_) {
      inherit(var.creator, Inherits::kAll);
      for (const FencePtr& fence : var.updaters) inherit(fence, Inherits::kItsOwn);
    }
    if (last) uses->push_back({last});
    if (!access.exclusive) continue;
    for (const FencePtr& fence : var.shared) uses->push_back({fence.get()});
  }
}

void Failures::SetFence(std::span<const DeclaredAccess> accesses, const FencePtr& fence) {
  for (const DeclaredAccess& access : accesses) {
    Var& var = *access.var;
    if (access.exclusive) {
      var.exclusive = fence;
      var.shared.clear();
      if (access.creates || var.creator_round != round_) {
        var.creator = nullptr;
        var.updaters.clear();
        var.creator_round = round_;
      }
      if (access.creates) {
        var.creator = fence;
      } else if (fence) {
        std::erase_if(var.updaters, [](const FencePtr& f) {
          return f->WaitFor(std::chrono::milliseconds(0)) && !InheritedError(*f, Inherits::kItsOwn);
        });
        var.updaters.push_back(fence);
      }
    } else if (fence) {
      const auto mine = std::find_if(var.shared.begin(), var.shared.end(),
                                     [&](const FencePtr& f) { return f->stream() == fence->stream(); });
      if (mine == var.shared.end()) {
        var.shared.push_back(fence);
      } else {
        *mine = fence;
      }
    }
  }
}

std::exception_ptr Failures::LateErrors::Find() const {
  if (creator && creator->error()) return creator->error();
  for (const FencePtr& fence : updaters) {
    if (const std::exception_ptr error = InheritedError(*fence, Inherits::kItsOwn)) return error;
  }
  return nullptr;
}

std::optional<uint64_t> Failures::VersionOf(const Var& var) const {
  constexpr int kChangesBits = 48;  // rounds are few
  if (var.error && var.error_round == round_) return std::nullopt;
  if (var.creator_round == round_) {
    const auto failed = [](const FencePtr& fence, Inherits what) {
      return fence && fence->WaitFor(std::chrono::milliseconds(0)) && InheritedError(*fence, what);
    };
    if (failed(var.creator, Inherits::kAll)) return std::nullopt;
    for (const FencePtr& fence : var.updaters) {
      if (failed(fence, Inherits::kItsOwn)) return std::nullopt;
    }
  }
  return (round_ << kChangesBits) + var.changes;
}

void Failures::NoteLate(const std::exception_ptr& error) {
  if (!error) return;
  if (!first_) first_ = error;
  if (!untold_ && error != told_late_) untold_ = error;
}

std::exception_ptr Failures::TakeFirst() {
  untold_ = nullptr;
  return std::exchange(first_, nullptr);
}

void Failures::Recover() {
  ++round_;
  first_ = untold_ = told_late_ = nullptr;
}

}  // namespace bindery
