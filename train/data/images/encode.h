// Images out of numbers, and PNG out of images, by libpng.
#pragma once

#include <string>

#include "base/host_tensor.h"
#include "train/data/images/decode.h"

namespace bindery {

// A PNG of 8 bits, grey (1 channel) or red, green, blue (3). Throws Error for other channels, and for an image without
// pixels.
std::string EncodePng(const Image& image);

// What people can look at, of numbers of any type, (rows, columns) or (channels, rows, columns): those from 0 to 1 as
// they are, others (of normalised images, of bytes) scaled so that the lowest is black and the highest white; what is
// not a number is black. Of other than 3 channels the first. Throws ShapeError for other ranks and for no elements.
Image ToImage(const HostTensor& values);

}  // namespace bindery
