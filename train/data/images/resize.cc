// Pillow's Resample.c for 8-bit channels: rows first, then columns, each rounded to bytes, with weights of 22 bits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "engine/kernels/vectorized.h"
#include "train/data/images/transform.h"

namespace bindery {
namespace {

constexpr int kBits = 32 - 8 - 2;
constexpr int32_t kHalf = 1 << (kBits - 1);  // so that the sums are rounded

// For each place of the result: which places it is made of, and by which weights.
struct Weights {
  Weights(int64_t from, int64_t to) {
    const double scale = static_cast<double>(from) / static_cast<double>(to), wide = std::max(scale, 1.0);
    most = static_cast<int64_t>(std::ceil(wide)) * 2 + 1;
    first.resize(static_cast<size_t>(to));
    count.resize(static_cast<size_t>(to));
    values.resize(static_cast<size_t>(to * most));
    std::vector<double> raw(static_cast<size_t>(most));
    for (int64_t x = 0; x < to; ++x) {
      const double centre = (static_cast<double>(x) + 0.5) * scale;
      const int64_t begin = std::max<int64_t>(0, static_cast<int64_t>(centre - wide + 0.5));
      const int64_t end = std::min(from, static_cast<int64_t>(centre + wide + 0.5));
      double sum = 0;
      for (int64_t i = begin; i < end; ++i) {
        const double distance = std::abs((static_cast<double>(i) - centre + 0.5) * (1.0 / wide));
        sum += raw[static_cast<size_t>(i - begin)] = distance < 1 ? 1 - distance : 0;
      }
      first[static_cast<size_t>(x)] = begin;
      count[static_cast<size_t>(x)] = end - begin;
      for (int64_t i = 0; i < end - begin; ++i) {
        const double weight = sum == 0 ? 0 : raw[static_cast<size_t>(i)] / sum;
        values[static_cast<size_t>(x * most + i)] = static_cast<int32_t>(0.5 + weight * (1 << kBits));
      }
    }
  }
  const int32_t* Of(size_t place) const { return values.data() + static_cast<int64_t>(place) * most; }

  int64_t most = 0;
  std::vector<int64_t> first, count;
  std::vector<int32_t> values;
};

uint8_t Round(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255)); }

// A row of three channels: `in` may be read for a byte behind its last pixel.
void ResizeRow(const uint8_t* in, const Weights& weights, uint8_t* out) {
  for (size_t x = 0; x < weights.first.size(); ++x) {
    const uint8_t* pixel = in + 3 * weights.first[x];
    const int32_t* weight = weights.Of(x);
    int32_t sums[3] = {kHalf, kHalf, kHalf};
    for (int64_t i = 0; i < weights.count[x]; ++i) {
      for (int32_t& sum : sums) sum += *pixel++ * weight[i];
    }
    for (const int32_t sum : sums) *out++ = Round(sum);
  }
}

// A row of `width` bytes, from byte x on: sums of `count` rows, as many bytes apart.
void AddRows(const uint8_t* in, int64_t width, const int32_t* weight, int64_t count, uint8_t* out, int64_t x = 0) {
  for (; x < width; ++x) {
    int32_t sum = kHalf;
    for (int64_t i = 0; i < count; ++i) sum += in[i * width + x] * weight[i];
    out[x] = Round(sum);
  }
}

#if defined(__x86_64__)
// The same in the same bits: they are whole numbers. The baseline has no product of four.
[[gnu::target("avx2")]] void ResizeRowAvx2(const uint8_t* in, const Weights& weights, uint8_t* out) {
  for (size_t x = 0; x < weights.first.size(); ++x, out += 3) {
    const uint8_t* pixel = in + 3 * weights.first[x];
    const int32_t* weight = weights.Of(x);
    __m128i sums = _mm_set1_epi32(kHalf);  // of the channels, and of the byte behind them
    for (int64_t i = 0; i < weights.count[x]; ++i, pixel += 3) {
      int32_t bytes;
      std::memcpy(&bytes, pixel, sizeof bytes);
      const __m128i values = _mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes));
      sums = _mm_add_epi32(sums, _mm_mullo_epi32(values, _mm_set1_epi32(weight[i])));
    }
    sums = _mm_srai_epi32(sums, kBits);
    const int32_t rounded = _mm_cvtsi128_si32(_mm_packus_epi16(_mm_packus_epi32(sums, sums), sums));
    std::memcpy(out, &rounded, 3);
  }
}

