#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "base/error.h"
#include "base/names.h"
#include "symbol/builtin_ops.h"
#include "symbol/op_def.h"

namespace bindery {
namespace {

// Definitions are never removed: nodes point to them.
class Registry {
 public:
  static Registry& Get() {
    static Registry registry;
    return registry;
  }

  const OpDef* Find(const std::string& name) const {
    std::shared_lock lock(mutex_);
    const auto it = ops_.find(name);
    return it == ops_.end() ? nullptr : it->second;
  }

  std::vector<const OpDef*> All() const {
    std::shared_lock lock(mutex_);
    std::vector<const OpDef*> all;
    all.reserve(ops_.size());
    for (const auto& [name, op] : ops_) all.push_back(op);
    return all;
  }

  const OpDef& Add(OpDef op) {
    if (op.name.empty()) Throw("an operator needs a name");
    if (!op.infer) Throw("operator \"{}\" needs an infer rule", op.name);
    for (const AskedNumbers& asked : op.asks) {
      if (!asked.range) Throw("operator \"{}\" asks for numbers in \"{}\" without a range", op.name, asked.input);
      const auto is_asked = [&](const Slot& slot) { return slot.is_many || slot.name == asked.input; };
      if (std::ranges::none_of(op.inputs.slots(), is_asked)) {
        Throw("operator \"{}\" asks for numbers in \"{}\", which is no input of it", op.name, asked.input);
      }
    }
    std::unique_lock lock(mutex_);
    if (ops_.contains(op.name)) Throw("there is an operator \"{}\" already", op.name);
    added_.push_back(std::make_unique<const OpDef>(std::move(op)));
    ops_.emplace(added_.back()->name, added_.back().get());
    return *added_.back();
  }

 private:
  Registry() {
    for (const OpDef& (*accessor)() : BuiltinOps()) {
      const OpDef& op = accessor();
      Check(!op.name.empty() && op.infer, "a built-in operator has a name and an infer rule");
      Check(ops_.emplace(op.name, &op).second, "built-in operators have different names");
    }
  }

  mutable std::shared_mutex mutex_;
  std::map<std::string, const OpDef*> ops_;
  std::vector<std::unique_ptr<const OpDef>> added_;
};

}  // namespace

const OpDef* FindOpOrNull(const std::string& name) { return Registry::Get().Find(name); }

const OpDef& FindOp(const std::string& name) {
  if (const OpDef* op = FindOpOrNull(name)) return *op;
  std::vector<std::string> known;
  for (const OpDef* op : ListOps()) known.push_back(op->name);
  Throw<ModelError>("unknown operator \"{}\"{}", name, NameHint(name, known));
}

std::vector<const OpDef*> ListOps() { return Registry::Get().All(); }

const OpDef& AddOp(OpDef op) { return Registry::Get().Add(std::move(op)); }

}  // namespace bindery
