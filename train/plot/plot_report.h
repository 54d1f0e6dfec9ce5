// PlotReport: an extension (train/loop/extension.h) that draws what a run reports.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "train/loop/extension.h"
#include "train/plot/chart.h"

namespace bindery {

// A chart for each metric, what stands behind the last "/" of a value's name, with a curve for each place, what stands
// before it: "accuracy" of "train" and of "validation". Points are means, by samples, since the last time that the
// trigger was due; a resumed run's begin where the run did. Files are written each time, so that they show a run that
// goes on, and throw DataError if they cannot be; their folders are made when it begins.
struct PlotReportOptions {
  std::vector<std::string> paths = {};    // that end in .svg or .png; else Error
  std::vector<std::string> metrics = {};  // in this order; empty: all, by name
  // What charts call places in place of their names: {{"validation", "test"}} where a run is judged by the test set.
  std::map<std::string, std::string> labels = {};
  Trigger trigger = EveryEpochs();
  std::function<void(const std::vector<Chart>&)> at_end = {};  // gets the charts when the run has ended
};
Extension PlotReport(PlotReportOptions options);

}  // namespace bindery
