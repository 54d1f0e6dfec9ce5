// JPEG and PNG in memory, decoded by libjpeg-turbo and libpng.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bindery {

struct Image {
  int64_t rows = 0, columns = 0, channels = 0;
  std::vector<uint8_t> pixels;  // row by row, the channels of a pixel side by side

  const uint8_t* at(int64_t row, int64_t column) const { return pixels.data() + (row * columns + column) * channels; }
};

// As grey (1 channel) or red, green, blue (3). Of colours, grey is ITU-R 601's luma; of a JPEG, what the file has as
// such. Transparency is left out, 16 bits become 8, CMYK is taken as Adobe writes it; orientation tags and colour
// profiles do not count. `name` is for messages.
// Throws DataError: neither JPEG nor PNG, damaged or cut off in any place, more than `max_pixels`, which is checked
// before anything is allocated.
Image DecodeImage(std::string_view bytes, int64_t channels, const std::string& name,
                  int64_t max_pixels = int64_t{1} << 26);

}  // namespace bindery
