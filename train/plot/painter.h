// Where charts are drawn: lines, and text in a font of 6 x 9. The origin is top left. Private to train/plot.
#pragma once

#include <cstdint>
#include <string>

namespace bindery {

struct Point {
  double x = 0, y = 0;
};
struct Colour {
  uint8_t red = 0, green = 0, blue = 0;
};
enum class Anchor : uint8_t { kStart, kMiddle, kEnd };  // of a text: what stands at its point

inline constexpr double kCharacterWidth = 6, kCharacterHeight = 9;

class Painter {
 public:
  virtual ~Painter() = default;
  virtual void Line(Point from, Point to, Colour colour, double width) = 0;
  virtual void Dot(Point at, Colour colour, double radius) = 0;
  virtual void Text(Point baseline, Anchor anchor, const std::string& text, Colour colour) = 0;
  virtual std::string Finish() = 0;  // the file
};

}  // namespace bindery
