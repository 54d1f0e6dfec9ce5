#include "train/data/images/decode.h"

#include <png.h>
#include <turbojpeg.h>

#include <cstring>
#include <memory>
#include <new>

#include "base/error.h"

namespace bindery {
namespace {

void CheckSize(int64_t rows, int64_t columns, int64_t max_pixels, const std::string& name) {
  if (rows < 1 || columns < 1 || rows > max_pixels / columns) {
    Throw<DataError>("{}: {} x {} pixels, the limit is {} in all", name, columns, rows, max_pixels);
  }
}

// As Pillow rounds it.
uint8_t Luma(const uint8_t* pixel) {
  return static_cast<uint8_t>((pixel[0] * 19595u + pixel[1] * 38470u + pixel[2] * 7471u + 0x8000u) >> 16);
}

struct DestroyJpeg {
  void operator()(void* handle) const { tjDestroy(handle); }
};

Image DecodeJpeg(std::string_view bytes, int64_t channels, const std::string& name, int64_t max_pixels) {
  // It keeps tables and buffers, so a thread has one.
  thread_local std::unique_ptr<void, DestroyJpeg> decoder;
  if (decoder == nullptr) decoder.reset(tjInitDecompress());
  if (decoder == nullptr) throw std::bad_alloc();
  const auto check = [&](int result) {
    if (result == 0) return;
    const std::string reason = tjGetErrorStr2(decoder.get());
    decoder.reset();  // after a header that is damaged, it would take up the next image in the middle
    Throw<DataError>("{}: damaged: {}", name, reason);
  };
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  int columns = 0, rows = 0, subsampling = 0, colours = 0;
  check(tjDecompressHeader3(decoder.get(), data, bytes.size(), &columns, &rows, &subsampling, &colours));
  CheckSize(rows, columns, max_pixels, name);
  const bool cmyk = colours == TJCS_CMYK || colours == TJCS_YCCK;
  const int stored = cmyk ? 4 : static_cast<int>(channels);
  const int format = cmyk ? TJPF_CMYK : channels == 1 ? TJPF_GRAY : TJPF_RGB;
  Image image{rows, columns, stored, std::vector<uint8_t>(static_cast<size_t>(int64_t{rows} * columns * stored))};
  // What libjpeg would make up for a damaged part is no image; scans without end are refused.
  check(tjDecompress2(decoder.get(), data, bytes.size(), image.pixels.data(), columns, 0, rows, format,
                      TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS));
  if (!cmyk) return image;
  Image converted{rows, columns, channels,
                  std::vector<uint8_t>(image.pixels.size() / 4 * static_cast<size_t>(channels))};
  for (size_t i = 0; i < image.pixels.size() / 4; ++i) {
    const uint8_t* from = image.pixels.data() + 4 * i;  // Adobe's are inverted: 255 is no ink
    uint8_t rgb[3];
    for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>((from[c] * from[3] + 127) / 255);
    uint8_t* to = converted.pixels.data() + static_cast<size_t>(channels) * i;
    channels == 1 ? void(*to = Luma(rgb)) : void(std::memcpy(to, rgb, 3));
  }
  return converted;
}

Image DecodePng(std::string_view bytes, int64_t channels, const std::string& name, int64_t max_pixels) {
  png_image reader{};
  reader.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, decltype(&png_image_free)> guard(&reader, &png_image_free);
  const auto check = [&](int ok) {
    if (!ok) Throw<DataError>("{}: damaged: {}", name, reader.message);
  };
  check(png_image_begin_read_from_memory(&reader, bytes.data(), bytes.size()));
  CheckSize(reader.height, reader.width, max_pixels, name);
  // With transparency, libpng leaves the colours alone, which it would otherwise set before a background.
  reader.format = PNG_FORMAT_RGBA;
  reader.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  const size_t count = size_t{reader.height} * reader.width;
  std::vector<uint8_t> pixels(count * 4);
  check(png_image_finish_read(&reader, nullptr, pixels.data(), 0, nullptr));
  Image image{reader.height, reader.width, channels, {}};
  image.pixels.resize(count * static_cast<size_t>(channels));
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* from = pixels.data() + 4 * i;
    uint8_t* to = image.pixels.data() + static_cast<size_t>(channels) * i;
    channels == 1 ? void(*to = Luma(from)) : void(std::memcpy(to, from, 3));
  }
  return image;
}

}  // namespace

Image DecodeImage(std::string_view bytes, int64_t channels, const std::string& name, int64_t max_pixels) {
  if (channels != 1 && channels != 3) Throw<DataError>("{}: images have 1 or 3 channels, not {}", name, channels);
  if (bytes.starts_with("\xFF\xD8\xFF")) return DecodeJpeg(bytes, channels, name, max_pixels);
  if (bytes.starts_with("\x89PNG\r\n\x1A\n")) return DecodePng(bytes, channels, name, max_pixels);
  Throw<DataError>("{}: neither a JPEG nor a PNG image", name);
}

}  // namespace bindery
