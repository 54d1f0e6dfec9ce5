#include "train/data/images/transform.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "base/error.h"

namespace bindery {
namespace {

float Grey(const float* values, int64_t plane) {
  return 0.299f * values[0] + 0.587f * values[plane] + 0.114f * values[2 * plane];
}

int64_t Below(PhiloxStream* random, int64_t n) { return static_cast<int64_t>(random->Below(static_cast<uint64_t>(n))); }

// A part of which area and sides are drawn; if ten do not fit, the largest in the middle of those sides.
Image RandomPart(const Image& image, PhiloxStream* random) {
  constexpr float kSides = 0.28768207f;  // log(4/3)
  const auto area = static_cast<float>(image.rows * image.columns);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const float part = area * random->Uniform(0.08f, 1), sides = std::exp(random->Uniform(-kSides, kSides));
    const int64_t columns = std::lround(std::sqrt(part * sides)), rows = std::lround(std::sqrt(part / sides));
    if (rows < 1 || columns < 1 || rows > image.rows || columns > image.columns) continue;
    const int64_t top = Below(random, image.rows - rows + 1);
    return CutOut(image, top, Below(random, image.columns - columns + 1), rows, columns);
  }
  const int64_t rows = std::clamp<int64_t>(image.columns * 4 / 3, 1, image.rows);
  const int64_t columns = std::clamp<int64_t>(image.rows * 4 / 3, 1, image.columns);
  return CutOut(image, (image.rows - rows) / 2, (image.columns - columns) / 2, rows, columns);
}

// Resize that refuses what takes much more memory than the image did, or will.
Image Scale(const Image& image, int64_t rows, int64_t columns, const std::string& name) {
  constexpr int64_t kMostPixels = int64_t{1} << 27;
  if (columns > kMostPixels / std::max(rows, image.rows)) {
    Throw<DataError>("{}: {} x {} pixels, too long and narrow to scale to {} x {}", name, image.columns, image.rows,
                     columns, rows);
  }
  return ResizeImage(image, rows, columns);
}

int64_t PaddingOf(const ImageOptions& options, bool in_training) {
  return options.crop == ImageCrop::kRandom && in_training ? options.padding : 0;
}

// rows x columns of what is left of the image.
Image Frame(Image image, const ImageOptions& options, PhiloxStream* random, const std::string& name) {
  if (options.crop == ImageCrop::kResized && random != nullptr) {
    return Scale(RandomPart(image, random), options.rows, options.columns, name);
  }
  if (const int64_t side = options.shorter_side; side > 0) {
    const int64_t shorter = std::min(image.rows, image.columns);
    image = Scale(image, image.rows * side / shorter, image.columns * side / shorter, name);
  } else if (options.crop != ImageCrop::kRandom) {
    return Scale(image, options.rows, options.columns, name);
  }
  const int64_t padding = PaddingOf(options, random != nullptr);
  const int64_t down = image.rows + 2 * padding - options.rows, right = image.columns + 2 * padding - options.columns;
  if (down < 0 || right < 0) {
    Throw<DataError>("{}: {} x {} pixels are too few to cut {} x {} out of them", name, image.columns, image.rows,
                     options.columns, options.rows);
  }
  if (options.crop != ImageCrop::kRandom || random == nullptr) {
    return CutOut(image, down / 2, right / 2, options.rows, options.columns);
  }
  const int64_t top = Below(random, down + 1) - padding;
  return CutOut(image, top, Below(random, right + 1) - padding, options.rows, options.columns);
}

void Blend(float* value, float with, float factor) { *value = std::clamp(with + factor * (*value - with), 0.0f, 1.0f); }

void Colour(const ImageOptions& options, PhiloxStream* random, float* values) {
  const int64_t plane = options.rows * options.columns, count = plane * options.channels;
  const auto factor = [&](float x) { return random->Uniform(1 - x, 1 + x); };
  if (options.brightness > 0) {
    const float by = factor(options.brightness);
    for (int64_t i = 0; i < count; ++i) Blend(values + i, 0, by);
  }
  if (options.contrast > 0) {
    double sum = 0;
    for (int64_t i = 0; i < plane; ++i) sum += options.channels == 1 ? values[i] : Grey(values + i, plane);
    const float mean = static_cast<float>(sum / static_cast<double>(plane)), by = factor(options.contrast);
    for (int64_t i = 0; i < count; ++i) Blend(values + i, mean, by);
  }
  if (options.saturation > 0 && options.channels == 3) {
    const float by = factor(options.saturation);
    for (int64_t i = 0; i < plane; ++i) {
      const float grey = Grey(values + i, plane);
      for (int64_t c = 0; c < 3; ++c) Blend(values + c * plane + i, grey, by);
    }
  }
}

}  // namespace

