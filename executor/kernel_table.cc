#include "executor/kernel_table.h"

namespace bindery {

KernelTable::KernelTable(std::initializer_list<KernelRows> rows, ReorderMaker reorder,
                         MaybeKernel (*otherwise)(const KernelSpec& spec, KernelMaker make),
                         void (*translate)(const KernelSpec& spec), const ChainKernels* chains)
    : reorder_(reorder), otherwise_(otherwise), translate_(translate), chains_(chains) {
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
    MaybeKernel kernel = found->second(spec);
    return kernel || !otherwise_ ? kernel : otherwise_(spec, found->second);
  } catch (...) {
    if (translate_) translate_(spec);
    throw;
  }
}

std::span<const KernelTable* const> KernelTables(DeviceKind kind, KernelPolicy policy) {
  static const KernelTable* const cpu[] = {&CpuKernels(), &ReferenceKernels()};
  static const KernelTable* const cuda[] = {&CudaKernels()};
  switch (kind) {
    case DeviceKind::kCpu: return std::span(cpu).subspan(policy == KernelPolicy::kFast ? 0 : 1);
    case DeviceKind::kSim: return std::span(cpu).subspan(1);
    case DeviceKind::kCuda: return cuda;  // whatever the policy: there is no other
  }
  return {};
}

}  // namespace bindery
