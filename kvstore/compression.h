// What is sent of a value that is pushed, where the way between devices is narrow: fewer bits of each element. What they
// leave out, the residual, stays with the sender and is added to its next push, so nothing of a sum over pushes is lost,
// it comes later.
//
// Two bits: each element is sent as +threshold, 0 or -threshold (N. Strom, Scalable distributed DNN training using
// commodity GPU cloud computing, Interspeech 2015; as MXNet's "2bit"). 16 bits: as float16 or bfloat16, rounded to
// nearest even; what is beyond float16 is sent as its largest number.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"

namespace bindery {

enum class CompressionKind : uint8_t { kNone, kTwoBits, kFloat16, kBFloat16 };

struct Compression {
  CompressionKind kind = CompressionKind::kNone;
  double threshold = 0.5;  // of kTwoBits; positive, in the units of the values without their scale
  bool operator==(const Compression&) const = default;
};
std::string ToString(const Compression& compression);  // "none", "2bit(threshold=0.5)", "float16", "bfloat16"
// Throws Error unless the threshold is a positive float32 number.
void CheckCompression(const Compression& compression);

// Values of float32 and float64 are compressed; others are sent as they are.
bool Compresses(const Compression& compression, DType dtype);

// Bytes of `elements` elements as they are sent.
int64_t PackedBytes(const Compression& compression, int64_t elements);
// Packs value / scale + residual, and leaves in `rest`, which may be `residual`, what was not packed of that. Residuals
// have no scale, so a power of two changes no bit of them. An element that is not finite is packed as NaN, and leaves
// its residual as it is. `packed`: PackedBytes, aligned as uint32_t.
void Pack(const Compression& compression, DType dtype, double scale, const void* value, int64_t elements,
          const void* residual, void* rest, void* packed);
// sum[i] = what was packed, without the scale, or, with `add`, sum[i] += that.
void Unpack(const Compression& compression, DType dtype, const void* packed, int64_t elements, bool add, void* sum);
// Throws NumericError unless all elements of value + residual are finite.
void CheckPackable(DType dtype, const void* value, int64_t elements, const void* residual);

}  // namespace bindery
