#include "tests/executor/loop_tables.h"

#include <cmath>
#include <utility>

#include "base/philox.h"
#include "engine/isa.h"

#pragma GCC diagnostic ignored "-Wpsabi"

namespace bindery::cpu {
namespace {

namespace sixteen_lanes {

constexpr int kLanes = 16;
typedef float Floats __attribute__((vector_size(64)));
typedef uint64_t Register __attribute__((vector_size(64)));
inline Floats SquareRoot(Floats x) {
  for (int i = 0; i < kLanes; ++i) x[i] = std::sqrt(x[i]);
  return x;
}
inline Floats MultiplyAdd(Floats a, Floats b, Floats c) { return a * b + c; }
inline Register MultiplyLow32(Register a, Register b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
#include "executor/kernels/cpu/simd/loops_body.h"

const Loops& Table() {
  static constexpr Loops kLoops = TableOf("sixteen_lanes");
  return kLoops;
}

}  // namespace sixteen_lanes

}  // namespace

std::vector<const Loops*> LoopTables() {
  std::vector<const Loops*> tables = {&BaselineLoops(), &sixteen_lanes::Table()};
  if (MachineIsa() >= Isa::kAvx2) tables.push_back(&Avx2Loops());
  if (MachineIsa() == Isa::kAvx512) tables.push_back(&Avx512Loops());
  return tables;
}

std::vector<float> RandomFloats(int64_t n, const char* name, float low, float high) {
  PhiloxStream stream(5, name);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = stream.Uniform(low, high);
  return values;
}

}  // namespace bindery::cpu
