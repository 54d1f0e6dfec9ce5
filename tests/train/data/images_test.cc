// Images decoded and resized as Pillow does (stored/make_data.py), and what is done to them in training.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "engine/kernels/vectorized.h"
#include "tests/message_of.h"
#include "train/data/images/transform.h"
#include "train/data/tables/npy.h"

namespace bindery {
namespace {

const std::string kFolder = "tests/train/stored/pillow_";

Image Decode(const std::string& file, int64_t channels) {
  return DecodeImage(ReadFile(kFolder + file), channels, file);
}

const HostTensorMap& Expected() {
  static const HostTensorMap kExpected = ReadNpz(kFolder + "expected.npz");
  return kExpected;
}

// The largest difference of a pixel; 256 if the sizes differ.
int Difference(const Image& image, const HostTensor& expected) {
  if (image.rows != expected.shape()[0] || image.columns != expected.shape()[1] ||
      static_cast<int64_t>(image.pixels.size()) != expected.elements()) {
    return 256;
  }
  int most = 0;
  const auto values = expected.data<uint8_t>();
  for (size_t i = 0; i < values.size(); ++i) most = std::max(most, std::abs(image.pixels[i] - values[i]));
  return most;
}

TEST(DecodeImage, AsPillow) {
  for (const std::string file : {"rgb.png", "grey.png", "palette.png", "bits.png", "alpha.png"}) {
    EXPECT_EQ(Difference(Decode(file, 3), Expected().at(file + "_rgb")), 0) << file;
    EXPECT_EQ(Difference(Decode(file, 1), Expected().at(file + "_grey")), 0) << file;
  }
  for (const std::string file : {"rgb.jpg", "progressive.jpg", "grey.jpg"}) {
    // The decoder that Pillow brings is a later one of the same family.
    EXPECT_LE(Difference(Decode(file, 3), Expected().at(file + "_rgb")), 1) << file;
  }
}

TEST(DecodeImage, DamagedAnywhere) {
  for (const std::string file : {"rgb.jpg", "progressive.jpg", "palette.png", "bits.png"}) {
    const std::string whole = ReadFile(kFolder + file);
    const auto fails = [&](const std::string& bytes) {
      try {
        DecodeImage(bytes, 3, "f");
        return false;
      } catch (const DataError&) {
        return true;
      }
    };
    for (size_t at = 0; at + 12 < whole.size(); ++at) {  // behind, PNG has a last chunk without content
      EXPECT_TRUE(fails(whole.substr(0, at))) << file << " cut at " << at;
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ 0xff);
      fails(bytes);
      EXPECT_FALSE(fails(whole)) << "after " << file << " with another byte " << at;
    }
  }
}

TEST(DecodeImage, Errors) {
  EXPECT_EQ(MessageOf<DataError>([] { DecodeImage("GIF89a", 3, "f.gif"); }),
            "DataError: f.gif: neither a JPEG nor a PNG image");
  for (const std::string file : {"rgb.jpg", "rgb.png"}) {
    EXPECT_EQ(MessageOf<DataError>([&] { DecodeImage(ReadFile(kFolder + file), 3, "f", 1000); }),
              "DataError: f: 53 x 37 pixels, the limit is 1000 in all");
  }
  // A header that promises 65500 x 65500 pixels of a file of 1157 bytes.
  std::string large = ReadFile(kFolder + "rgb.jpg");
  const size_t frame = large.find("\xFF\xC0");
  large.replace(frame + 5, 4, "\xFF\xDC\xFF\xDC");
  EXPECT_EQ(MessageOf<DataError>([&] { DecodeImage(large, 3, "f"); }),
            "DataError: f: 65500 x 65500 pixels, the limit is 67108864 in all");
}

TEST(Resize, AsPillow) {
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2}) {
    flat::LimitIsa(isa);
    for (const int64_t channels : {1, 3}) {
      const Image photo = Decode(channels == 1 ? "grey.png" : "rgb.png", channels);
      for (const auto& [rows, columns] :
           std::vector<std::pair<int, int>>{{16, 16}, {74, 53}, {37, 20}, {100, 91}, {1, 1}}) {
        const std::string name = fmt::format("{}_{}_{}", channels == 1 ? "L" : "RGB", rows, columns);
        EXPECT_EQ(Difference(ResizeImage(photo, rows, columns), Expected().at(name)), 0) << name << ToString(isa);
      }
    }
  }
  flat::LimitIsa(Isa::kAvx512);
}

// A grey image whose pixels tell their place: 10 * row + column.
Image Places(int64_t rows, int64_t columns) {
  Image image{rows, columns, 1, {}};
  for (int64_t i = 0; i < rows * columns; ++i)
    image.pixels.push_back(static_cast<uint8_t>(10 * (i / columns) + i % columns));
  return image;
}

std::vector<int> Transformed(const Image& image, const ImageOptions& options, uint64_t seed, bool training = true) {
  std::vector<float> values(static_cast<size_t>(options.channels * options.rows * options.columns));
  PhiloxStream random(seed, "test");
  Transform(image, options, training ? &random : nullptr, "f", values.data());
  std::vector<int> pixels;
  for (const float value : values) pixels.push_back(static_cast<int>(std::lround(value * 255)));
  return pixels;
}

