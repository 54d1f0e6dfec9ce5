#include "train/plot/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "train/plot/raster.h"
#include "train/plot/svg.h"

namespace bindery {
namespace {

constexpr int kWidth = 640, kHeight = 300;
constexpr double kLeft = 62, kRight = 14, kTop = 42, kBottom = 34;  // margins of a chart
constexpr Colour kBlack = {51, 51, 51}, kGrey = {221, 221, 221};
// Told apart by most who do not see all colours (Okabe and Ito 2008).
constexpr Colour kColours[] = {{0, 114, 178},   {213, 94, 0},  {0, 158, 115},
                               {204, 121, 167}, {230, 159, 0}, {86, 180, 233}};
constexpr char kLetters[] = {'*', 'o', '+', 'x', '#', '@'};

bool IsFinite(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

struct Range {
  double low = 0, high = 1;
  // 0 to 1; without overflow, and in the middle where all are too near for a difference.
  double Part(double value) const {
    const double range = high / 2 - low / 2;
    return range > 0 ? (value / 2 - low / 2) / range : 0.5;
  }
};

// Around what is there: never empty, and of one value alone with room on both sides.
Range Around(double low, double high) {
  if (low < high) return {low, high};
  constexpr double kMost = std::numeric_limits<double>::max();
  const double room = low == 0 ? 1 : std::abs(low) / 10;
  return {std::max(low - room, -kMost), std::min(high + room, kMost)};
}

struct Extent {
  Range x, y;
};
// No value for charts without a finite point.
std::optional<Extent> ExtentOf(const Chart& chart) {
  std::optional<Extent> extent;
  for (const Series& curve : chart.curves) {
    for (const auto& point : curve.points) {
      if (!IsFinite(point)) continue;
      if (!extent) extent = Extent{{point.first, point.first}, {point.second, point.second}};
      extent->x = {std::min(extent->x.low, point.first), std::max(extent->x.high, point.first)};
      extent->y = {std::min(extent->y.low, point.second), std::max(extent->y.high, point.second)};
    }
  }
  if (extent) *extent = {Around(extent->x.low, extent->x.high), Around(extent->y.low, extent->y.high)};
  return extent;
}

std::string Label(double value) { return fmt::format("{:.4g}", value == 0 ? 0 : value); }

class Drawing {
 public:
  Drawing(Painter* painter, const Chart& chart, double top) : painter_(*painter), chart_(chart), top_(top) {}

  void Draw() {
    painter_.Text({kWidth / 2.0, top_ + 16}, Anchor::kMiddle, chart_.title, kBlack);
    const std::optional<Extent> extent = ExtentOf(chart_);
    if (!extent) {
      painter_.Text({kWidth / 2.0, top_ + kHeight / 2.0}, Anchor::kMiddle, "no finite values", kBlack);
      return;
    }
    extent_ = *extent;
    Axes();
    double legend = kLeft;
    for (size_t c = 0; c < chart_.curves.size(); ++c) {
      const Series& curve = chart_.curves[c];
      const Colour colour = kColours[c % std::size(kColours)];
      Draw(curve, colour);
      painter_.Line({legend, top_ + 28}, {legend + 14, top_ + 28}, colour, 2);
      painter_.Text({legend + 19, top_ + 32}, Anchor::kStart, curve.name, kBlack);
      legend += 34 + static_cast<double>(curve.name.size()) * kCharacterWidth;
    }
  }

 private:
  Point At(double x, double y) const {
    return {kLeft + extent_.x.Part(x) * (kWidth - kLeft - kRight),
            top_ + kHeight - kBottom - extent_.y.Part(y) * (kHeight - kTop - kBottom)};
  }

  void Axes() {
    const auto [x, y] = extent_;
    for (const double value : RoundSteps(y.low, y.high, 6)) {
      painter_.Line(At(x.low, value), At(x.high, value), kGrey, 1);
      const Point at = At(x.low, value);
      painter_.Text({at.x - 6, at.y + 4}, Anchor::kEnd, Label(value), kBlack);
    }
    for (const double value : RoundSteps(x.low, x.high, 8)) {
      const Point at = At(value, y.low);
      painter_.Line(at, {at.x, at.y + 4}, kBlack, 1);
      painter_.Text({at.x, at.y + 16}, Anchor::kMiddle, Label(value), kBlack);
    }
    painter_.Line(At(x.low, y.low), At(x.high, y.low), kBlack, 1);
    painter_.Line(At(x.low, y.low), At(x.low, y.high), kBlack, 1);
    painter_.Text({kWidth - kRight, top_ + kHeight - 4}, Anchor::kEnd, chart_.x, kBlack);
  }

  void Draw(const Series& curve, Colour colour) {
    constexpr size_t kWithDots = 60;  // points of a curve that are still seen one by one
    for (size_t i = 0; i < curve.points.size(); ++i) {
      if (!IsFinite(curve.points[i])) continue;
      const Point to = At(curve.points[i].first, curve.points[i].second);
      const bool goes_on = i > 0 && IsFinite(curve.points[i - 1]);
      if (goes_on) painter_.Line(At(curve.points[i - 1].first, curve.points[i - 1].second), to, colour, 2);
      if (!goes_on || curve.points.size() <= kWithDots) painter_.Dot(to, colour, 2.5);
    }
  }

  Painter& painter_;
  const Chart& chart_;
  const double top_;
  Extent extent_;
};

std::string DrawOn(std::unique_ptr<Painter> painter, const std::vector<Chart>& charts) {
  for (size_t i = 0; i < charts.size(); ++i) {
    Drawing(painter.get(), charts[i], static_cast<double>(i) * kHeight).Draw();
  }
  return painter->Finish();
}

int TotalHeight(const std::vector<Chart>& charts) { return kHeight * std::max(1, static_cast<int>(charts.size())); }

std::string DrawTextOf(const Chart& chart, int columns, int rows) {
  std::string text = chart.title + "\n";
  const std::optional<Extent> extent = ExtentOf(chart);
  if (!extent) return text + "  no finite values\n";
  const auto [x, y] = *extent;
  const std::string low = Label(y.low), high = Label(y.high);
  const int margin = static_cast<int>(std::max(low.size(), high.size()));
  const int width = std::max(5, columns - margin - 2);
  std::vector<std::string> grid(static_cast<size_t>(rows), std::string(static_cast<size_t>(width), ' '));
  const auto put = [&](double px, double py, char letter) {
    const auto column = static_cast<int>(std::lround(x.Part(px) * (width - 1)));
    const auto row = static_cast<int>(std::lround((1 - y.Part(py)) * (rows - 1)));
    grid[static_cast<size_t>(std::clamp(row, 0, rows - 1))][static_cast<size_t>(std::clamp(column, 0, width - 1))] =
        letter;
  };
  for (size_t c = 0; c < chart.curves.size(); ++c) {
    const char letter = kLetters[c % std::size(kLetters)];
    const auto& points = chart.curves[c].points;
    for (size_t i = 0; i < points.size(); ++i) {
      if (!IsFinite(points[i])) continue;
      const bool goes_on = i > 0 && IsFinite(points[i - 1]);
      const auto [from_x, from_y] = goes_on ? points[i - 1] : points[i];
      for (int step = 1; step <= width; ++step) {
        const double part = static_cast<double>(step) / width;
        put(from_x + (points[i].first - from_x) * part, from_y + (points[i].second - from_y) * part, letter);
      }
    }
  }
  for (int row = 0; row < rows; ++row) {
    const std::string& label = row == 0 ? high : row == rows - 1 ? low : std::string();
    std::string line = fmt::format("{:>{}} |{}", label, margin, grid[static_cast<size_t>(row)]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  text += std::string(static_cast<size_t>(margin) + 1, ' ') + "+" + std::string(static_cast<size_t>(width), '-') + "\n";
  const std::string left = Label(x.low), right = Label(x.high);
  const int room = std::max(1, width - static_cast<int>(left.size()) - static_cast<int>(right.size()));
  const std::string axis = static_cast<int>(chart.x.size()) + 2 <= room ? chart.x : "";
  text += fmt::format("{:{}}{}{:^{}}{}\n", "", margin + 2, left, axis, room, right);
  for (size_t c = 0; c < chart.curves.size(); ++c) {
    text += fmt::format("{}{} {}", c == 0 ? "  " : "   ", kLetters[c % std::size(kLetters)], chart.curves[c].name);
  }
  return text + "\n";
}

}  // namespace

std::vector<double> RoundSteps(double low, double high, int count) {
  const double rough = (high / count - low / count);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = power * 10;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (power * factor >= rough) step = power * factor;
  }
  std::vector<double> steps;
  if (!(step > 0) || !std::isfinite(step)) return {low, high};
  for (double n = std::ceil(low / step - 1e-9); n <= high / step + 1e-9 && steps.size() < 100; ++n) {
    if (std::isfinite(n * step)) steps.push_back(n * step);
  }
  return steps.size() < 2 ? std::vector<double>{low, high} : steps;
}

std::string DrawSvg(const std::vector<Chart>& charts) {
  return DrawOn(MakeSvgPainter(kWidth, TotalHeight(charts)), charts);
}

std::string DrawPng(const std::vector<Chart>& charts) {
  return DrawOn(MakeRasterPainter(kWidth, TotalHeight(charts), 2), charts);
}

std::string DrawText(const std::vector<Chart>& charts, int columns, int rows) {
  std::string text;
  for (const Chart& chart : charts) text += DrawTextOf(chart, std::max(20, columns), std::max(6, rows));
  return text;
}

}  // namespace bindery
