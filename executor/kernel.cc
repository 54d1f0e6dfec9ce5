#include "executor/kernel.h"

#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "executor/kernels/cpu/reorder.h"
#include "executor/kernels/reference/reorder.h"

namespace bindery {
namespace {

using UserMaker = std::function<std::optional<Kernel>(const KernelSpec&)>;
using Table = std::unordered_map<std::string, KernelMaker>;

Table TableOf(std::span<const KernelEntry> entries) {
  Table table;
  for (const KernelEntry& entry : entries) {
    if (!table.emplace(entry.op, entry.make).second) Throw("two kernels for operator \"{}\" in one table", entry.op);
  }
  return table;
}

const Table& FastTable() {
  static const Table table = TableOf(CpuKernels());
  return table;
}

const Table& ReferenceTable() {
  static const Table table = TableOf(ReferenceKernels());
  return table;
}

struct UserKernels {
  std::mutex mutex;
  std::map<std::string, UserMaker> makers;
};

UserKernels& Users() {
  static UserKernels kernels;
  return kernels;
}

std::optional<Kernel> Ask(const Table& table, const KernelSpec& spec) {
  const auto found = table.find(spec.op->name);
  return found == table.end() ? std::nullopt : found->second(spec);
}

std::optional<Kernel> AskUser(const KernelSpec& spec) {
  UserMaker make;
  {
    std::lock_guard lock(Users().mutex);
    const auto found = Users().makers.find(spec.op->name);
    if (found == Users().makers.end()) return std::nullopt;
    make = found->second;
  }
  return make(spec);  // outside the lock: it may take its time, and add kernels
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

void AddKernel(const std::string& op, std::function<std::optional<Kernel>(const KernelSpec&)> make) {
  if (!make) Throw("the kernel maker given for operator \"{}\" is empty", op);
  if (FastTable().contains(op) || ReferenceTable().contains(op)) Throw("operator \"{}\" has a built-in kernel", op);
  std::lock_guard lock(Users().mutex);
  if (!Users().makers.emplace(op, std::move(make)).second) Throw("operator \"{}\" has a kernel already", op);
}

Kernel MakeKernel(const KernelSpec& spec, KernelPolicy policy) {
  std::optional<Kernel> kernel;
  if (policy == KernelPolicy::kFast) kernel = Ask(FastTable(), spec);
  if (!kernel) kernel = Ask(ReferenceTable(), spec);
  if (!kernel) kernel = AskUser(spec);
  if (!kernel) {
    Throw("no kernel for operator \"{}\" on cpu with dtype {} (node \"{}\")", spec.op->name, DTypesOf(spec),
          spec.node_name);
  }
  CheckKernel(*kernel, spec);
  return *std::move(kernel);
}

Kernel MakeReorder(DType dtype, const Shape& shape, const Format& from, const Format& to, int threads,
                   KernelPolicy policy) {
  if (from.kind == Format::Kind::kOpaque || to.kind == Format::Kind::kOpaque) {
    Throw("a value cannot be reordered from {} to {}", from, to);
  }
  if (policy == KernelPolicy::kFast) {
    if (std::optional<Kernel> kernel = MakeFastReorder(dtype, shape, from, to, threads)) return *std::move(kernel);
  }
  return MakeReferenceReorder(dtype, shape, from, to);
}

}  // namespace bindery
