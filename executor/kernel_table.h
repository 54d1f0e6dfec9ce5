// KernelTable: the built-in kernels of one kind of device, or the reference kernels.
//
// Every file of kernels ends with its rows, {operator, maker}; a table's file (executor/kernels/*/kernel_table.cc)
// names these lists, and the linker misses one that is gone. A family of operators with one maker gives it the operator
// as a template argument, so a maker knows what it makes. A new kind of device is a new table in KernelTables.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "executor/kernel.h"

namespace bindery {

struct ChainKernels;  // executor/kernels/chain.h

using KernelRows = std::span<const KernelEntry>;
// Makes Reorder of a dtype and shape between two formats for a number of threads; may decline.
using ReorderMaker = MaybeKernel (*)(DType dtype, const Shape& shape, const Format& from, const Format& to,
                                     int threads);

class KernelTable {
 public:
  // `otherwise` is asked what to make with a maker that declined. `translate` is called while an exception of a maker
  // is handled: it throws ours in its place, naming operator and node, or returns if it does not know the exception.
  // `chains`: for neighbours whose kernels are of this table.
  KernelTable(std::initializer_list<KernelRows> rows, ReorderMaker reorder,
              MaybeKernel (*otherwise)(const KernelSpec& spec, KernelMaker make) = nullptr,
              void (*translate)(const KernelSpec& spec) = nullptr, const ChainKernels* chains = nullptr);

  const std::vector<KernelEntry>& entries() const { return entries_; }
  bool Contains(const std::string& op) const { return makers_.contains(op); }
  // nullopt if the table has no kernel for the operator, or its maker declines.
  MaybeKernel Make(const KernelSpec& spec) const;
  ReorderMaker reorder() const { return reorder_; }
  const ChainKernels* chains() const { return chains_; }  // null where there are none

 private:
  std::vector<KernelEntry> entries_;
  std::unordered_map<std::string, KernelMaker> makers_;
  ReorderMaker reorder_;
  MaybeKernel (*otherwise_)(const KernelSpec& spec, KernelMaker make);
  void (*translate_)(const KernelSpec& spec);
  const ChainKernels* chains_;
};

const KernelTable& ReferenceKernels();  // executor/kernels/reference: every operator, on memory that the host addresses
const KernelTable& CpuKernels();        // executor/kernels/cpu
const KernelTable& CudaKernels();       // executor/kernels/cuda

// The tables that are asked for a kind of device, in this order; none for a kind that this build does not know.
std::span<const KernelTable* const> KernelTables(DeviceKind kind, KernelPolicy policy);

}  // namespace bindery
