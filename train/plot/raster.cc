#include "train/plot/raster.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "train/data/images/encode.h"

namespace bindery {
namespace {

// 5 x 7 dots of the characters from space to tilde: seven rows each, top first, a digit to the base of 32 for a row, of
// which the highest bit is the leftmost dot.
constexpr int kRows = 7, kDots = 5;
constexpr char kFont[] =
    "00000004444404aa00000aavavaa4fke5u4op248j3cik8lid44000002488842842224804lel40044v4400000448000v00000000cc"
    "11248gg"
    "ehjlphe4c4444eeh1248vv2421he26aiv22vgu11he68guhhev124888ehhehheehhf12c"
    "0cc0cc00cc0c48248g84200v0v008421248eh12404ehnlnge"
    "ehhvhhhuhhuhhuehggghesihhhisvgguggvvggugggehgnhhfhhhvhhhe44444e72222ichikokihggggggvhrllhhhhhpljhhehhhhhe"
    "uhhugggehhhliduhhukihfgge11uv444444hhhhhhehhhhha4hhhlllahha4ahhhhha444v1248gv"
    "e88888egg84211e22222e4ah0000000000v8400000"
    "00e1fhfggmphhu00egghe11djhhf00ehvge698s88800fhf1eggmphhh40c444e20622icggikokic44444e00qllhh00mphhh00ehhhe"
    "00uhugg00djf1100mpggg00fge1u88s889600hhhjd00hhha400hhlla00ha4ah00hhf1e00v248v"
    "244844244444448442448008l200";
static_assert(sizeof kFont == 95 * kRows + 1);

int RowOf(char character, int row) {
  const int index = character >= ' ' && character <= '~' ? character - ' ' : '?' - ' ';
  const char digit = kFont[index * kRows + row];
  return digit <= '9' ? digit - '0' : digit - 'a' + 10;
}

class Raster final : public Painter {
 public:
  Raster(int width, int height, int scale)
      : scale_(scale), image_{int64_t{height} * scale, int64_t{width} * scale, 3, {}} {
    image_.pixels.assign(static_cast<size_t>(image_.rows * image_.columns * 3), 255);
  }

  void Line(Point from, Point to, Colour colour, double width) override {
    const double length = std::max(std::abs(to.x - from.x), std::abs(to.y - from.y)) * scale_;
    const int steps = std::max(1, static_cast<int>(std::ceil(length)));
    for (int i = 0; i <= steps; ++i) {
      const double part = static_cast<double>(i) / steps;
      Dot({from.x + (to.x - from.x) * part, from.y + (to.y - from.y) * part}, colour, width / 2);
    }
  }

  void Dot(Point at, Colour colour, double radius) override {
    const double x = at.x * scale_, y = at.y * scale_, r = std::max(0.5, radius * scale_);
    for (auto row = static_cast<int64_t>(std::floor(y - r)); row <= static_cast<int64_t>(std::ceil(y + r)); ++row) {
      for (auto column = static_cast<int64_t>(std::floor(x - r)); column <= static_cast<int64_t>(std::ceil(x + r));
           ++column) {
        const double dx = static_cast<double>(column) + 0.5 - x, dy = static_cast<double>(row) + 0.5 - y;
        if (dx * dx + dy * dy <= r * r) Set(row, column, colour);
      }
    }
  }

  void Text(Point baseline, Anchor anchor, const std::string& text, Colour colour) override {
    // A character of several bytes is one "?".
    std::string shown;
    for (const char c : text) {
      if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) shown += c;
    }
    const double width = static_cast<double>(shown.size()) * kCharacterWidth;
    const double left = baseline.x - (anchor == Anchor::kStart ? 0 : anchor == Anchor::kMiddle ? width / 2 : width);
    auto column = static_cast<int64_t>(std::lround(left * scale_));
    const int64_t top = std::lround(baseline.y * scale_) - int64_t{kRows} * scale_;
    for (const char c : shown) {
      for (int row = 0; row < kRows; ++row) {
        for (int dot = 0; dot < kDots; ++dot) {
          if ((RowOf(c, row) >> (kDots - 1 - dot) & 1) == 0) continue;
          for (int i = 0; i < scale_ * scale_; ++i) {
            Set(top + int64_t{row} * scale_ + i / scale_, column + int64_t{dot} * scale_ + i % scale_, colour);
          }
        }
      }
      column += static_cast<int64_t>(kCharacterWidth) * scale_;
    }
  }

  std::string Finish() override { return EncodePng(image_); }

 private:
  void Set(int64_t row, int64_t column, Colour colour) {
    if (row < 0 || row >= image_.rows || column < 0 || column >= image_.columns) return;
    uint8_t* pixel = image_.pixels.data() + static_cast<size_t>((row * image_.columns + column) * 3);
    pixel[0] = colour.red;
    pixel[1] = colour.green;
    pixel[2] = colour.blue;
  }

  const int scale_;
  Image image_;
};

}  // namespace

std::unique_ptr<Painter> MakeRasterPainter(int width, int height, int scale) {
  return std::make_unique<Raster>(width, height, scale);
}

}  // namespace bindery
