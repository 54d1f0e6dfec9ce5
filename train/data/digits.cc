#include "train/data/digits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/philox.h"

namespace bindery {
namespace {

constexpr int kSide = 28;
constexpr float kHeight = 20, kWidth = 15;  // of a digit's box in pixels, before it is scaled

struct Point {
  float x, y;
};
using Stroke = std::vector<Point>;  // a line through these points
using Glyph = std::vector<Stroke>;  // in the unit square, y downwards

// A part of an ellipse; degrees from the right, clockwise (y is downwards): -90 is its top.
Stroke Arc(float x, float y, float rx, float ry, float from, float to) {
  constexpr float kStep = 15;
  const int pieces = std::max(1, static_cast<int>(std::fabs(to - from) / kStep));
  Stroke stroke;
  for (int i = 0; i <= pieces; ++i) {
    const float angle =
        (from + (to - from) * static_cast<float>(i) / static_cast<float>(pieces)) * std::numbers::pi_v<float> / 180;
    stroke.push_back({x + rx * std::cos(angle), y + ry * std::sin(angle)});
  }
  return stroke;
}

Stroke Join(Stroke a, const Stroke& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Both loops of an eight in one movement, which crosses in the middle.
Stroke CrossedEight() {
  constexpr int kPieces = 32;
  Stroke stroke;
  for (int i = 0; i <= kPieces; ++i) {
    const float t = 2 * std::numbers::pi_v<float> * static_cast<float>(i) / kPieces;
    stroke.push_back({0.5f + 0.4f * std::sin(2 * t), 0.5f - 0.5f * std::cos(t)});
  }
  return stroke;
}

// The ways to write each digit.
const std::array<std::vector<Glyph>, 10>& Glyphs() {
  static const std::array<std::vector<Glyph>, 10> glyphs{{
      {{Arc(.5f, .5f, .42f, .5f, -90, 270)}, {Arc(.5f, .5f, .32f, .5f, -60, 290)}},
      {{{{.5f, 0}, {.5f, 1}}},
       {{{.25f, .25f}, {.55f, 0}, {.55f, 1}}},
       {{{.3f, .2f}, {.55f, 0}, {.55f, 1}}, {{.25f, 1}, {.85f, 1}}}},
      {{Join(Arc(.5f, .28f, .42f, .28f, -160, 30), {{.08f, 1}, {.95f, 1}})},
       {Join(Arc(.5f, .26f, .38f, .26f, -170, 40), Join(Arc(.25f, .88f, .18f, .12f, 0, -300), {{.95f, .97f}}))}},
      {{Join(Arc(.45f, .26f, .4f, .26f, -160, 90), Arc(.45f, .74f, .45f, .26f, -90, 160))},
       {Join({{.1f, 0}, {.85f, 0}}, Arc(.42f, .7f, .45f, .3f, -90, 160))}},
      {{{{.7f, 1}, {.7f, 0}, {.05f, .68f}, {.95f, .68f}}},
       {{{.12f, 0}, {.08f, .52f}, {.92f, .52f}}, {{.78f, .05f}, {.78f, 1}}}},
      {{Join({{.88f, 0}, {.2f, 0}, {.15f, .45f}}, Arc(.42f, .68f, .45f, .32f, -125, 150))},
       {Join({{.25f, .05f}, {.2f, .45f}}, Arc(.42f, .7f, .42f, .3f, -120, 140)), {{.25f, .05f}, {.9f, 0}}}},
      {{Join(Arc(.8f, .68f, .7f, .68f, -95, -180), Arc(.5f, .7f, .4f, .3f, -180, 180))},
       {{{.6f, 0}, {.18f, .55f}}, Arc(.48f, .73f, .36f, .27f, -150, 210)}},
      {{{{.05f, 0}, {.95f, 0}, {.4f, 1}}},
       {{{.05f, 0}, {.95f, 0}, {.4f, 1}}, {{.3f, .5f}, {.82f, .5f}}},
       {{{.05f, .15f}, {.08f, 0}, {.92f, .02f}, {.6f, .45f}, {.5f, 1}}}},
      {{Arc(.5f, .25f, .34f, .25f, 90, 450), Arc(.5f, .75f, .42f, .25f, -90, 270)}, {CrossedEight()}},
      {{Arc(.48f, .3f, .4f, .3f, 0, 360), {{.88f, .3f}, {.8f, 1}}},
       {Join(Arc(.48f, .3f, .38f, .3f, 0, -360), Arc(.36f, .3f, .5f, .7f, 0, 110))}},
  }};
  return glyphs;
}

// From the unit square to pixels, at random.
class Transform {
 public:
  explicit Transform(PhiloxStream* random) {
    const float angle = random->Uniform(-0.26f, 0.26f);
    const float slant = random->Uniform(-0.3f, 0.3f);
    const float sx = kWidth * random->Uniform(0.75f, 1.15f), sy = kHeight * random->Uniform(0.8f, 1.12f);
    const float c = std::cos(angle), s = std::sin(angle);
    xx_ = c * sx;
    xy_ = (c * slant - s) * sy;
    yx_ = s * sx;
    yy_ = (s * slant + c) * sy;
    x0_ = kSide / 2.0f + random->Uniform(-2.5f, 2.5f);
    y0_ = kSide / 2.0f + random->Uniform(-2.5f, 2.5f);
    bend_ = random->Uniform(-0.09f, 0.09f);
    bend_phase_ = random->Uniform(0, 2 * std::numbers::pi_v<float>);
    wobble_ = random->Uniform(-0.07f, 0.07f);
    wobble_phase_ = random->Uniform(0, 2 * std::numbers::pi_v<float>);
  }

  Point operator()(Point p) const {
    const float x = p.x - 0.5f + bend_ * std::sin(5 * p.y + bend_phase_);
    const float y = p.y - 0.5f + wobble_ * std::sin(5 * p.x + wobble_phase_);
    return {x0_ + xx_ * x + xy_ * y, y0_ + yx_ * x + yy_ * y};
  }

 private:
  float xx_, xy_, yx_, yy_, x0_, y0_, bend_, bend_phase_, wobble_, wobble_phase_;
};

float DistanceToLine(Point p, Point a, Point b) {
  const float dx = b.x - a.x, dy = b.y - a.y;
  const float length2 = dx * dx + dy * dy;
  const float t = length2 > 0 ? std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / length2, 0.0f, 1.0f) : 0;
  return std::hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

// Ink where the pen's edge is beyond the pixel's middle, softly over one pixel.
void DrawLine(Point a, Point b, float pen, float* pixels) {
  const float reach = pen / 2 + 1;
  const auto low = [&](float u, float v) { return std::max(0, static_cast<int>(std::min(u, v) - reach)); };
  const auto high = [&](float u, float v) { return std::min(kSide - 1, static_cast<int>(std::max(u, v) + reach)); };
  for (int y = low(a.y, b.y); y <= high(a.y, b.y); ++y) {
    for (int x = low(a.x, b.x); x <= high(a.x, b.x); ++x) {
      const Point middle{static_cast<float>(x) + 0.5f, static_cast<float>(y) + 0.5f};
      const float ink = std::clamp(pen / 2 + 0.5f - DistanceToLine(middle, a, b), 0.0f, 1.0f);
      pixels[y * kSide + x] = std::max(pixels[y * kSide + x], ink);
    }
  }
}

int DigitOf(uint64_t seed, int64_t image) {
  PhiloxStream random(seed, fmt::format("digits:order:{}", image / 10));
  std::array<int, 10> digits;
  std::iota(digits.begin(), digits.end(), 0);
  for (size_t i = digits.size(); i > 1; --i) std::swap(digits[i - 1], digits[random.Below(i)]);
  return digits[static_cast<size_t>(image % 10)];
}

void Draw(int digit, uint64_t seed, int64_t image, float* pixels) {
  PhiloxStream random(seed, fmt::format("digits:{}", image));
  const std::vector<Glyph>& ways = Glyphs()[static_cast<size_t>(digit)];
  const Glyph& glyph = ways[random.Below(ways.size())];
  const Transform transform(&random);
  const float pen = random.Uniform(1.2f, 3.2f);
  const float ink = random.Uniform(0.65f, 1.0f), noise = random.Uniform(0.05f, 0.3f);
  for (const Stroke& stroke : glyph) {
    for (size_t i = 1; i < stroke.size(); ++i) DrawLine(transform(stroke[i - 1]), transform(stroke[i]), pen, pixels);
  }
  for (int i = 0; i < kSide * kSide; ++i) {
    const float value = std::clamp(ink * pixels[i] + random.Uniform(-noise, noise), 0.0f, 1.0f);
    pixels[i] = std::round(255 * value) / 255;  // a grey that a file of bytes keeps
  }
}

}  // namespace

ImageSet DrawDigits(int64_t count, uint64_t seed, int64_t first) {
  if (count < 0 || first < 0) Throw<DataError>("digits: expected a range of images, got {} from {} on", count, first);
  ImageSet set{HostTensor(DType::kFloat32, {count, 1, kSide, kSide}), HostTensor(DType::kFloat32, {count})};
  float* pixels = set.images.data<float>().data();
  for (int64_t i = 0; i < count; ++i) {
    const int digit = DigitOf(seed, first + i);
    set.labels.data<float>()[static_cast<size_t>(i)] = static_cast<float>(digit);
    Draw(digit, seed, first + i, pixels + i * kSide * kSide);
  }
  return set;
}

}  // namespace bindery
