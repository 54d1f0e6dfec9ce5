// Options of `bindery train` by which one sees what it does: TensorBoard, traces, plots.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/events/event_writer.h"
#include "train/loop/extension.h"
#include "train/trace/trace.h"
#include "train/trainer.h"

namespace bindery::cli {

struct WatchOptions {
  std::string tensorboard, trace, plot;
  int64_t trace_steps = 5;

  void AddTo(CLI::App* app);
  std::vector<std::pair<std::string, std::string>> Outputs() const;  // options and what they write
  void Check() const;  // throws UsageError, DataError before anything is trained
  // What takes the engine's place, so that it can be recorded; the same one if nobody wants that.
  std::shared_ptr<Engine> Watched(std::shared_ptr<Engine> engine);
  struct OfRun {
    std::function<ExecutorGroup*()> group;
    std::map<std::string, EventWriter::Setting> settings;
    std::vector<std::string> metrics;  // names
    const Model* model = nullptr;
    DataIter *train = nullptr, *test = nullptr;
    std::string judged_on = "test";  // what `test` is: "test" or "validation"
  };
  std::vector<Extension> Extensions(const OfRun& run) const;

 private:
  std::vector<std::string> PlotFiles() const;
  bool PlotsHere() const;  // to the terminal
  std::shared_ptr<Trace> recorded_;
};

}  // namespace bindery::cli
