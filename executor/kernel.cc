#include "executor/kernel.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "executor/custom_operator.h"
#include "executor/kernel_table.h"
#include "executor/kernels/sim/kernel.h"

namespace bindery {
namespace {

using UserMaker = std::function<MaybeKernel(const KernelSpec&)>;

struct UserKernels {
  std::mutex mutex;
  std::map<std::pair<DeviceKind, std::string>, UserMaker> makers;
  std::map<std::string, UserMaker> references;
};

UserKernels& Users() {
  static UserKernels kernels;
  return kernels;
}

template <class Key>
UserMaker Find(const std::map<Key, UserMaker>& makers, const Key& key) {
  const auto found = makers.find(key);
  return found == makers.end() ? UserMaker() : found->second;
}

// A program's own makers of an operator's kernels; empty where there are none.
struct UserMakers {
  UserMaker fast = {}, reference = {};
};
UserMakers UserMakersOf(const std::string& op, DeviceKind kind) {
  const bool is_sim = kind == DeviceKind::kSim;
  std::lock_guard lock(Users().mutex);
  UserMakers makers{.fast = Find(Users().makers, {kind, op})};
  if (is_sim || kind == DeviceKind::kCpu) makers.reference = Find(Users().references, op);
  if (is_sim && !makers.fast && !makers.reference) makers.fast = Find(Users().makers, {DeviceKind::kCpu, op});
  return makers;
}

// Outside the lock: makers may take their time, and add kernels.
MaybeKernel AskUser(const KernelSpec& spec, KernelPolicy policy) {
  const auto [fast, reference] = UserMakersOf(spec.op->name, spec.device);
  const bool ask_fast = fast && !(reference && policy == KernelPolicy::kReference);
  MaybeKernel kernel = ask_fast ? fast(spec) : std::nullopt;
  return kernel || !reference ? kernel : reference(spec);
}

void CheckMaker(const std::string& op, const UserMaker& make, DeviceKind kind) {
  if (!make) Throw("the kernel maker given for operator \"{}\" is empty", op);
  for (const KernelTable* table : KernelTables(kind, KernelPolicy::kFast)) {
    if (table->Contains(op)) Throw("operator \"{}\" has a built-in kernel", op);
  }
}

bool HasEmptyValue(const KernelSpec& spec) {
  const auto is_empty = [](const ValueType& type) { return type.shape.Elements() == 0; };
  return std::ranges::any_of(spec.inputs, is_empty) || std::ranges::any_of(spec.outputs, is_empty);
}

// What a maker owes the compiler; a user's may have forgotten something.
void CheckKernel(const Kernel& kernel, const KernelSpec& spec) {
  const auto fail = [&](const char* what) {
    Throw("the kernel \"{}\" made for operator \"{}\" (node \"{}\") {}", kernel.implementation, spec.op->name,
          spec.node_name, what);
  };
  if (kernel.input_formats.size() != spec.inputs.size()) fail("must give one format per input");
  if (kernel.output_formats.size() != spec.outputs.size()) fail("must give one format per output");
  if (kernel.scratch_bytes < 0) fail("asks for a negative amount of scratch memory");
  if (kernel.threads != 1 && kernel.threads != spec.threads) fail("must use one thread or the whole team");
  if (!kernel.bind) fail("has no bind function");
  for (const InplacePair& pair : kernel.inplace) {
    if (pair.input < 0 || pair.input >= static_cast<int>(spec.inputs.size()) || pair.output < 0 ||
        pair.output >= static_cast<int>(spec.outputs.size())) {
      fail("names an in-place pair that does not exist");
    }
  }
}

std::string DTypesOf(const KernelSpec& spec) {
  std::string text;
  for (const ValueType& input : spec.inputs) text += (text.empty() ? "" : ", ") + std::string(ToString(input.dtype));
  if (!text.empty()) return text;
  return spec.outputs.empty() ? "none" : ToString(spec.outputs[0].dtype);
}

}  // namespace

void AddKernel(const std::string& op, std::function<MaybeKernel(const KernelSpec&)> make, DeviceKind kind) {
  CheckMaker(op, make, kind);
  std::lock_guard lock(Users().mutex);
  if (!Users().makers.emplace(std::pair(kind, op), std::move(make)).second) {
    Throw("operator \"{}\" has a kernel already", op);
  }
}

void AddReferenceKernel(const std::string& op, std::function<MaybeKernel(const KernelSpec&)> make) {
  CheckMaker(op, make, DeviceKind::kCpu);
  std::lock_guard lock(Users().mutex);
  if (!Users().references.emplace(op, std::move(make)).second) {
    Throw("operator \"{}\" has a reference kernel already", op);
  }
}

bool HasKernel(const std::string& op, DeviceKind kind) {
  const auto has = [&](const KernelTable* table) { return table->Contains(op); };
  if (std::ranges::any_of(KernelTables(kind, KernelPolicy::kFast), has)) return true;
  const UserMakers makers = UserMakersOf(op, kind);
  return makers.fast || makers.reference;
}

std::string KernelSpec::Who() const { return who.empty() ? fmt::format("{} \"{}\"", op->name, node_name) : who; }

Kernel MakeKernel(const KernelSpec& spec, KernelPolicy policy) {
  if (HasEmptyValue(spec)) policy = KernelPolicy::kReference;
  MaybeKernel kernel;
  for (const KernelTable* table : KernelTables(spec.device, policy)) {
    if (!kernel) kernel = table->Make(spec);
  }
  if (!kernel) kernel = AskUser(spec, policy);
  if (!kernel) {
    Throw("no kernel for operator \"{}\" on {} with dtype {}", spec.op->name, ToString(spec.device), DTypesOf(spec));
  }
  CheckKernel(*kernel, spec);
  if (spec.device == DeviceKind::kSim) return OnSimulatedDevice(*std::move(kernel), spec.Who());
  return *std::move(kernel);
}

Kernel MakeReorder(DType dtype, const Shape& shape, const Format& from, const Format& to, int threads,
                   KernelPolicy policy, DeviceKind kind) {
  if (from.kind == Format::Kind::kOpaque) Throw("a value cannot be reordered from {} to {}", from, to);
  if (shape.Elements() == 0) policy = KernelPolicy::kReference;
  for (const KernelTable* table : KernelTables(kind, policy)) {
    MaybeKernel kernel = table->reorder()(dtype, shape, from, to, threads);
    if (!kernel) continue;
    return kind == DeviceKind::kSim ? OnSimulatedDevice(*std::move(kernel), "Reorder") : *std::move(kernel);
  }
  Throw("no kernel reorders {} from {} to {} on {}", dtype, from, to, ToString(kind));
}

}  // namespace bindery
