// TensorBoard: an extension (train/loop/extension.h) that writes what a run reports as event files.
//
//   trainer.Fit(train, {.epochs = 10, .extensions = {TensorBoard({.folder = "runs/1"})}});
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "train/events/event_writer.h"
#include "train/loop/extension.h"

namespace bindery {

struct TensorBoardOptions {
  std::string folder;                     // of this run; made
  Trigger trigger = EveryIterations(10);  // of numbers; what is reported only where an epoch ends comes with it, too
  Trigger histograms = EveryEpochs();     // of parameters and running statistics, as "<model>/<name>"; waits for them
  std::map<std::string, EventWriter::Setting> settings = {};  // for the table that compares runs
  std::vector<std::string> compared = {};                     // the numbers in that table: "validation/accuracy"
  // What else is written before the first iteration of all: the graph, images of what it is trained on.
  std::function<void(EventWriter& events)> begin = {};
};

// A scalar for each value that is observed, by its name, over iterations: its mean since the last one, by samples
// (train/loop/observation.h). Each run writes a file of its own; of one that
// is resumed, what files before have from that iteration on is no longer shown. Throws DataError where it cannot write.
Extension TensorBoard(TensorBoardOptions options);

}  // namespace bindery
