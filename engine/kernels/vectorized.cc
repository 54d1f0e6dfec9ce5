#include "engine/kernels/vectorized.h"

#include <algorithm>
#include <atomic>

namespace bindery::flat {
namespace {

std::atomic<Isa>& TheIsa() {
  static std::atomic<Isa> isa{MachineIsa()};
  return isa;
}

}  // namespace

Isa CurrentIsa() { return TheIsa().load(std::memory_order_relaxed); }

void LimitIsa(Isa isa) { TheIsa().store(std::min(isa, MachineIsa()), std::memory_order_relaxed); }

}  // namespace bindery::flat
