// bindery train
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "base/log.h"
#include "bindery/version.h"
#include "kvstore/mpi/mpi_processes.h"
#include "symbol/print/summary.h"
#include "tools/cli/best_file.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/data.h"
#include "tools/cli/earlier_run.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/going_back.h"
#include "tools/cli/heads.h"
#include "tools/cli/json_lines.h"
#include "tools/cli/model_inputs.h"
#include "tools/cli/progress.h"
#include "tools/cli/rate.h"
#include "tools/cli/run_options.h"
#include "tools/cli/signals.h"
#include "tools/cli/train_arguments.h"
#include "train/checkpoint/best_checkpoint.h"
#include "train/checkpoint/folder_lock.h"
#include "train/extensions/reports.h"

namespace bindery::cli {
namespace {

class TrainCommand : public TrainArguments {
 public:
  CLI::App* app = nullptr;  // whose options these are
  int Run();

 private:
  int Train();
  // Where mpirun has started several: this one has its part of the data, and unless it is the first, nothing to say.
  void JoinProcesses();
  void WriteNothing();
  bool IsFirst() const { return !processes_ || processes_->rank() == 0; }
  void TakeOverOptions();
  void CheckSameValidation(const OptionTexts& before, const std::string& source) const;
  FolderLock TakeFolder() const;
  std::unique_ptr<GoingBack> PrepareFolder() const;  // nullptr, unless the run goes back
  std::string Judged(const TrainerOptions& options) const;
  void Report(const FitResult& result, const Trainer& trainer, const TrainingData& made, int64_t samples,
              double seconds, bool has_best) const;
  nlohmann::json StartToJson(const TrainingData& made, const TrainerOptions& options) const;
  std::map<std::string, EventWriter::Setting> Settings(const TrainerOptions& options) const;

  std::string DevicesText() const;

