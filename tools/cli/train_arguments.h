// The options of `bindery train`, and what is made of them.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/cli/commands.h"
#include "tools/cli/data.h"
#include "tools/cli/options.h"
#include "tools/cli/progress.h"
#include "tools/cli/watch_options.h"
#include "train/trainer.h"

namespace bindery::cli {

struct TrainArguments {
  ModelOptions model;
  DeviceOptions device;
  DataOptions data;
  int64_t epochs = 8, epoch_batches = 0;
  std::string schedule = "constant", initializer = "xavier", kvstore = "device", precision = "float32", loss_scale,
              average;
  bool use_average = false;
  std::optional<double> label_smoothing;  // as the model has it, if not given
  std::string class_weights;              // likewise
  std::string micro_batches = "1", mirror = "off", memory_limit, balance, tune = "off", freeze, lr_mult, wd_mult;
  int64_t block = 0;
  std::optional<std::string> optimizer, metrics;  // by the data, if not given
  uint64_t seed = 0;
  std::string checkpoints = kDefaultCheckpoints;
  int64_t checkpoint_every = 0;
  int keep = 3;
  bool keep_best = false, resume = false, overwrite = false, json = false;
  bool from_best = false;  // resume, from the best checkpoint
  std::string save, best, judged_by, log;
  int64_t patience = 0, json_every = 0;
  WatchOptions watch;
  std::string progress = "auto";

  void AddTo(CLI::App* app);
  // Throw UsageError naming the option; the latter DataError, too, for what cannot be written.
  TrainerOptions Parse() const;
  ProgressStyle Style() const;
  void CheckOutputs() const;
  // The model's parameters that --freeze names. Throws UsageError for a pattern that none has, and if none is left.
  std::vector<std::string> Frozen(const Model& trained) const;
  // What --lr-mult and --wd-mult say of them. Throws UsageError.
  MultiplierList Multipliers(const Model& trained) const;

 private:
  int64_t MicroBatchesOf(int64_t limit) const;
};

}  // namespace bindery::cli
