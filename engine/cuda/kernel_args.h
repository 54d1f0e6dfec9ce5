// What our own kernels are launched with: one struct each, passed by value. Private to engine/cuda and its tests.
//
// `kName` is the kernel's name in the image. Addresses(visit) visits every address of device memory in it: whoever runs
// kernels elsewhere than on a GPU puts others in their place.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "engine/kernels/update.h"

namespace bindery::cuda {

// Those in pointers, in arrays, and in structs that have Addresses.
template <class Visit, class... Holder>
void VisitIn(const Visit& visit, Holder&... holders) {
  const auto one = [&]<class T>(T& holder) {
    if constexpr (std::is_pointer_v<T>) {
      visit(holder);
    } else if constexpr (std::is_array_v<T>) {
      for (auto& each : holder) VisitIn(visit, each);
    } else {
      holder.Addresses(visit);
    }
  };
  (one(holders), ...);
}

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

// What FaultRing has in the device's memory, before kernels of a piece of work that may find faults. One thread.
struct NumberPieceArgs {
  static constexpr const char* kName = "bindery_number_piece";
  uint64_t* piece = nullptr;
  uint64_t* heard = nullptr;       // none
  const uint64_t* base = nullptr;  // may be null; else the number is counted from there
  uint64_t number = 0;
  void Addresses(const auto& visit) { VisitIn(visit, piece, heard, base); }
};

// In a graph: all before it is done. One thread.
struct MarkPieceArgs {
  static constexpr const char* kName = "bindery_mark_piece";
  uint64_t* word = nullptr;  // the host's, and GPUs'
  uint64_t number = 0;
  void Addresses(const auto&) {}
};

// No element: where the index of one is looked for.
inline constexpr uint64_t kNone = ~uint64_t{0};

// `rows` runs of `units` units each, `in_stride` and `out_stride` bytes apart.
struct CopyArgs {
  static constexpr const char* kName = "bindery_copy";
  const void* in = nullptr;
  void* out = nullptr;
  int64_t rows = 1, units = 0, in_stride = 0, out_stride = 0;
  int32_t unit = 1;
  void Addresses(const auto& visit) { VisitIn(visit, in, out); }
};

struct CastArgs {
  static constexpr const char* kName = "bindery_cast";
  const void* in = nullptr;
  void* out = nullptr;
  int64_t n = 0;
  DType from = {}, to = {};
  void Addresses(const auto& visit) { VisitIn(visit, in, out); }
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

// Data that a kernel cannot work on, an index that names nothing, say: what the host will say of it. The first of a
// piece of work (stream.h) that finds some writes it, in memory of the host.
struct Fault {
  uint64_t piece = 0;
  int64_t at = 0;                       // which element of an input it is
  double value = 0, low = 0, high = 0;  // it is not in low..high
};
// What is to be said of a fault is lost if a piece kSize later, or twice that and so on, finds one, too, before the
// host has looked: operations that are joined may be more pieces than that. `refused` is written all the same.
struct FaultRing {
  static constexpr uint64_t kSize = 512;
  Fault* faults = nullptr;          // of piece number % kSize; null: nobody listens
  const uint64_t* piece = nullptr;  // the number of the one that runs, in the device's memory
  uint64_t* heard = nullptr;        // the last one of which a fault was heard, there too
  Refusal* refused = nullptr;       // and of the step (executor/step_block.h): that there is one; may be null
  void Addresses(const auto& visit) { VisitIn(visit, piece, heard, refused); }  // the faults are the host's, and GPUs'
};

}  // namespace bindery::cuda
