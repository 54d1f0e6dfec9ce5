// Charts: what is drawn where, whatever the values and names are.
#include "train/plot/chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "symbol/ops.h"
#include "tests/message_of.h"
#include "train/data/array_iter.h"
#include "train/data/images/decode.h"
#include "train/plot/plot_report.h"
#include "train/trainer.h"

namespace bindery {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity(),
                 kMost = std::numeric_limits<double>::max();

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

// Every element that is opened is closed, and quotes and angle brackets stand nowhere else.
void ExpectWellFormed(const std::string& svg) {
  std::vector<std::string> open;
  for (size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    EXPECT_EQ(tag.find('<'), std::string::npos) << tag;
    EXPECT_EQ(std::ranges::count(tag, '"') % 2, 0) << tag;
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST(RoundSteps, AreRoundAndWithin) {
  EXPECT_EQ(RoundSteps(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(RoundSteps(1, 3, 4), (std::vector<double>{1, 1.5, 2, 2.5, 3}));
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{{0, 1},
                                                                        {-3.7, 12},
                                                                        {1e-12, 3e-12},
                                                                        {5, 5.0001},
                                                                        {-1e300, 1e300},
                                                                        {-kMost, kMost},
                                                                        {0, 5e-324},
                                                                        {1e17, 1e17 + 64}}) {
    const std::vector<double> steps = RoundSteps(low, high, 6);
    EXPECT_GE(steps.size(), 2u) << low << " " << high;
    EXPECT_LE(steps.size(), 20u) << low << " " << high;
    EXPECT_TRUE(std::ranges::is_sorted(steps));
    EXPECT_GE(steps.front(), low - (high / 2 - low / 2) * 1e-6);
    EXPECT_LE(steps.back(), high + (high / 2 - low / 2) * 1e-6);
  }
}

TEST(Chart, SvgHasAxesCurvesAndNames) {
  const std::string svg = DrawSvg({{.title = "a <b> & \"c\" \xff",
                                    .x = "epoch",
                                    .curves = {{"train", {{1, 2}, {2, 1}, {3, 0.5}}}, {"test", {{1, 3}, {2, 2}}}}},
                                   {.title = "empty"}});
  ExpectWellFormed(svg);
  EXPECT_NE(svg.find("a &lt;b&gt; &amp; &quot;c&quot; \xef\xbf\xbd"), std::string::npos);
  EXPECT_EQ(Count(svg, "stroke=\"#0072b2\""), 2 + 1);  // two pieces, and one in the legend
  EXPECT_EQ(Count(svg, "stroke=\"#d55e00\""), 1 + 1);
  EXPECT_EQ(Count(svg, "<circle"), 5);
  EXPECT_NE(svg.find(">no finite values<"), std::string::npos);
  EXPECT_NE(svg.find("height=\"600\""), std::string::npos);
  // The first point is at the left and higher than the last one, which is below it at the right.
  const auto point = [&](int number) {
    size_t at = 0;
    for (int i = 0; i <= number; ++i) at = svg.find("<circle cx=\"", at + 1);
    const double x = std::atof(svg.c_str() + at + 12);
    return std::pair(x, std::atof(svg.c_str() + svg.find("cy=\"", at) + 4));
  };
  EXPECT_EQ(point(0).first, 62.0);
  EXPECT_EQ(point(2).first, 626.0);
  EXPECT_LT(point(0).second, point(1).second);
  EXPECT_LT(point(1).second, point(2).second);
}

TEST(Chart, ValuesThatAreNoNumbersCutTheCurve) {
  const std::string svg =
      DrawSvg({{.title = "t", .curves = {{"c", {{1, 1}, {2, 2}, {3, kNan}, {4, 3}, {5, kInf}, {6, 1}, {7, 2}}}}}});
  ExpectWellFormed(svg);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_EQ(Count(svg, "stroke=\"#0072b2\""), 2 + 1);
  EXPECT_EQ(Count(svg, "<circle"), 5);
  // As far apart as numbers can be, all the same, and one alone.
  for (const Series& curve :
       {Series{"far", {{0, -kMost}, {1, kMost}}}, Series{"same", {{1, 7}, {2, 7}}}, Series{"one", {{1, 0}}},
        Series{"most", {{1, kMost}, {2, kMost}}}, Series{"near", {{1, 0}, {2, 5e-324}}}}) {
    const std::string drawn = DrawSvg({{.title = "t", .curves = {curve}}});
    ExpectWellFormed(drawn);
    EXPECT_EQ(drawn.find("nan"), std::string::npos) << curve.name;
    EXPECT_EQ(drawn.find("inf"), std::string::npos) << curve.name;
    DrawText({{.title = "t", .curves = {curve}}});
    DrawPng({{.title = "t", .curves = {curve}}});
  }
}

TEST(Chart, PngShowsTheSame) {
  const Chart chart{.title = "loss \xc3\xa9~", .x = "epoch", .curves = {{"train", {{0, 0}, {1, 1}}}}};
  const Image image = DecodeImage(DrawPng({chart}), 3, "chart");
  EXPECT_EQ(image.columns, 1280);
  EXPECT_EQ(image.rows, 600);
  const auto is_blue = [&](double x, double y) {
    const uint8_t* p = image.at(static_cast<int64_t>(2 * y), static_cast<int64_t>(2 * x));
    return p[0] == 0 && p[1] == 114 && p[2] == 178;
  };
  EXPECT_TRUE(is_blue(62, 266));    // (0, 0)
  EXPECT_TRUE(is_blue(625.5, 42));  // (1, 1)
  EXPECT_TRUE(is_blue(344, 154));   // half-way
  EXPECT_FALSE(is_blue(200, 100));
  // The title is there, in the middle of the top.
  int dark = 0;
  for (int64_t y = 0; y < 40; ++y) {
    for (int64_t x = 560; x < 720; ++x) dark += image.at(y, x)[0] < 100;
  }
  EXPECT_GT(dark, 200);
  EXPECT_EQ(DecodeImage(DrawPng({}), 3, "none").rows, 600);
}

TEST(Chart, TextFitsTheTerminal) {
  const Chart chart{
      .title = "loss", .x = "epoch", .curves = {{"train", {{1, 4}, {2, 2}, {3, 1}}}, {"test", {{1, 5}, {3, 2}}}}};
  for (const int columns : {20, 40, 80, 200}) {
    std::istringstream lines(DrawText({chart}, columns, 10));
    int rows = 0;
    bool first_letter = false;
    for (std::string line; std::getline(lines, line); ++rows) {
      EXPECT_LE(line.size(), static_cast<size_t>(columns)) << line;
      first_letter |= line.find('*') != std::string::npos && line.find('|') != std::string::npos;
    }
    EXPECT_EQ(rows, 1 + 10 + 3);
    EXPECT_TRUE(first_letter);
  }
  const std::string text = DrawText({chart}, 40, 8);
  EXPECT_NE(text.find("\n5 |o"), std::string::npos) << text;
  EXPECT_NE(text.find("* train   o test"), std::string::npos) << text;
  EXPECT_NE(DrawText({{.title = "empty"}}).find("no finite values"), std::string::npos);
}

// A net that anybody can train.
ArrayIter Data() {
  HostTensor data(DType::kFloat32, {8, 3}), label(DType::kFloat32, {8});
  for (int64_t i = 0; i < data.elements(); ++i) data.Set(i, static_cast<double>(i % 5));
  for (int64_t i = 0; i < 8; ++i) label.Set(i, static_cast<double>(i % 2));
  return ArrayIter(std::move(data), std::move(label), {.batch_size = 4});
}
Symbol Net() { return SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 2}, "fc"), {}, "softmax"); }

TEST(PlotReport, DrawsEachMetricAndGoesOnAfterAResume) {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/plot";
  std::filesystem::remove_all(folder);
  std::vector<Chart> charts;
  const auto fit = [&](int64_t epochs, bool resume) {
    ArrayIter train = Data(), test = Data();
    Trainer trainer(Net(), {.threads_per_device = 1});
    trainer.Fit(train, {.epochs = epochs,
                        .validation = &test,
                        .checkpoints = folder + "/checkpoints",
                        .resume = resume,
                        .extensions = {PlotReport({.paths = {folder + "/plots/plot.svg", folder + "/plots/plot.png"},
                                                   .metrics = {"cross-entropy", "accuracy"},
                                                   .at_end = [&](const auto& drawn) { charts = drawn; }})}});
  };
  fit(2, false);
  fit(5, true);
  ASSERT_EQ(charts.size(), 2u);
  EXPECT_EQ(charts[0].title, "cross-entropy");
  EXPECT_EQ(charts[1].title, "accuracy");
  for (const Chart& chart : charts) {
    ASSERT_EQ(chart.curves.size(), 2u);
    EXPECT_EQ(chart.curves[0].name, "train");
    EXPECT_EQ(chart.curves[1].name, "validation");
    for (const Series& curve : chart.curves) {
      ASSERT_EQ(curve.points.size(), 5u) << "those before the resume included";
      for (int i = 0; i < 5; ++i) EXPECT_EQ(curve.points[static_cast<size_t>(i)].first, i + 1);
    }
  }
  ExpectWellFormed(ReadFile(folder + "/plots/plot.svg"));
  EXPECT_EQ(ReadFile(folder + "/plots/plot.svg"), DrawSvg(charts));
  EXPECT_EQ(ReadFile(folder + "/plots/plot.png"), DrawPng(charts));
  EXPECT_NE(MessageOf<Error>([] { PlotReport({.paths = {"plot.jpg"}}); }).find("plot.jpg"), std::string::npos);
  ArrayIter train = Data(), test = Data();
  Trainer trainer(Net(), {.threads_per_device = 1});
  trainer.Fit(train, {.validation = &test,
                      .extensions = {PlotReport({.metrics = {"accuracy"},
                                                 .labels = {{"validation", "test"}, {"nowhere", "x"}},
                                                 .at_end = [&](const auto& drawn) { charts = drawn; }})}});
  ASSERT_EQ(charts.size(), 1u);
  ASSERT_EQ(charts[0].curves.size(), 2u);
  EXPECT_EQ(charts[0].curves[0].name, "train");
  EXPECT_EQ(charts[0].curves[1].name, "test");
  // Its folder is made; where it cannot be, that is told before the first step.
  const int64_t steps = trainer.updater()->step();
  EXPECT_THROW(trainer.Fit(train, {.epochs = 2, .extensions = {PlotReport({.paths = {"/proc/none/plot.svg"}})}}),
               DataError);
  EXPECT_EQ(trainer.updater()->step(), steps);
}

}  // namespace
}  // namespace bindery
