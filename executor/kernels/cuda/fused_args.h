// What a chain of elementwise operators that is one kernel is launched with. NVRTC compiles this, too.
#pragma once

#include <cstdint>

namespace bindery::cuda {

// Element i of the result, of n, is made of one of each input: its element i, its only one, or the one where the
// strides have it. Which of these, and of what types, is told by the source (fused_source.h). A thread works on packs of
// neighbours in the result; the last of them may lack some.
struct FusedArgs {
  static constexpr const char* kName = "bindery_fused";
  static constexpr int kMaxInputs = 8, kMaxAxes = 8;
  static constexpr int kPack = 4;
  int64_t n = 0;
  int32_t rank = 0;  // of the grid that inputs are stretched to; along its last axis by strides of 0 or 1
  int64_t extents[kMaxAxes] = {};
  int64_t strides[kMaxInputs][kMaxAxes] = {};
  const void* in[kMaxInputs] = {};
  void* out = nullptr;
  constexpr int64_t packs() const { return (n + kPack - 1) / kPack; }
  void Addresses(const auto& visit) {
    for (const void*& input : in) visit(input);
    visit(out);
  }
};

}  // namespace bindery::cuda
