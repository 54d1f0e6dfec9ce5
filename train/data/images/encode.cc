#include "train/data/images/encode.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"

namespace bindery {

std::string EncodePng(const Image& image) {
  if (image.channels != 1 && image.channels != 3) Throw("a PNG of {} channels: expected 1 or 3", image.channels);
  if (image.rows < 1 || image.columns < 1) Throw("a PNG of {} x {} pixels", image.columns, image.rows);
  png_image writer{};
  writer.version = PNG_IMAGE_VERSION;
  writer.width = static_cast<png_uint_32>(image.columns);
  writer.height = static_cast<png_uint_32>(image.rows);
  writer.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  const std::unique_ptr<png_image, decltype(&png_image_free)> guard(&writer, &png_image_free);
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(writer);
  std::string bytes(size, '\0');
  if (!png_image_write_to_memory(&writer, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr)) {
    Throw("cannot make a PNG: {}", writer.message);
  }
  bytes.resize(size);
  return bytes;
}

Image ToImage(const HostTensor& values) {
  const int rank = values.shape().rank();
  if ((rank != 2 && rank != 3) || values.elements() == 0) {
    Throw<ShapeError>("an image is (rows, columns) or (channels, rows, columns), got {}", values.shape());
  }
  const int64_t rows = values.shape()[-2], columns = values.shape()[-1], plane = rows * columns;
  Image image{rows, columns, rank == 3 && values.shape()[0] == 3 ? 3 : 1, {}};
  image.pixels.resize(static_cast<size_t>(plane * image.channels));
  double low = 0, high = 1;  // of what is within, nothing is to be scaled
  const int64_t shown = plane * image.channels;
  bool is_within = true, any = false;
  double least = 0, most = 0;
  for (int64_t i = 0; i < shown; ++i) {
    const double value = values.At(i);
    if (!std::isfinite(value)) continue;
    least = any ? std::min(least, value) : value;
    most = any ? std::max(most, value) : value;
    any = true;
    is_within = is_within && value >= 0 && value <= 1;
  }
  if (!is_within) {
    low = least;
    high = most > least ? most : least + 1;
  }
  for (int64_t c = 0; c < image.channels; ++c) {
    for (int64_t i = 0; i < plane; ++i) {
      const double part = (values.At(c * plane + i) - low) / (high - low);  // of infinities beyond, or not a number
      const double clamped = part >= 1 ? 1 : part > 0 ? part : 0;
      image.pixels[static_cast<size_t>(i * image.channels + c)] = static_cast<uint8_t>(std::lround(clamped * 255));
    }
  }
  return image;
}

}  // namespace bindery
