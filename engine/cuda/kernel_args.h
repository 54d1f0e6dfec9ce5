// What our own kernels are launched with: one struct each, passed by value. Private to engine/cuda and its tests.
//
// `kName` is the kernel's name in the image. Addresses(visit) visits every address of device memory in it: whoever runs
// kernels elsewhere than on a GPU puts others in their place.
#pragma once

#include <cstdint>
#include <tuple>

#include "base/dtype.h"

namespace bindery::cuda {

// Runs of memory are written and copied by units of 1, 2, 4, 8 or 16 bytes, whichever is the largest that divides all
// addresses and sizes.
struct alignas(16) Unit16 {
  uint64_t low = 0, high = 0;
};

// out[0..units-1] = value, of which `unit` bytes count.
struct FillArgs {
  static constexpr const char* kName = "bindery_fill";
  void* out = nullptr;
  int64_t units = 0;
  int32_t unit = 1;
  Unit16 value = {};
  void Addresses(const auto& visit) { visit(out); }
};

// `rows` runs of `units` units each, `in_stride` and `out_stride` bytes apart; nothing if *unless is not 0.
struct CopyArgs {
  static constexpr const char* kName = "bindery_copy";
  const void* in = nullptr;
  void* out = nullptr;
  int64_t rows = 1, units = 0, in_stride = 0, out_stride = 0;
  int32_t unit = 1;
  const uint32_t* unless = nullptr;  // may be null
  void Addresses(const auto& visit) {
    visit(in);
    visit(out);
    visit(unless);
  }
};

struct CastArgs {
  static constexpr const char* kName = "bindery_cast";
  const void* in = nullptr;
  void* out = nullptr;
  int64_t n = 0;
  DType from = {}, to = {};
  void Addresses(const auto& visit) {
    visit(in);
    visit(out);
  }
};

struct SumArgs {
  static constexpr const char* kName = "bindery_sum";
  static constexpr int kMaxCount = 480;  // what a launch has room for: 4 KiB
  const void* in[kMaxCount] = {};
  int32_t count = 0;
  DType dtype = {};
  void* out = nullptr;
  int64_t n = 0;
  void Addresses(const auto& visit) {
    for (int32_t i = 0; i < count; ++i) visit(in[i]);
    visit(out);
  }
};
static_assert(sizeof(SumArgs) <= 4096);

struct ScaleArgs {
  static constexpr const char* kName = "bindery_scale";
  void* out = nullptr;
  int64_t n = 0;
  double factor = 1;
  DType dtype = {};
  void Addresses(const auto& visit) { visit(out); }
};

// *found = 1 if some element is infinite or not a number; else it stays as it is.
struct FindNotFiniteArgs {
  static constexpr const char* kName = "bindery_find_not_finite";
  const void* in = nullptr;
  int64_t n = 0;
  DType dtype = {};
  uint32_t* found = nullptr;
  void Addresses(const auto& visit) {
    visit(in);
    visit(found);
  }
};

// All kernels that there are.
using AllKernels = std::tuple<FillArgs, CopyArgs, CastArgs, SumArgs, ScaleArgs, FindNotFiniteArgs>;

}  // namespace bindery::cuda
