#include "engine/isa.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace bindery {
namespace {

Isa HardwareIsa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx512 ? Isa::kAvx512 : Isa::kAvx2;
  }
#endif
  return Isa::kBaseline;
}

}  // namespace

std::optional<Isa> IsaLimit() {
  static const std::optional<Isa> limit = []() -> std::optional<Isa> {
    const char* const text = std::getenv("BINDERY_MAX_ISA");
    if (!text || !*text) return std::nullopt;
    const std::string_view name = text;
    if (name == "baseline") return Isa::kBaseline;
    if (name == "avx2") return Isa::kAvx2;
    if (name == "avx512") return Isa::kAvx512;
    Throw("BINDERY_MAX_ISA must be baseline, avx2 or avx512, got \"{}\"", name);
  }();
  return limit;
}

Isa MachineIsa() {
  static const Isa isa = std::min(HardwareIsa(), IsaLimit().value_or(Isa::kAvx512));
  return isa;
}

const char* ToString(Isa isa) {
  switch (isa) {
    case Isa::kBaseline: return "baseline";
    case Isa::kAvx2: return "AVX2";
    case Isa::kAvx512: return "AVX-512";
  }
  return "unknown";
}

}  // namespace bindery