void CheckImageOptions(const ImageOptions& options, bool in_training) {
  constexpr int64_t kMostSide = 1 << 14;
  const auto side = [&](const char* what, int64_t value, int64_t low) {
    if (value < low || value > kMostSide) {
      Throw<DataError>("images: {} of {} pixels; expected {} to {}", what, value, low, kMostSide);
    }
  };
  side("rows", options.rows, 1);
  side("columns", options.columns, 1);
  side("a shorter side", options.shorter_side, 0);
  side("padding", options.padding, 0);
  if (options.channels != 1 && options.channels != 3) {
    const bool has_channels_last = options.columns == 1 || options.columns == 3;  // TensorFlow's
    Throw<DataError>("images: expected 1 or 3 channels, got {}{}", options.channels,
                     has_channels_last ? fmt::format(": a model that takes ({}, {}, {}) has them last, but they must "
                                                     "come first; tf2onnx has --inputs-as-nchw for that",
                                                     options.channels, options.rows, options.columns)
                                       : "");
  }
  const bool cut = options.shorter_side > 0 && !(options.crop == ImageCrop::kResized && in_training);
  const int64_t padded = options.shorter_side + 2 * PaddingOf(options, in_training);
  if (cut && padded < std::max(options.rows, options.columns)) {
    Throw<DataError>("images: a shorter side of {} pixels is too small to cut {} x {} out of it", options.shorter_side,
                     options.columns, options.rows);
  }
  for (const float x : {options.brightness, options.contrast, options.saturation}) {
    if (!(x >= 0 && x <= 1)) Throw<DataError>("images: changes of colour are from 0 to 1, got {}", x);
  }
  for (const auto* values : {&options.mean, &options.deviation}) {
    const auto count = static_cast<int64_t>(values->size());
    if (count != 0 && count != 1 && count != options.channels) {
      Throw<DataError>("images: {} means or deviations for {} channels", count, options.channels);
    }
  }
  for (const float deviation : options.deviation) {
    if (!(deviation > 0)) Throw<DataError>("images: expected deviations above 0, got {}", deviation);
  }
}

void Transform(Image image, const ImageOptions& options, PhiloxStream* random, const std::string& name, float* to) {
  image = Frame(std::move(image), options, random, name);
  const bool mirrored = options.mirror && random != nullptr && (random->Next() & 1);
  const bool coloured = random != nullptr && (options.brightness > 0 || options.contrast > 0 || options.saturation > 0);
  const int64_t channels = options.channels, plane = options.rows * options.columns;
  const auto of_channel = [](const std::vector<float>& values, int64_t c, float otherwise) {
    return values.empty() ? otherwise : values[values.size() == 1 ? 0 : static_cast<size_t>(c)];
  };
  const auto normal = [&](int64_t c, float value) {
    return (value - of_channel(options.mean, c, 0)) / of_channel(options.deviation, c, 1);
  };
  for (int64_t c = 0; c < channels; ++c) {
    std::array<float, 256> table;
    for (int i = 0; i < 256; ++i) {
      const float value = static_cast<float>(i) / 255.0f;
      table[static_cast<size_t>(i)] = coloured ? value : normal(c, value);
    }
    float* out = to + c * plane;
    for (int64_t y = 0; y < options.rows; ++y) {
      const uint8_t* in = image.at(y, mirrored ? options.columns - 1 : 0) + c;
      const int64_t step = mirrored ? -channels : channels;
      for (int64_t x = 0; x < options.columns; ++x) *out++ = table[in[x * step]];
    }
  }
  if (!coloured) return;
  Colour(options, random, to);
  for (int64_t c = 0; c < channels; ++c) {
    for (float& value : std::span(to + c * plane, static_cast<size_t>(plane))) value = normal(c, value);
  }
}

}  // namespace bindery