[[gnu::target("avx2")]] void AddRowsAvx2(const uint8_t* in, int64_t width, const int32_t* weight, int64_t count,
                                         uint8_t* out) {
  constexpr int64_t kBytes = 16;
  int64_t x = 0;
  for (; x + kBytes <= width; x += kBytes) {
    __m256i low = _mm256_set1_epi32(kHalf), high = low;
    for (int64_t i = 0; i < count; ++i) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i * width + x));
      const __m256i by = _mm256_set1_epi32(weight[i]);
      low = _mm256_add_epi32(low, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(bytes), by));
      high = _mm256_add_epi32(high, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes)), by));
    }
    // Packing works on halves: of four quarters, the two in the middle change places.
    const __m256i mixed = _mm256_packus_epi32(_mm256_srai_epi32(low, kBits), _mm256_srai_epi32(high, kBits));
    const __m256i words = _mm256_permute4x64_epi64(mixed, 0b11011000);
    const __m128i rounded = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + x), rounded);
  }
  AddRows(in, width, weight, count, out, x);
}

bool HasAvx2() { return flat::CurrentIsa() != Isa::kBaseline; }
#else
void ResizeRowAvx2(const uint8_t* in, const Weights& weights, uint8_t* out) { ResizeRow(in, weights, out); }
void AddRowsAvx2(const uint8_t* in, int64_t width, const int32_t* weight, int64_t count, uint8_t* out) {
  AddRows(in, width, weight, count, out);
}
constexpr bool HasAvx2() { return false; }
#endif

Image ResizeRows(const Image& from, int64_t columns) {
  const Weights weights(from.columns, columns);
  const int64_t channels = from.channels;
  Image to{from.rows, columns, channels, std::vector<uint8_t>(static_cast<size_t>(from.rows * columns * channels))};
  std::vector<uint8_t> row(static_cast<size_t>(from.columns * channels) + 1);
  uint8_t* out = to.pixels.data();
  for (int64_t y = 0; y < from.rows; ++y, out += columns * channels) {
    if (channels == 3) {
      std::memcpy(row.data(), from.at(y, 0), row.size() - 1);
      HasAvx2() ? ResizeRowAvx2(row.data(), weights, out) : ResizeRow(row.data(), weights, out);
      continue;
    }
    for (int64_t x = 0; x < columns; ++x) {
      const auto place = static_cast<size_t>(x);
      const uint8_t* in = from.at(y, weights.first[place]);
      int32_t sum = kHalf;
      for (int64_t i = 0; i < weights.count[place]; ++i) sum += in[i] * weights.Of(place)[i];
      out[x] = Round(sum);
    }
  }
  return to;
}

Image ResizeColumns(const Image& from, int64_t rows) {
  const Weights weights(from.rows, rows);
  const int64_t width = from.columns * from.channels;
  Image to{rows, from.columns, from.channels, std::vector<uint8_t>(static_cast<size_t>(rows * width))};
  for (int64_t y = 0; y < rows; ++y) {
    const auto place = static_cast<size_t>(y);
    const uint8_t* in = from.at(weights.first[place], 0);
    uint8_t* out = to.pixels.data() + y * width;
    HasAvx2() ? AddRowsAvx2(in, width, weights.Of(place), weights.count[place], out)
              : AddRows(in, width, weights.Of(place), weights.count[place], out);
  }
  return to;
}

}  // namespace

Image ResizeImage(const Image& from, int64_t rows, int64_t columns) {
  if (columns == from.columns) return rows == from.rows ? from : ResizeColumns(from, rows);
  Image wide = ResizeRows(from, columns);
  return rows == from.rows ? std::move(wide) : ResizeColumns(wide, rows);
}

Image CutOut(const Image& from, int64_t top, int64_t left, int64_t rows, int64_t columns) {
  Image to{rows, columns, from.channels, std::vector<uint8_t>(static_cast<size_t>(rows * columns * from.channels))};
  const int64_t begin = std::max<int64_t>(0, -left), end = std::min(columns, from.columns - left);
  if (begin >= end) return to;
  for (int64_t y = std::max<int64_t>(0, -top); y < std::min(rows, from.rows - top); ++y) {
    std::memcpy(to.pixels.data() + (y * columns + begin) * from.channels, from.at(top + y, left + begin),
                static_cast<size_t>((end - begin) * from.channels));
  }
  return to;
}

}  // namespace bindery
