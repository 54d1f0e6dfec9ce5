#include "tools/cli/watch_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/split_text.h"
#include "tools/cli/arguments.h"
#include "tools/cli/console.h"
#include "tools/cli/model_inputs.h"
#include "tools/cli/options.h"
#include "tools/cli/progress.h"
#include "train/events/tensorboard.h"
#include "train/plot/plot_report.h"
#include "train/trace/trace_steps.h"

namespace bindery::cli {
namespace {

constexpr int64_t kImages = 8;  // shown of the test data

// The first images of the data `name`, if they are such.
void WriteImages(const std::string& name, DataIter* data, EventWriter* events) {
  const BatchPtr batch = data->Next();
  if (batch && !batch->data.empty()) {
    const HostTensor& images = batch->data[0];
    const Shape shape = images.shape();
    if (shape.rank() == 4 && shape[-1] > 1 && shape[-2] > 1) {
      for (int64_t i = 0; i < std::min(kImages, batch->samples); ++i) {
        events->Image(fmt::format("{}/{}", name, i), 0, images.Slice(0, i, i + 1).Reshape(shape.Erase(0)));
      }
    }
  }
  data->Reset();
}

}  // namespace

void WatchOptions::AddTo(CLI::App* app) {
  app->add_option("--tensorboard", tensorboard, "write what TensorBoard shows to this folder");
  app->add_option("--trace", trace, "write what runs where and when in some steps to this file, for ui.perfetto.dev");
  AddNumber(app, "--trace-steps", &trace_steps, 1, 1'000'000, "that are in the trace, behind the first two");
  app->add_option("--plot", plot,
                  "draw the metrics over epochs: files that end in .svg or .png, \"-\" for the terminal, or several of "
                  "these with commas between");
}

std::vector<std::string> WatchOptions::PlotFiles() const {
  std::vector<std::string> files;
  if (plot.empty()) return files;
  for (const std::string_view file : SplitText(plot, ',')) {
    if (file != "-") files.emplace_back(file);
  }
  return files;
}

bool WatchOptions::PlotsHere() const { return std::ranges::count(SplitText(plot, ','), "-") > 0; }

std::vector<std::pair<std::string, std::string>> WatchOptions::Outputs() const {
  std::vector<std::pair<std::string, std::string>> outputs = {{"--tensorboard", tensorboard}, {"--trace", trace}};
  for (const std::string& file : PlotFiles()) outputs.emplace_back("--plot", file);
  return outputs;
}

void WatchOptions::Check() const {
  for (const std::string& file : PlotFiles()) {
    if (!file.ends_with(".svg") && !file.ends_with(".png")) {
      throw UsageError(fmt::format("--plot: expected names that end in .svg or .png, or \"-\", got \"{}\"", file));
    }
    CheckOutputFile("--plot", file);
  }
  if (!trace.empty()) CheckOutputFile("--trace", trace);
  if (!tensorboard.empty()) MakeOutputFolder("--tensorboard", tensorboard);
}

std::shared_ptr<Engine> WatchOptions::Watched(std::shared_ptr<Engine> engine) {
  if (trace.empty()) return engine;
  recorded_ = std::make_shared<Trace>();
  return MakeTraceEngine(std::move(engine), recorded_);
}

std::vector<Extension> WatchOptions::Extensions(const OfRun& run) const {
  std::vector<Extension> extensions;
  if (!tensorboard.empty()) {
    TensorBoardOptions options{.folder = tensorboard, .settings = run.settings};
    for (const std::string& metric : run.metrics) options.compared.push_back("validation/" + metric);
    options.begin = [run](EventWriter& events) {
      events.Graph(run.model->symbol, ShapesOf(run.train->ProvideData()));
      WriteImages(run.judged_on, run.test, &events);
    };
    extensions.push_back(TensorBoard(std::move(options)));
  }
  if (!plot.empty()) {
    PlotReportOptions options{.paths = PlotFiles(), .metrics = run.metrics, .labels = {{"validation", run.judged_on}}};
    if (PlotsHere()) {
      options.at_end = [](const std::vector<Chart>& charts) { Say("{}", DrawText(charts, Columns())); };
    }
    extensions.push_back(PlotReport(std::move(options)));
  }
  if (recorded_) {
    extensions.push_back(TraceSteps({.path = trace, .trace = recorded_, .group = run.group, .steps = trace_steps}));
  }
  return extensions;
}

}  // namespace bindery::cli