TEST(Transform, CropsAndMirrors) {
  const ImageOptions centre{.channels = 1, .rows = 2, .columns = 2, .shorter_side = 4};
  EXPECT_EQ(Transformed(Places(4, 6), centre, 0), (std::vector<int>{12, 13, 22, 23}));
  ImageOptions options{
      .channels = 1, .rows = 4, .columns = 4, .padding = 2, .crop = ImageCrop::kRandom, .mirror = true};
  std::map<std::pair<int, bool>, int> seen;
  const Image image = Places(4, 4);
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const std::vector<int> pixels = Transformed(image, options, seed);
    EXPECT_EQ(pixels, Transformed(image, options, seed));
    for (int y = 0; y < 5; ++y) {
      for (int x = 0; x < 5; ++x) {
        for (const bool mirrored : {false, true}) {
          std::vector<int> wanted;
          for (int r = 0; r < 4; ++r) {
            for (int c = 0; c < 4; ++c) {
              const int row = y - 2 + r, column = x - 2 + (mirrored ? 3 - c : c);
              wanted.push_back(row < 0 || row > 3 || column < 0 || column > 3 ? 0 : 10 * row + column);
            }
          }
          if (wanted == pixels) ++seen[{y * 5 + x, mirrored}];
        }
      }
    }
  }
  ASSERT_EQ(seen.size(), 50u);  // every place, both ways, and nothing else
  int total = 0;
  for (const auto& [place, count] : seen) {
    total += count;
    EXPECT_GT(count, 15);
    EXPECT_LT(count, 75);
  }
  EXPECT_EQ(total, 2000);
  // Not in training: the middle, as it is.
  EXPECT_EQ(Transformed(image, options, 7, false), std::vector<int>(image.pixels.begin(), image.pixels.end()));
  EXPECT_EQ(MessageOf<DataError>([&] {
              Transformed(Places(3, 4), {.channels = 1, .rows = 4, .columns = 4, .crop = ImageCrop::kRandom}, 0);
            }),
            "DataError: f: 4 x 3 pixels are too few to cut 4 x 4 out of them");
}

TEST(Transform, ResizedPartsAndColours) {
  const Image photo = Decode("rgb.png", 3);
  const ImageOptions part{.rows = 8, .columns = 8, .crop = ImageCrop::kResized};
  std::set<std::vector<int>> different;
  for (uint64_t seed = 0; seed < 50; ++seed) different.insert(Transformed(photo, part, seed));
  EXPECT_GT(different.size(), 45u);
  // Colours change about their formula's centre: one value, all values alike, grey pixels.
  const Image grey{2, 2, 3, std::vector<uint8_t>(12, 100)};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(Transformed(grey, {.rows = 2, .columns = 2, .contrast = 0.5}, seed), std::vector<int>(12, 100));
    EXPECT_EQ(Transformed(grey, {.rows = 2, .columns = 2, .saturation = 0.5}, seed), std::vector<int>(12, 100));
    const std::vector<int> bright = Transformed(grey, {.rows = 2, .columns = 2, .brightness = 0.5}, seed);
    EXPECT_EQ(bright, std::vector<int>(12, bright[0]));
    EXPECT_GE(bright[0], 50);
    EXPECT_LE(bright[0], 150);
  }
  std::vector<float> values(3);
  Transform({1, 1, 3, {0, 51, 255}}, {.rows = 1, .columns = 1, .mean = {0.5, 0.2, 0}, .deviation = {2}}, nullptr, "f",
            values.data());
  EXPECT_FLOAT_EQ(values[0], -0.25f);
  EXPECT_FLOAT_EQ(values[1], 0);
  EXPECT_FLOAT_EQ(values[2], 0.5f);
}

// Models of TensorFlow have them last.
TEST(Transform, ChannelsComeFirst) {
  EXPECT_EQ(
      MessageOf<DataError>([] { CheckImageOptions({.channels = 96, .rows = 96, .columns = 3}, false); }),
      "DataError: images: expected 1 or 3 channels, got 96: a model that takes (96, 96, 3) has them last, but they "
      "must come first; tf2onnx has --inputs-as-nchw for that");
  EXPECT_EQ(MessageOf<DataError>([] { CheckImageOptions({.channels = 4}, false); }),
            "DataError: images: expected 1 or 3 channels, got 4");
}

// 1 x 30 million pixels, whose shorter side would become 256: no such image is made.
TEST(Transform, LongAndNarrowImagesAreRefused) {
  EXPECT_EQ(MessageOf<DataError>([] {
              Transformed({30'000'000, 1, 1, std::vector<uint8_t>(30'000'000)},
                          {.channels = 1, .rows = 224, .columns = 224, .shorter_side = 256}, 0);
            }),
            "DataError: f: 1 x 30000000 pixels, too long and narrow to scale to 256 x 7680000000");
  EXPECT_EQ(MessageOf<DataError>([] { CheckImageOptions({.shorter_side = 200}, false); }),
            "DataError: images: a shorter side of 200 pixels is too small to cut 224 x 224 out of it");
  EXPECT_EQ(MessageOf<DataError>([] {
              CheckImageOptions({.mean = {0.5, 0.5}}, true);
            }),
            "DataError: images: 2 means or deviations for 3 channels");
}

}  // namespace
}  // namespace bindery
