// Charts: curves over an axis, one chart below the other, as SVG, as PNG, and as text for a terminal.
//
//   const Chart loss{.title = "cross-entropy", .x = "epoch", .curves = {{"train", {{1, 2.1}, {2, 1.4}}}}};
//   WriteFileAtomically("loss.svg", DrawSvg({loss}));
//
// Points that are not finite are left out, and cut their curve. A chart without any says so.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bindery {

struct Series {
  std::string name = {};
  std::vector<std::pair<double, double>> points = {};  // (x, y), by x
};

struct Chart {
  std::string title = {};
  std::string x = {};  // what the horizontal axis measures
  std::vector<Series> curves = {};
};

// 640 wide, 300 high each; self-contained, for <img> or within a page of HTML.
std::string DrawSvg(const std::vector<Chart>& charts);
// The same in twice as many pixels. Text is ASCII: "?" in place of other characters.
std::string DrawPng(const std::vector<Chart>& charts);
// `columns` by `rows` characters each, at least 20 by 6; of each curve a letter, and a line that says whose it is.
std::string DrawText(const std::vector<Chart>& charts, int columns = 80, int rows = 16);

// About `count` round numbers (1, 2 or 5 times a power of ten apart) from `low` to `high`, at least two; those of
// finite low < high.
std::vector<double> RoundSteps(double low, double high, int count);

}  // namespace bindery
