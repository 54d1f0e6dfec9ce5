// One loop, compiled for several instruction sets, chosen at run time. Vectorized is private to engine/kernels, where
// the compiler is asked for such loops, and to what programs make of update_loop.h; those written by hand elsewhere
// (train/data/images) go by CurrentIsa, too.
//
// A loop is an always_inline function of plain arguments; Vectorized<loop>(arguments...) calls the copy of it that was
// compiled for the widest vectors this machine has. The copies differ in width only: each element sees the same
// operations in the same order, and the build forbids contraction to FMA (-ffp-contract=off), so all give the same
// bits.
#pragma once

#include <cstdint>

#include "engine/isa.h"

namespace bindery::flat {

Isa CurrentIsa();        // what Vectorized uses: MachineIsa(), or less after LimitIsa
void LimitIsa(Isa isa);  // for tests that compare the copies; an ISA the machine lacks counts as its best

template <auto kLoop, class... Args>
void RunBaseline(Args... args) {
  kLoop(args...);
}

#if defined(__x86_64__)
template <auto kLoop, class... Args>
[[gnu::target("avx2")]] void RunAvx2(Args... args) {
  kLoop(args...);
}

template <auto kLoop, class... Args>
#ifdef __clang__
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), clang::min_vector_width(512)]]
#else
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]]
#endif
void RunAvx512(Args... args) {
  kLoop(args...);
}

template <auto kLoop, class... Args>
void Vectorized(Args... args) {
  switch (CurrentIsa()) {
    case Isa::kBaseline: return RunBaseline<kLoop>(args...);
    case Isa::kAvx2: return RunAvx2<kLoop>(args...);
    case Isa::kAvx512: return RunAvx512<kLoop>(args...);
  }
}
#else
template <auto kLoop, class... Args>
void Vectorized(Args... args) {
  RunBaseline<kLoop>(args...);
}
#endif

// Parts of parallel loops are multiples of this many elements: whole cache lines of every dtype, and of blocks.
inline constexpr int64_t kGrain = 1024;

}  // namespace bindery::flat
