#include "train/plot/svg.h"

#include <fmt/format.h>

#include "train/quoted_text.h"

namespace bindery {
namespace {

std::string Hex(Colour colour) { return fmt::format("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue); }

class Svg final : public Painter {
 public:
  Svg(int width, int height)
      : text_(fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
                          "{1}\" font-family=\"sans-serif\" font-size=\"11\">\n"
                          "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
                          width, height)) {}

  void Line(Point from, Point to, Colour colour, double width) override {
    text_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"{:g}\" "
        "stroke-linecap=\"round\"/>\n",
        from.x, from.y, to.x, to.y, Hex(colour), width);
  }
  void Dot(Point at, Colour colour, double radius) override {
    text_ +=
        fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:g}\" fill=\"{}\"/>\n", at.x, at.y, radius, Hex(colour));
  }
  void Text(Point baseline, Anchor anchor, const std::string& text, Colour colour) override {
    constexpr const char* kAnchors[] = {"start", "middle", "end"};
    text_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n", baseline.x,
                         baseline.y, kAnchors[static_cast<int>(anchor)], Hex(colour), MarkupText(text));
  }
  std::string Finish() override { return std::move(text_) + "</svg>\n"; }

 private:
  std::string text_;
};

}  // namespace

std::unique_ptr<Painter> MakeSvgPainter(int width, int height) { return std::make_unique<Svg>(width, height); }

}  // namespace bindery
