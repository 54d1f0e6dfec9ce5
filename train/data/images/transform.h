// From a decoded image to what a model takes: crop, scale, mirror, colours, normalise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/philox.h"
#include "train/data/images/decode.h"

namespace bindery {

enum class ImageCrop {
  kCentre,
  kRandom,   // anywhere
  kResized,  // a random part of 8 % to 100 % of the area, its sides 3:4 to 4:3, scaled (Szegedy et al. 2014)
};

// In the order in which they are done. What is random is so in training only: elsewhere the crop is central, and
// nothing is mirrored or coloured.
struct ImageOptions {
  int64_t channels = 3, rows = 224, columns = 224;  // of the result
  // The shorter side is scaled to so many pixels, and of that rows x columns are cut out. 0: with a central crop the
  // whole image is scaled to rows x columns, whatever its sides; with a random one nothing is scaled.
  int64_t shorter_side = 0;
  int64_t padding = 0;  // pixels of 0 on each side before a random crop
  ImageCrop crop = ImageCrop::kCentre;
  bool mirror = false;  // every other image, left to right
  // By a factor from 1 - x to 1 + x each: of all values, of their distance from the mean grey, from each pixel's grey.
  float brightness = 0, contrast = 0, saturation = 0;
  std::vector<float> mean = {}, deviation = {};  // of each channel, of values from 0 to 1; empty: 0 and 1
};

// Throws DataError for options that make no sense: in training, where random crops are padded, or elsewhere.
void CheckImageOptions(const ImageOptions& options, bool in_training);

// Scales by the area under a triangle, as Pillow's Image.resize((columns, rows), BILINEAR) does, to the same bits.
Image ResizeImage(const Image& from, int64_t rows, int64_t columns);
// A part of an image; what lies outside of it is 0.
Image CutOut(const Image& from, int64_t top, int64_t left, int64_t rows, int64_t columns);

// Writes (channels, rows, columns) to `to`; pixels are from 0 to 1 before they are normalised. `random`: nullptr if not
// in training. Throws DataError, with `name`, for an image smaller than what is to be cut out of it.
void Transform(Image image, const ImageOptions& options, PhiloxStream* random, const std::string& name, float* to);

}  // namespace bindery
