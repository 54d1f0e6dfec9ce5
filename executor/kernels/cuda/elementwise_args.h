// What kernels of elementwise functions are launched with (args.h).
#pragma once

#include <tuple>

#include "executor/kernels/cuda/args.h"

extern "C" const unsigned long long bindery_cuda_elementwise[];

namespace bindery::cuda {

// Which list of executor/kernels/functions.h a function is in, or what it is beside them.
enum class Family : int32_t {
  kUnary,
  kPredicate,
  kBinary,
  kRelation,
  kActivation,
  kSum,  // f(x + y [+ z]), of an activation; of none (place -1) the sum
  kActivationGrad,
  kCurve,
  kCurveGrad,       // (dy, x) -> dy slope(x)
  kCast,            // to whole numbers towards zero
  kAddReluGrad,     // (g0, g1, y) -> (g0 + g1) [y > 0]
  kDifference,      // (x - y) a
  kDifferenceSign,  // sign(x - y) a
  kMasked,          // (x, mask: of uint8) -> x mask a
};

// out[i] = f(in_0, in_1, in_2) for every index of the grid; out is plain.
struct MapArgs {
  static constexpr const char* kName = "bindery_map";
  static constexpr const unsigned long long* kImage = bindery_cuda_elementwise;
  static constexpr int kMaxInputs = 3;
  Family family = {};
  int32_t function = 0;  // its place in the list
  int32_t inputs = 1;
  int32_t flat = 0;       // the grid has at most one axis
  int32_t saturates = 0;  // integers do when stored; else they wrap around
  int32_t mixed = 0;      // inputs of other types than the first
  DType compute = {};     // the type of the first
  Grid grid = {};
  Source in[kMaxInputs] = {};
  Strides strides[kMaxInputs] = {};
  Target out = {};
  double a = 0, b = 0;
  void Addresses(const auto& visit) { VisitIn(visit, in, out); }
};

// out = condition ? a : b, of units: bits are moved, whatever they are.
struct WhereArgs {
  static constexpr const char* kName = "bindery_where";
  static constexpr const unsigned long long* kImage = bindery_cuda_elementwise;
  int32_t unit = 1;
  Grid grid = {};
  const void* condition = nullptr;
  const void* in[2] = {};
  Strides strides[3] = {};  // of the condition, and of `in`
  void* out = nullptr;
  void Addresses(const auto& visit) { VisitIn(visit, condition, in, out); }
};

using ElementwiseImage = std::tuple<MapArgs, WhereArgs>;

}  // namespace bindery::cuda
