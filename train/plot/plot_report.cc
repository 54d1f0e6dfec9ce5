#include "train/plot/plot_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/parse_number.h"
#include "train/loop/loop.h"

namespace bindery {
namespace {

struct State {
  PlotReportOptions options;
  RunningMeans means = {};
  std::map<std::string, Series> curves = {};  // by "<metric>/<place>"

  void Look(Loop& loop) {
    means.Add(loop.observation());
    if (!options.trigger.Due(loop.now(), loop.observation())) return;
    for (const auto& [name, value] : means.Take()) {
      const size_t slash = name.rfind('/');
      const std::string place = slash == std::string::npos ? "" : name.substr(0, slash);
      const std::string metric = slash == std::string::npos ? name : name.substr(slash + 1);
      const auto& wanted = options.metrics;
      if (!wanted.empty() && std::ranges::find(wanted, metric) == wanted.end()) continue;
      Series& curve = curves[metric + "/" + place];
      curve.name = place;
      curve.points.emplace_back(loop.now().epoch_detail, value);
    }
    Write();
  }

  std::vector<Chart> Charts() const {
    std::map<std::string, Chart> charts;
    for (const auto& [name, curve] : curves) {
      const std::string metric = name.substr(0, name.find('/'));
      Chart& chart = charts[metric];
      chart.title = metric;
      chart.x = "epoch";
      chart.curves.push_back(curve);
      if (const auto label = options.labels.find(curve.name); label != options.labels.end()) {
        chart.curves.back().name = label->second;
      }
    }
    std::vector<Chart> list;
    for (const std::string& metric : options.metrics) {
      if (const auto found = charts.find(metric); found != charts.end()) list.push_back(found->second);
    }
    if (options.metrics.empty()) {
      for (auto& [metric, chart] : charts) list.push_back(std::move(chart));
    }
    return list;
  }

  void Write() const {
    const std::vector<Chart> charts = Charts();
    for (const std::string& path : options.paths) {
      WriteFileAtomically(path, path.ends_with(".svg") ? DrawSvg(charts) : DrawPng(charts));
    }
  }

  // A line for each point: x, y, and the curve it is of.
  void Serialize(Archive* archive) {
    Archive due = archive->In("trigger"), sums = archive->In("means");
    options.trigger.Serialize(&due);
    means.Serialize(&sums);
    std::string text;
    for (const auto& [name, curve] : curves) {
      for (const auto& [x, y] : curve.points) text += fmt::format("{} {} {}\n", x, y, name);
    }
    archive->Text("points", &text);
    if (!archive->reading()) return;
    curves.clear();
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const size_t first = line.find(' '), second = line.find(' ', first + 1);
      if (second == std::string::npos) Throw<CheckpointError>("a point of a plot is \"{}\"", line);
      const std::string name = line.substr(second + 1);
      Series& curve = curves[name];
      curve.name = name.substr(name.find('/') + 1);
      const std::string_view numbers = line;  // "nan" and "inf", too; a program's locale has no say
      const auto x = ParseNumber<double>(numbers.substr(0, first)),
                 y = ParseNumber<double>(numbers.substr(first + 1, second - first - 1));
      curve.points.emplace_back(x.value_or(NAN), y.value_or(NAN));
    }
  }
};

}  // namespace

Extension PlotReport(PlotReportOptions options) {
  for (const std::string& path : options.paths) {
    if (!path.ends_with(".svg") && !path.ends_with(".png")) Throw("a plot ends in .svg or .png, got \"{}\"", path);
  }
  const auto state = std::make_shared<State>(State{std::move(options)});
  return {.name = "plot",
          .trigger = Always(),
          .run = [state](Loop& loop) { state->Look(loop); },
          .begin =
              [state](Loop&) {
                for (const std::string& path : state->options.paths) MakeFolderOf(path);
              },
          .end =
              [state](Loop&) {
                if (state->options.at_end) state->options.at_end(state->Charts());
              },
          .serialize = [state](Archive* archive) { state->Serialize(archive); }};
}

}  // namespace bindery
