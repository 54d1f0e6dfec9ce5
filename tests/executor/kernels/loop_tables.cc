#include "tests/executor/kernels/loop_tables.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/philox.h"
#include "engine/isa.h"

#pragma GCC diagnostic ignored "-Wpsabi"

namespace bindery::cpu {
namespace {

typedef uint64_t Register __attribute__((vector_size(64)));
inline Register MultiplyLow32(Register a, Register b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }

namespace floats {
using Real = float;
constexpr int kLanes = 16;
typedef float Floats __attribute__((vector_size(64)));
inline Floats SquareRoot(Floats x) {
  for (int i = 0; i < kLanes; ++i) x[i] = std::sqrt(x[i]);
  return x;
}
inline Floats LoadPart(const float* p, int64_t n) {
  Floats v = {};
  for (int i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
inline Floats MultiplyAdd(Floats a, Floats b, Floats c) { return a * b + c; }
constexpr bool kFused = false;
// clang-format off: in this order
#include "executor/kernels/cpu/simd/vector_math_float.h"
#include "executor/kernels/cpu/simd/loops_body.h"
// clang-format on
}  // namespace floats

namespace doubles {
using Real = double;
constexpr int kLanes = 8;
typedef double Doubles __attribute__((vector_size(64)));
inline Doubles SquareRoot(Doubles x) {
  for (int i = 0; i < kLanes; ++i) x[i] = std::sqrt(x[i]);
  return x;
}
inline Doubles LoadPart(const double* p, int64_t n) {
  Doubles v = {};
  for (int i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
inline Doubles MultiplyAdd(Doubles a, Doubles b, Doubles c) { return a * b + c; }
// clang-format off: in this order
#include "executor/kernels/cpu/simd/vector_math_double.h"
#include "executor/kernels/cpu/simd/loops_body.h"
// clang-format on
}  // namespace doubles

// Four taps, as VNNI has them.
namespace integers {
using Element = uint8_t;
typedef int32_t Sums __attribute__((vector_size(64)));
constexpr int64_t kSums = 16;
constexpr int kMostRows = 5;
inline Sums Everywhere(int32_t bits) { return Sums{} + bits; }
inline Sums AddProducts(Sums sums, Sums data, Sums weights) {
  for (int tap = 0; tap < 4; ++tap) {
    const Sums bytes = (data >> 8 * tap) & 0xff;
    const Sums w = (weights << (24 - 8 * tap)) >> 24;
    sums += bytes * w;
  }
  return sums;
}
inline Sums Groups(const int8_t* w) {
  Sums groups;
  std::memcpy(&groups, w, sizeof groups);
  return groups;
}
#include "executor/kernels/cpu/simd/integers_body.h"
}  // namespace integers

const LoopSet& SixteenLanes() {
  static constexpr LoopSet kLoops = {floats::TableOf("sixteen_lanes"), doubles::TableOf("sixteen_lanes"),
                                     integers::Table()};
  return kLoops;
}

}  // namespace

std::vector<const LoopSet*> LoopSets() {
  std::vector<const LoopSet*> sets = {&BaselineLoops(), &SixteenLanes()};
  if (MachineIsa() >= Isa::kAvx2) sets.push_back(&Avx2Loops());
  if (MachineIsa() == Isa::kAvx512) sets.push_back(&Avx512Loops());
  return sets;
}

std::vector<const Loops*> LoopTables() {
  std::vector<const Loops*> tables;
  for (const LoopSet* set : LoopSets()) tables.push_back(&set->floats);
  return tables;
}

std::vector<const IntegerLoops*> IntegerTables() {
  std::vector<const IntegerLoops*> tables;
  for (const LoopSet* set : LoopSets()) tables.push_back(&set->integers);
  if (&BestIntegers() != &BestLoopSet().integers) tables.push_back(&BestIntegers());
  return tables;
}

std::vector<float> RandomFloats(int64_t n, const char* name, float low, float high) {
  PhiloxStream stream(5, name);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = stream.Uniform(low, high);
  return values;
}

}  // namespace bindery::cpu
