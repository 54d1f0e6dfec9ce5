#include "executor/kernel_table.h"

namespace bindery {

KernelTable::KernelTable(std::initializer_list<KernelRows> rows, ReorderMaker reorder,
                         void (*translate)(const KernelSpec& spec))
    : reorder_(reorder), translate_(translate) {
  for (const KernelRows& list : rows) {
    for (const KernelEntry& entry : list) {
      if (!makers_.emplace(entry.op, entry.make).second)
        Throw("two kernels for operator \"{}\" in one table", entry.op);
      entries_.push_back(entry);
    }
  }
}

MaybeKernel KernelTable::Make(const KernelSpec& spec) const {
  const auto found = makers_.find(spec.op->name);
  if (found == makers_.end()) return std::nullopt;
  try {
    return found->second(spec);
  } catch (...) {
    if (translate_) translate_(spec);
    throw;
  }
}

std::span<const KernelTable* const> KernelTables(DeviceKind kind, KernelPolicy policy) {
  static const KernelTable* const cpu[] = {&CpuKernels(), &ReferenceKernels()};
  switch (kind) {
    case DeviceKind::kCpu: return std::span(cpu).subspan(policy == KernelPolicy::kFast ? 0 : 1);
    case DeviceKind::kSim: return std::span(cpu).subspan(1);
    case DeviceKind::kCuda: break;
  }
  return {};
}

}  // namespace bindery
