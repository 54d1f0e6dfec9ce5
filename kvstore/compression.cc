#include "kvstore/compression.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/error.h"

namespace bindery {
namespace {

constexpr int kCodesInWord = 16;                                        // of two bits
constexpr uint32_t kCodeOfPlus = 1, kCodeOfMinus = 2, kMaskOfCode = 3;  // and 0

// f.operator()<float>() or <double>().
template <class F>
void DispatchReal(DType dtype, F&& f) {
  dtype == DType::kFloat32 ? f.template operator()<float>() : f.template operator()<double>();
}

template <class Real>
void CheckFinite(const Real* value, const Real* residual, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    if (!std::isfinite(residual[i] + value[i])) {
      Throw<NumericError>("element {} is {}, with {} left from before: only finite numbers can be compressed", i,
                          value[i], residual[i]);
    }
  }
}

template <class Real>
void PackTwoBits(Real threshold, const Real* value, int64_t elements, const Real* residual, Real* rest,
                 uint32_t* packed) {
  for (int64_t begin = 0; begin < elements; begin += kCodesInWord) {
    const int64_t end = std::min(begin + kCodesInWord, elements);
    uint32_t word = 0;
    for (int64_t i = begin; i < end; ++i) {
      const Real all = residual[i] + value[i];
      const uint32_t code = all >= threshold ? kCodeOfPlus : all <= -threshold ? kCodeOfMinus : 0;
      rest[i] = code == kCodeOfPlus ? all - threshold : code == kCodeOfMinus ? all + threshold : all;
      word |= code << (2 * (i - begin));
    }
    packed[begin / kCodesInWord] = word;
  }
}

template <class Real>
void UnpackTwoBits(Real threshold, const uint32_t* packed, int64_t elements, bool add, Real* sum) {
  const Real values[] = {0, threshold, -threshold, 0};
  for (int64_t i = 0; i < elements; ++i) {
    const Real value = values[(packed[i / kCodesInWord] >> (2 * (i % kCodesInWord))) & kMaskOfCode];
    sum[i] = add ? sum[i] + value : value;
  }
}

// The largest finite number.
template <class Half>
constexpr float kLargest = std::is_same_v<Half, float16> ? 65504.0f : 0x1.fep127f;

template <class Half, class Real>
void PackHalf(const Real* value, int64_t elements, const Real* residual, Real* rest, Half* packed) {
  for (int64_t i = 0; i < elements; ++i) {
    const Real all = residual[i] + value[i];
    packed[i] = Half(static_cast<float>(std::clamp<Real>(all, -kLargest<Half>, kLargest<Half>)));
    rest[i] = all - static_cast<Real>(static_cast<float>(packed[i]));
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

void Pack(const Compression& compression, DType dtype, const void* value, int64_t elements, const void* residual,
          void* rest, void* packed) {
  DispatchReal(dtype, [&]<class Real>() {
    const auto* values = static_cast<const Real*>(value);
    const auto* from = static_cast<const Real*>(residual);
    auto* to = static_cast<Real*>(rest);
    CheckFinite(values, from, elements);
    if (compression.kind == CompressionKind::kTwoBits) {
      PackTwoBits(static_cast<Real>(compression.threshold), values, elements, from, to, static_cast<uint32_t*>(packed));
    } else if (compression.kind == CompressionKind::kFloat16) {
      PackHalf(values, elements, from, to, static_cast<float16*>(packed));
    } else {
      PackHalf(values, elements, from, to, static_cast<bfloat16*>(packed));
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

}  // namespace bindery
