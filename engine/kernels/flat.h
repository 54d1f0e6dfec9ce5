// Flat device math: loops over contiguous elements, without shapes. Called inside operations, by the device's worker;
// parallel over the calling thread's Team. What the reducer and copies are made of; updates are in
// engine/kernels/update.h.
//
// Vector code is chosen at run time (baseline, AVX2, AVX-512); all variants give the same bits: one fixed order of
// additions per element, no FMA contraction differences between them.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace bindery::flat {

void Fill(DType dtype, void* out, int64_t n, double value);
void Copy(const void* in, void* out, int64_t bytes);
// By StoreDouble's rules; float32 <-> bfloat16/float16 fast.
void Cast(DType from, const void* in, DType to, void* out, int64_t n);

// out[i] = in[0][i] + in[1][i] + ... in list order; accumulates in float32 (float64 for float64); integers wrap around,
// and a sum of bools is whether any is true. `out` may be one of `in`.
void Sum(DType dtype, std::span<const void* const> in, void* out, int64_t n);
// out[i] += in[i]
void Add(DType dtype, const void* in, void* out, int64_t n);
// out[i] *= factor
void Scale(DType dtype, void* out, int64_t n, double factor);

// Is Sum() finite, without writing it down? Of float32 or float64, at least one, by the calling thread alone.
bool SumIsFinite(DType dtype, std::span<const void* const> in, int64_t n);
bool AllFinite(DType dtype, const void* in, int64_t n);       // integers always are
double SumOfSquares(DType dtype, const void* in, int64_t n);  // in double, in an order that depends on n only

}  // namespace bindery::flat
