// What ONNX' Attention and those of ONNX Runtime are composed of.
#pragma once

#include <string>

#include "symbol/onnx/importer.h"

namespace bindery::onnx {

Symbol Apart(const Symbol& x, int64_t heads, const std::string& name = {});  // (N, T, heads D) as (N, heads, T, D)
Symbol Together(const Symbol& x, const std::string& name = {});              // and back

// Numbers that are known when a model is bound: an extent, and 0, 1, ... before it.
Symbol Int64(int64_t value);
Symbol ExtentOf(const Symbol& x, int64_t axis);
Symbol UpTo(const Symbol& extent);

// Which keys (..., S) queries (..., T, 1) see, the first of which has the place `offset`: from so many before their own
// place to so many behind it; -1: all.
Symbol Seen(const Symbol& query, const Symbol& key, const Symbol& offset, int64_t left, int64_t right);
Symbol Added(const Symbol& seen, DType dtype, double otherwise);  // to scores: 0 where it is true
// What both masks let through; either may be empty, and each is of truths or of numbers of this type.
Symbol Both(Importer& im, const Symbol& a, const Symbol& b, DType dtype);

// Su et al. 2021, "RoFormer": as many numbers of each head of (N, heads, T, D) as there are angles are pairs, turned by
// the angles of their places. A pair is number i of either half, or interleaved two neighbours.
Symbol Turned(Importer& im, const Symbol& x, const Symbol& cosine, const Symbol& sine, bool interleaved);
Symbol AnglesAt(Importer& im, const Symbol& table, const Symbol& places);  // its rows, at (N, T) or (T), for all heads

// ONNX Runtime's.
void ImportProjectedAttention(Importer& im);
void ImportQuantizedAttention(Importer& im);
void ImportMultiHeadAttention(Importer& im);
void ImportGroupQueryAttention(Importer& im);

}  // namespace bindery::onnx
