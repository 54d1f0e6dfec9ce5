// What a chain of elementwise operators that is one kernel is launched with. NVRTC compiles this, too.
#pragma once

#include <cstdint>

namespace bindery::cuda {

// Element i of the result, of n, is made of one of each input: its element i, its only one, or the one where the
// strides have it. Which of these, and of what types, is told by the source (fused_source.h).
struct FusedArgs {
  static constexpr const char* kName = "bindery_fused";
  static constexpr int kMaxInputs = 8, kMaxAxes = 8;
  int64_t n = 0;
  int32_t rank = 0;  // of the grid that inputs are stretched to
  int64_t extents[kMaxAxes] = {};
  int64_t strides[kMaxInputs][kMaxAxes] = {};
  const void* in[kMaxInputs] = {};
  void* out = nullptr;
  void Addresses(const auto& visit) {
    for (const void*& input : in) visit(input);
    visit(out);
  }
};

}  // namespace bindery::cuda
