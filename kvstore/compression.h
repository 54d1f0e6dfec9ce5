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
  double threshold = 0.5;  // of kTwoBits; positive, in the units of the values
  bool operator==(const Compression&) const = default;
};
std::string ToString(const Compression& compression);  // "none", "2bit(threshold=0.5)", "float16", "bfloat16"
// Throws Error unless the threshold is a positive float32 number.
void CheckCompression(const Compression& compression);

// Values of float32 and float64 are compressed; others are sent as they are.
bool Compresses(const Compression& compression, DType dtype);

// Bytes of `elements` elements as they are sent.
int64_t PackedBytes(const Compression& compression, int64_t elements);
// Packs value + residual, and leaves in `rest`, which may be `residual`, what was not packed of that. Throws
// NumericError if an element is not finite; nothing has changed then. `packed`: PackedBytes, aligned as uint32_t.
void Pack(const Compression& compression, DType dtype, const void* value, int64_t elements, const void* residual,
          void* rest, void* packed);
// sum[i] = what was packed, or, with `add`, sum[i] += that.
void Unpack(const Compression& compression, DType dtype, const void* packed, int64_t elements, bool add, void* sum);

}  // namespace bindery