  ProcessesPtr processes_;  // null: this one alone
};

void TrainCommand::JoinProcesses() {
  if (!StartedByMpi()) return;
  processes_ = MpiProcesses();
  data.part = processes_->rank();
  data.parts = processes_->size();
  if (!IsFirst()) BeSilent(fmt::format("process {} of {}", data.part, data.parts));
}

// Also of what a run that goes on takes over from before.
void TrainCommand::WriteNothing() {
  json = false;
  progress = "none";
  save = best = log = data.write_digits = "";
  watch = {};
}

// What distinguishes this run from others.
std::map<std::string, EventWriter::Setting> TrainCommand::Settings(const TrainerOptions& options) const {
  return {{"model", model.Name()},
          {"data", data.data},
          {"devices", device.devices},
          {"batch size", static_cast<double>(data.batch_size)},
          {"epochs", static_cast<double>(epochs)},
          {"optimizer", options.optimizer},
          {"schedule", options.schedule},
          {"initializer", options.initializer},
          {"precision", options.precision},
          {"seed", static_cast<double>(seed)}};
}

nlohmann::json TrainCommand::StartToJson(const TrainingData& made, const TrainerOptions& options) const {
  return {{"event", "start"},
          {"schema", kEventsSchema},
          {"version", BINDERY_VERSION},
          {"model", model.Name()},
          {"parameters", CountParameters(made.model.symbol, ShapesOf(made.train->ProvideData())).arguments},
          {"data", data.data},
          {"samples", made.train->samples()},
          {"test_samples", data.validation_part > 0 ? 0 : made.test->samples()},
          {"validation_samples", data.validation_part > 0 ? made.test->samples() : 0},
          {"devices", device.devices},
          {"batch_size", data.batch_size},
          {"epochs", epochs},
          {"optimizer", options.optimizer},
          {"schedule", options.schedule},
          {"precision", options.precision},
          {"metrics", ParseMetrics(options.metrics)},
          {"seed", seed},
          {"resume", resume}};
}

std::string TrainCommand::DevicesText() const {
  return device.devices + (processes_ ? fmt::format(" in each of {} processes", data.parts) : "");
}

// "(1, 28, 28)", of several arrays "(1, 28, 28) and (4)".
std::string SamplesText(const std::vector<DataDesc>& data) {
  std::vector<std::string> shapes;
  for (const DataDesc& array : data) shapes.push_back(ToString(array.shape.Erase(array.BatchAxis())));
  return fmt::format("{}", fmt::join(shapes, " and "));
}

// The end of a run, for people.
void TrainCommand::Report(const FitResult& result, const Trainer& trainer, const TrainingData& made, int64_t samples,
                          double seconds, bool has_best) const {
  std::vector<std::pair<std::string, std::string>> rows;
  size_t width = 21;
  const auto row = [&](const std::string& what, const std::string& value) {
    rows.emplace_back(what, value);
    width = std::max(width, what.size());
  };
  const ParameterCount count = CountParameters(trainer.symbol(), ShapesOf(made.train->ProvideData()));
  row("model", fmt::format("{}, {} parameters", model.Name(), count.arguments));
  row("devices", DevicesText());
  if (trainer.micro_batches() > 1) row("micro-batches", fmt::format("{} of a batch", trainer.micro_batches()));
  row("epochs, steps", fmt::format("{}, {}", result.epochs, result.steps));
  for (const auto& [set, values] : {std::pair("train", &result.train), {data.JudgedOn(), &result.validation}}) {
    for (const auto& [name, value] : *values)
      row(fmt::format("{} {}", set, name), ToText(value) + (std::isnan(value) ? "" : data.UnitOf(name)));
  }
  if (const int64_t train = SkippedBy(*made.train), test = SkippedBy(*made.test); train + test > 0) {
    row("damaged, skipped", fmt::format("{} times of training, {} of tests", train, test));
  }
  if (seconds > 0) {
    const double rate = static_cast<double>(samples) / seconds;
    row("training time", fmt::format("{}, {} samples/s", Duration(seconds), Rate(rate)));
  }
  if (!result.checkpoint.empty()) row("checkpoint", result.checkpoint);
  if (keep_best) {
    if (const auto path = FindBest(CheckpointStore(checkpoints))) row("best checkpoint", *path);
  }
  if (!save.empty()) row("model file", save);
  if (has_best) row("best model file", best);
  fmt::print("\nresult\n");
  for (const auto& [what, value] : rows) fmt::print("  {:<{}} {}\n", what, width, value);
}

// Says so if the model that was trained is no better than the best answer that does not look at the data: their labels'
// shares, or the label that is the most frequent.
// So few steps do not tell.
void WarnIfNothingWasLearned(const NamedValues& trained, const LabelCounts& counts, int64_t steps) {
  constexpr int64_t kEnough = 50;
  if (steps < kEnough) return;
  double samples = 0, most = 0, entropy = 0;
  for (const auto& [label, count] : counts) samples += static_cast<double>(count);
  for (const auto& [label, count] : counts) {
    const double share = static_cast<double>(count) / samples;
    most = std::max(most, share);
    entropy -= share * std::log(share);
  }
  for (const auto& [name, value] : trained) {
    const bool accuracy = name == "accuracy";
    if (counts.size() < 2 || !(accuracy ? value <= most : name == "cross-entropy" && value >= entropy)) continue;
    LogLine(LogLevel::kWarning,
            fmt::format(
                "the model has learned nothing: its training {} of {:.4f} is no better than that of one and the same "
                "answer to all samples, {:.4f}; train longer, or with a lower learning rate",
                name, value, accuracy ? most : entropy));
    return;
  }
}

// Of checkpoints: there, and ours alone.
FolderLock TrainCommand::TakeFolder() const {
  if (checkpoints.empty() || !IsFirst()) return {};
  MakeOutputFolder("--checkpoints", checkpoints);
  return LockFolder("--checkpoints", checkpoints);
}

// With checkpoints of an earlier run only if these are to be continued or replaced.
std::unique_ptr<GoingBack> TrainCommand::PrepareFolder() const {
  if (checkpoints.empty() || !IsFirst()) return nullptr;
  const std::optional<std::string> earlier = CheckpointStore(checkpoints).AheadOf(-1);
  if (resume && !earlier) HintAtCheckpoints(checkpoints);
  if (from_best && earlier) return std::make_unique<GoingBack>(CheckpointStore(checkpoints));
  if (resume || overwrite || !earlier) return nullptr;
  throw UsageError(
      fmt::format("\"{}\" is of an earlier run: --resume goes on with it, --overwrite replaces it, and "
                  "--checkpoints names another folder",
                  *earlier));
}

// To go on with a run is to go on with its options, but for those on the command line.
void TrainCommand::TakeOverOptions() {
  if (!resume || checkpoints.empty()) return;
  std::optional<EarlierRun> earlier;
  if (IsFirst()) earlier = FindEarlierRun(checkpoints, from_best, *app);
  if (processes_) earlier = OfFirst(std::move(earlier), processes_.get());
  if (!earlier) return;
  const auto& [source, before] = *earlier;
  OptionTexts texts = before;
  // A file that describes data says all about them; the size of batches it cannot say.
  std::erase_if(texts, [&](const auto& option) {
    return data.from_file && IsOfData(option.first) && option.first != "--batch-size";
  });
  TakeOver(texts, source, app);
  CheckSameValidation(before, source);
}

// What the run was judged by must not be trained on, nor the reverse.
void TrainCommand::CheckSameValidation(const OptionTexts& before, const std::string& source) const {
  const std::string option = "--validation-part";
  const auto found = before.find(option);
  const double part = found == before.end() ? 0 : ParseNumber<double>(option, found->second, 0, 1);
  if (part == data.validation_part) return;
  Throw<CheckpointError>(
      "{} was trained with {} {}, not {}: a run keeps the part that it began with, since it has been trained on "
      "samples of others",
      source, option, part, data.validation_part);
}

// The metric of the test by which an epoch is the best.
std::string TrainCommand::Judged(const TrainerOptions& options) const {
  const std::vector<std::string> metrics = ParseMetrics(options.metrics);
  if (judged_by.empty()) return metrics[0];
  if (std::ranges::find(metrics, judged_by) != metrics.end()) return judged_by;
  throw UsageError(
      fmt::format("--watch: there is no metric \"{}\"; --metrics has {}", judged_by, fmt::join(metrics, ", ")));
}

int TrainCommand::Run() {
  try {
    JoinProcesses();
    return Train();
  } catch (const std::exception& error) {
    const auto* own = dynamic_cast<const Error*>(&error);
    if (processes_) processes_->Leave(own ? own->message() : error.what());
    throw;
  }
}

int TrainCommand::Train() {
  TakeOverOptions();
  if (!IsFirst()) WriteNothing();
  if (data.batch_size % data.parts != 0) {
    throw UsageError(
        fmt::format("--batch-size {}: it is that of all processes together, but cannot be shared out "
                    "among {}",
                    data.batch_size, data.parts));
  }
  const ProgressStyle style = Style();
  TrainerOptions options = Parse();
  CheckOutputs();
  options.engine = watch.Watched(options.engine);
  options.processes = processes_;
  TrainingData made = MakeTrainingData(data, model, seed);
  if (label_smoothing) SmoothLabels(*label_smoothing, &made.model, NamedModel(model));
  if (!class_weights.empty()) WeighClasses(class_weights, made.count_labels, &made.model, NamedModel(model));
  if (!metrics) options.metrics = DefaultMetrics(made.model.symbol);
  const std::string judged = Judged(options);
  options.info = ToInfo(TextsOf(*app, *this, options));
  options.fixed_params = Frozen(made.model);
  options.multipliers = Multipliers(made.model);
  CheckMetrics(options.metrics, made.model, *made.train);
  const FolderLock lock = TakeFolder();
  // Later checkpoints have their names again if the run ends by an error before its first step: it was refused for
  // another seed or batch size, say.
  const std::unique_ptr<GoingBack> back = PrepareFolder();
  if (json) {
    PrintLine(StartToJson(made, options));
  } else {
    Tell("{}",
         AsLines(fmt::format("training {} on {}: {} samples of {}, {} on {}; devices {}, batch {}{}", model.Name(),
                             data.data, made.train->samples(), SamplesText(made.train->ProvideData()),
                             data.validation_part > 0 ? "validated" : "tested", made.test->samples(), DevicesText(),
                             data.batch_size, precision == "float32" ? "" : ", in " + precision)));
  }

  Progress display(json || IsQuiet() ? ProgressStyle::kNone : style, !best.empty() || keep_best, data.JudgedOn());
  double seconds = 0;
  int64_t samples = 0;
  const auto on_epoch = [&](const EpochReport& report) {
    display.OnEpoch(report, epochs);
    seconds += report.seconds;
    samples += report.samples;
    if (json) PrintLine(ToJson(report, data.JudgedOn()));
  };
  const auto on_batch = [&](const BatchReport& report) {
    if (back) back->Keep();
    display.OnBatch(report, epochs);
    if (json && json_every > 0 && report.step % json_every == 0) PrintLine(StepToJson(report));
  };

  std::vector<Extension> extensions;
  if (!log.empty()) extensions.push_back(LogReport({.path = log}));
  std::optional<Trigger> stop;
  if (patience > 0) stop = EarlyStopping({.value = "validation/" + judged, .patience = patience});

  Trainer trainer(made.model, options);
  BestFile best_file(best, checkpoints);
  if (!best.empty()) extensions.push_back(best_file.Writer(&trainer));
  for (Extension& extension : watch.Extensions({.group = [&] { return trainer.group(); },
                              .settings = Settings(options),
                              .metrics = ParseMetrics(options.metrics),
                              .model = &made.model,
                              .train = made.train.get(),
                              .test = made.test.get(),
                              .judged_on = data.JudgedOn()})) {
    extensions.push_back(std::move(extension));
  }
  const ListenToSignals guard(&trainer);
  const FitResult result = trainer.Fit(*made.train, {.epochs = epochs,
                                                     .epoch_batches = epoch_batches,
                                                     .validation = made.test.get(),
                                                     .checkpoints = checkpoints,
                                                     .checkpoint_every = checkpoint_every,
                                                     .keep = keep,
                                                     .keep_best = keep_best,
                                                     .resume = resume,
                                                     .overwrite = overwrite,
                                                     .on_batch = on_batch,
                                                     .on_epoch = on_epoch,
                                                     .extensions = extensions,
                                                     .stop = stop,
                                                     .watch = judged});
  if (back) back->Keep();
  display.Clear();
  // Before metrics are looked at: that all values are finite, the run has seen.
  if (!save.empty()) trainer.Save(save);
  CheckValues("train", result.train);
  CheckValues(data.JudgedOn(), result.validation);
  // With weights of classes it may well be right less often than that.
  if (!result.stopped && !HasClassWeights(made.model))
    WarnIfNothingWasLearned(result.train, *made.label_counts, result.steps);
  if (json) {
    nlohmann::json line = {{"event", "end"},
                           {"stopped", result.stopped},
                           {"epochs", result.epochs},
                           {"steps", result.steps},
                           {"micro_batches", trainer.micro_batches()},
                           {"skipped", SkippedBy(*made.train)},
                           {"test_skipped", SkippedBy(*made.test)},
                           {"checkpoint", result.checkpoint}};
    AddJudged(result.validation, data.JudgedOn(), &line);
    PrintLine(line);
  }
  if (result.stopped) {
    Say("stopped at step {}; {}\n", result.steps,
        result.checkpoint.empty() ? "there is no checkpoint to continue from, because --checkpoints is empty"
                                  : fmt::format("checkpoint: {}; go on with --resume", result.checkpoint));
    return kStopped;
  }
  if (!json && IsFirst()) Report(result, trainer, made, samples, seconds, best_file.is_there());
  return kOk;
}

}  // namespace

void AddTrain(CLI::App* app, RunFn* run) {
  const auto c = std::make_shared<TrainCommand>();
  CLI::App* sub =
      app->add_subcommand("train", "train a model; without options: LeNet on drawn digits, on two CPU devices");
  c->app = sub;
  c->AddTo(sub);
  sub->callback([c, run] { *run = [c] { return c->Run(); }; });
}

}  // namespace bindery::cli
