#include "kvstore/compression.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/error.h"

namespace bindery {
namespace {

constexpr int kCodesInWord = 16;                                                        // of two bits
constexpr uint32_t kCodeOfPlus = 1, kCodeOfMinus = 2, kCodeOfNaN = 3, kMaskOfCode = 3;  // and 0

template <class Real>
constexpr Real kNaN = std::numeric_limits<Real>::quiet_NaN();

// f.operator()<float>() or <double>().
template <class F>
void DispatchReal(DType dtype, F&& f) {
  dtype == DType::kFloat32 ? f.template operator()<float>() : f.template operator()<double>();
}

template <class Real>
void PackTwoBits(Real threshold, Real unit, const Real* value, int64_t elements, const Real* residual, Real* rest,
                 uint32_t* packed) {
  for (int64_t begin = 0; begin < elements; begin += kCodesInWord) {
    const int64_t end = std::min(begin + kCodesInWord, elements);
    uint32_t word = 0;
    for (int64_t i = begin; i < end; ++i) {
      const Real all = residual[i] + unit * value[i];
      const uint32_t code = !std::isfinite(all) ? kCodeOfNaN
                            : all >= threshold  ? kCodeOfPlus
                            : all <= -threshold ? kCodeOfMinus
                                                : 0;
      rest[i] = code == kCodeOfPlus    ? all - threshold
                : code == kCodeOfMinus ? all + threshold
                : code == kCodeOfNaN   ? residual[i]
                                       : all;
      word |= code << (2 * (i - begin));
    }
    packed[begin / kCodesInWord] = word;
  }
}

template <class Real>
void UnpackTwoBits(Real threshold, const uint32_t* packed, int64_t elements, bool add, Real* sum) {
  const Real values[] = {0, threshold, -threshold, kNaN<Real>};
  for (int64_t i = 0; i < elements; ++i) {
    const Real value = values[(packed[i / kCodesInWord] >> (2 * (i % kCodesInWord))) & kMaskOfCode];
    sum[i] = add ? sum[i] + value : value;
  }
}

// The largest finite number.
template <class Half>
constexpr float kLargest = std::is_same_v<Half, float16> ? 65504.0f : 0x1.fep127f;

template <class Half, class Real>
void PackHalf(Real unit, const Real* value, int64_t elements, const Real* residual, Real* rest, Half* packed) {
  for (int64_t i = 0; i < elements; ++i) {
    const Real all = residual[i] + unit * value[i];
    const bool finite = std::isfinite(all);
    const Real sent = finite ? std::clamp<Real>(all, -kLargest<Half>, kLargest<Half>) : kNaN<Real>;
    packed[i] = Half(static_cast<float>(sent));
    rest[i] = finite ? all - static_cast<Real>(static_cast<float>(packed[i])) : residual[i];
  }
}

template <class Half, class Real>
void UnpackHalf(const Half* packed, int64_t elements, bool add, Real* sum) {
  for (int64_t i = 0; i < elements; ++i) {
    const Real value = static_cast<Real>(static_cast<float>(packed[i]));
    sum[i] = add ? sum[i] + value : value;
  }
}

}  // namespace

std::string ToString(const Compression& compression) {
  switch (compression.kind) {
    case CompressionKind::kNone: return "none";
    case CompressionKind::kTwoBits: return fmt::format("2bit(threshold={})", compression.threshold);
    case CompressionKind::kFloat16: return "float16";
    case CompressionKind::kBFloat16: return "bfloat16";
  }
  Throw("invalid kind of compression {}", static_cast<int>(compression.kind));
}

void CheckCompression(const Compression& compression) {
  if (compression.kind != CompressionKind::kTwoBits) return;
  const double threshold = compression.threshold;
  const bool fits = threshold >= static_cast<double>(std::numeric_limits<float>::min()) &&
                    threshold <= static_cast<double>(std::numeric_limits<float>::max());
  if (!fits) Throw("compression to two bits: the threshold must be a positive float32 number, got {}", threshold);
}

bool Compresses(const Compression& compression, DType dtype) {
  return compression.kind != CompressionKind::kNone && (dtype == DType::kFloat32 || dtype == DType::kFloat64);
}

int64_t PackedBytes(const Compression& compression, int64_t elements) {
  if (compression.kind != CompressionKind::kTwoBits) return 2 * elements;
  return (elements / kCodesInWord + (elements % kCodesInWord != 0)) * static_cast<int64_t>(sizeof(uint32_t));
}

void Pack(const Compression& compression, DType dtype, double scale, const void* value, int64_t elements,
          const void* residual, void* rest, void* packed) {
  DispatchReal(dtype, [&]<class Real>() {
    const auto unit = static_cast<Real>(1 / scale);
    const auto* values = static_cast<const Real*>(value);
    const auto* from = static_cast<const Real*>(residual);
    auto* to = static_cast<Real*>(rest);
    if (compression.kind == CompressionKind::kTwoBits) {
      PackTwoBits(static_cast<Real>(compression.threshold), unit, values, elements, from, to,
                  static_cast<uint32_t*>(packed));
    } else if (compression.kind == CompressionKind::kFloat16) {
      PackHalf(unit, values, elements, from, to, static_cast<float16*>(packed));
    } else {
      PackHalf(unit, values, elements, from, to, static_cast<bfloat16*>(packed));
    }
  });
}

void Unpack(const Compression& compression, DType dtype, const void* packed, int64_t elements, bool add, void* sum) {
  DispatchReal(dtype, [&]<class Real>() {
    auto* to = static_cast<Real*>(sum);
    if (compression.kind == CompressionKind::kTwoBits) {
      UnpackTwoBits(static_cast<Real>(compression.threshold), static_cast<const uint32_t*>(packed), elements, add, to);
    } else if (compression.kind == CompressionKind::kFloat16) {
      UnpackHalf(static_cast<const float16*>(packed), elements, add, to);
    } else {
      UnpackHalf(static_cast<const bfloat16*>(packed), elements, add, to);
    }
  });
}

void CheckPackable(DType dtype, const void* value, int64_t elements, const void* residual) {
  DispatchReal(dtype, [&]<class Real>() {
    const auto* values = static_cast<const Real*>(value);
    const auto* from = static_cast<const Real*>(residual);
    for (int64_t i = 0; i < elements; ++i) {
      if (!std::isfinite(from[i] + values[i])) {
        Throw<NumericError>("element {} is {}, with {} left from before: only finite numbers can be compressed", i,
                            values[i], from[i]);
      }
    }
  });
}

}  // namespace bindery
