// Digits that the program draws itself: data to learn from where there is no file. 28 x 28 grey images like those of
// MNIST: strokes of a few ways to write each digit, moved, scaled, turned, slanted and bent at random, with a pen of
// random width, anti-aliased, with noise. Image i is a function of (seed, i) alone.
#pragma once

#include <cstdint>

#include "train/data/image_set.h"

namespace bindery {

// Images first .. first + count - 1. Every ten images from a multiple of ten on are one of each digit, in random order.
// So a test set is another range of the same seed. Throws DataError if count or first is negative.
ImageSet DrawDigits(int64_t count, uint64_t seed, int64_t first = 0);

}  // namespace bindery
