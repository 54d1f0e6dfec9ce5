// Pillow's Resample.c for 8-bit channels: rows first, then columns, each rounded to bytes, with weights of 22 bits.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "train/data/images/transform.h"

namespace bindery {
namespace {

constexpr int kBits = 32 - 8 - 2;

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
  int64_t most = 0;
  std::vector<int64_t> first, count;
  std::vector<int32_t> values;
};

uint8_t Round(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255)); }

template <int kChannels>
Image ResizeRows(const Image& from, int64_t columns) {
  const Weights weights(from.columns, columns);
  Image to{from.rows, columns, kChannels, std::vector<uint8_t>(static_cast<size_t>(from.rows * columns * kChannels))};
  uint8_t* out = to.pixels.data();
  for (int64_t y = 0; y < from.rows; ++y) {
    for (int64_t x = 0; x < columns; ++x) {
      const auto place = static_cast<size_t>(x);
      const uint8_t* in = from.at(y, weights.first[place]);
      const int32_t* weight = weights.values.data() + x * weights.most;
      int32_t sums[kChannels];
      for (int32_t& sum : sums) sum = 1 << (kBits - 1);
      for (int64_t i = 0; i < weights.count[place]; ++i) {
        for (int c = 0; c < kChannels; ++c) sums[c] += *in++ * weight[i];
      }
      for (const int32_t sum : sums) *out++ = Round(sum);
    }
  }
  return to;
}

Image ResizeColumns(const Image& from, int64_t rows) {
  const Weights weights(from.rows, rows);
  const int64_t width = from.columns * from.channels;
  Image to{rows, from.columns, from.channels, std::vector<uint8_t>(static_cast<size_t>(rows * width))};
  std::vector<int32_t> sums(static_cast<size_t>(width));
  uint8_t* out = to.pixels.data();
  for (int64_t y = 0; y < rows; ++y) {
    std::ranges::fill(sums, 1 << (kBits - 1));
    for (int64_t i = 0; i < weights.count[static_cast<size_t>(y)]; ++i) {
      const uint8_t* in = from.at(weights.first[static_cast<size_t>(y)] + i, 0);
      const int32_t weight = weights.values[static_cast<size_t>(y * weights.most + i)];
      for (int64_t x = 0; x < width; ++x) sums[static_cast<size_t>(x)] += in[x] * weight;
    }
    for (const int32_t sum : sums) *out++ = Round(sum);
  }
  return to;
}

}  // namespace

Image ResizeImage(const Image& from, int64_t rows, int64_t columns) {
  Image wide;
  const Image* at = &from;
  if (columns != from.columns) {
    wide = from.channels == 1 ? ResizeRows<1>(from, columns) : ResizeRows<3>(from, columns);
    at = &wide;
  }
  if (rows != from.rows) return ResizeColumns(*at, rows);
  return at == &from ? from : wide;
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
