// bindery train
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "base/log.h"
#include "base/names.h"
#include "bindery/version.h"
#include "symbol/print/summary.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/data.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/json_lines.h"
#include "tools/cli/options.h"
#include "tools/cli/progress.h"
#include "tools/cli/signals.h"
#include "tools/cli/watch_options.h"
#include "train/checkpoint/checkpoint.h"
#include "train/extensions/reports.h"
#include "train/extensions/snapshots.h"
#include "train/initializer.h"
#include "train/precision.h"

namespace bindery::cli {
namespace {

struct TrainCommand {
  ModelOptions model;
  DeviceOptions device;
  DataOptions data;
  int64_t epochs = 8, epoch_batches = 0;
  std::string schedule = "constant", initializer = "xavier", kvstore = "device", precision = "float32", loss_scale,
              average;
  bool use_average = false;
  std::string micro_batches = "1", memory_limit, balance;
  int64_t block = 0;
  std::optional<std::string> optimizer, metrics;  // by the data, if not given
  uint64_t seed = 0;
  std::string checkpoints = kDefaultCheckpoints;
  int64_t checkpoint_every = 0;
  int keep = 3;
  bool resume = false, json = false;
  std::string save, best, log;
  int64_t patience = 0, json_every = 0;
  WatchOptions watch;
  std::string progress = "auto";

  TrainerOptions Parse() const;
  int64_t MicroBatchesOf(int64_t limit) const;
  void CheckOutputs() const;
  void Report(const FitResult& result, const Trainer& trainer, const Shape& batch, int64_t samples,
              double seconds) const;
  int Run();
  int Train();
  nlohmann::json StartToJson(const TrainingData& made, const TrainerOptions& options) const;
  std::map<std::string, EventWriter::Setting> Settings(const TrainerOptions& options) const;
};

ProgressStyle ParseStyle(const std::string& text) {
  const std::vector<std::string> names = {"auto", "bar", "lines", "none"};
  constexpr ProgressStyle kStyles[] = {ProgressStyle::kAuto, ProgressStyle::kBar, ProgressStyle::kLines,
                                       ProgressStyle::kNone};
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == text) return kStyles[i];
  }
  throw UsageError(fmt::format("--progress: unknown style \"{}\"{}", text, NameHint(text, names)));
}

// Errors in an option's text become usage errors that name the option.
template <class F>
auto ParseOption(const char* option, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    throw UsageError(fmt::format("{}: {}", option, e.message()));
  }
}

// The file that a text of data names, "csv:iris.csv?label=species"; empty if it is none.
std::string FileOf(const std::string& data) {
  const size_t colon = data.find(':');
  return colon == std::string::npos ? "" : data.substr(colon + 1, data.find('?', colon) - colon - 1);
}

int64_t TrainCommand::MicroBatchesOf(int64_t limit) const {
  if (micro_batches == "auto") return MicroBatches::kAutomatic;
  const auto number = ParseNumber<int64_t>("--micro-batches", micro_batches, 1, StepBlock::kPrediction);
  if (number > data.batch_size) {
    throw UsageError(fmt::format("--micro-batches: a batch of {} samples makes at most {}, got {}", data.batch_size,
                                 data.batch_size, number));
  }
  if (limit > 0) throw UsageError("--memory-limit says how many micro-batches there are: --micro-batches auto");
  return number;
}

TrainerOptions TrainCommand::Parse() const {
  const std::string rule = optimizer.value_or(data.IsText() ? "adam(lr=0.002)" : "sgd(lr=0.05, momentum=0.9, wd=1e-4)");
  const std::string measured = data.MetricsOr(metrics);
  const auto parsed = ParseOption("--optimizer", [&] { return MakeOptimizer(rule); });
  ParseOption("--schedule", [&] { return ParseSchedule(schedule, parsed->options().learning_rate); });
  ParseOption("--precision", [&] { return ParsePrecision(precision); });
  ParseOption("--loss-scale", [&] { return ParseLossScaling(loss_scale); });
  if (!ParseOption("--average", [&] { return ParseAveraging(average); }) && use_average) {
    throw UsageError("--use-average needs --average");
  }
  ParseOption("--balance", [&] { return ParseBalancing(balance); });
  if (block < 0) throw UsageError(fmt::format("--reproducible: blocks have at least 1 sample, got {}", block));
  ParseOption("--initializer", [&] { return Initializer(initializer); });
  ParseMetrics(measured);
  const int64_t limit = memory_limit.empty() ? 0 : ParseBytes("--memory-limit", memory_limit);
  return {.devices = device.Devices(),
          .workload = device.workload,
          .optimizer = rule,
          .schedule = schedule,
          .initializer = initializer,
          .metrics = measured,
          .precision = precision,
          .loss_scale = loss_scale,
          .average = average,
          .use_average = use_average,
          .micro_batches = MicroBatchesOf(limit),
          .memory_limit = limit,
          .reproducible_block = block,
          .balance = balance,
          .kvstore = ParseOption("--kvstore", [&] { return ParseKVStoreType(kvstore); }),
          .seed = seed,
          .threads_per_device = device.threads,
          .engine = device.MakeEngine()};
}

void TrainCommand::CheckOutputs() const {
  if (resume && checkpoints.empty()) throw UsageError("--resume needs a folder: --checkpoints is empty");
  std::vector<std::pair<std::string, std::string>> outputs = {{"--save", save},
                                                              {"--best", best},
                                                              {"--log", log},
                                                              {"--checkpoints", checkpoints},
                                                              {"--write-digits", data.write_digits}};
  for (const auto& output : watch.Outputs()) outputs.push_back(output);
  CheckDifferent(outputs);
  // A log is written from the beginning on, in place of what was there. (A model may take the place of its own file.)
  const std::string model_file = model.model.empty() || model.IsByName() ? "" : model.model;
  for (const auto& [option, path] : {std::pair("--data", FileOf(data.data)),
                                     {"--test-data", FileOf(data.test_data)},
                                     {"--model", model_file},
                                     {"--weights", model.weights}}) {
    CheckDifferent({{option, path}, {"--log", log}});
    for (const auto& output : watch.Outputs()) CheckDifferent({{option, path}, output});
  }
  for (const auto& [option, path] : {std::pair("--save", &save), {"--best", &best}}) {
    if (path->empty()) continue;
    if (!path->ends_with(".pb") && !path->ends_with(".prototxt") && !path->ends_with(".onnx")) {
      throw UsageError(
          fmt::format("{}: expected a name that ends in .pb, .prototxt or .onnx, got \"{}\"", option, *path));
    }
    CheckOutputFile(option, *path);
  }
  if (!log.empty()) CheckOutputFile("--log", log);
  watch.Check();
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
  const DataDesc input = made.train->ProvideData()[0];
  return {{"event", "start"},
          {"schema", kEventsSchema},
          {"version", BINDERY_VERSION},
          {"model", model.Name()},
          {"parameters", CountParameters(made.model.symbol, {{input.name, input.shape}}).arguments},
          {"data", data.data},
          {"samples", made.train->samples()},
          {"test_samples", made.test->samples()},
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

// The end of a run, for people.
void TrainCommand::Report(const FitResult& result, const Trainer& trainer, const Shape& batch, int64_t samples,
                          double seconds) const {
  const auto row = [](const std::string& what, const std::string& value) { fmt::print("  {:<22}{}\n", what, value); };
  fmt::print("\nresult\n");
  const ParameterCount count = CountParameters(trainer.symbol(), {{"data", batch}});
  row("model", fmt::format("{}, {} parameters", model.Name(), count.arguments));
  row("devices", device.devices);
  if (trainer.micro_batches() > 1) row("micro-batches", fmt::format("{} of a batch", trainer.micro_batches()));
  row("epochs, steps", fmt::format("{}, {}", result.epochs, result.steps));
  for (const auto& [set, values] : {std::pair("train ", &result.train), {"test ", &result.validation}}) {
    for (const auto& [name, value] : *values) row(set + name, fmt::format("{:.4f}{}", value, data.UnitOf(name)));
  }
  if (seconds > 0) {
    const double rate = static_cast<double>(samples) / seconds;
    row("training time", fmt::format("{}, {:.0f} samples/s", Duration(seconds), rate));
  }
  if (!result.checkpoint.empty()) row("checkpoint", result.checkpoint);
  if (!save.empty()) row("model file", save);
  if (!best.empty()) row("best model file", best);
}

// Says so if the model that was trained is no better than the best answer that does not look at the data: their labels'
// shares, or the label that is the most frequent.
void WarnIfNothingWasLearned(const NamedValues& trained, const std::map<double, int64_t>& counts) {
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

// The errors of a run that writes JSON are an event, too, whatever they are.
int TrainCommand::Run() {
  if (!json) return Train();
  try {
    return Train();
  } catch (const std::exception& e) {
    PrintLine(ErrorToJson(e));
    throw;
  }
}

int TrainCommand::Train() {
  const ProgressStyle style = ParseStyle(progress);
  TrainerOptions options = Parse();
  CheckOutputs();
  options.engine = watch.Watched(options.engine);
  TrainingData made = MakeTrainingData(data, model, seed);
  const DataDesc input = made.train->ProvideData()[0];
  CheckMetrics(options.metrics, made.model.symbol, *made.train);
  if (!checkpoints.empty()) {
    MakeOutputFolder("--checkpoints", checkpoints);
    LockFolder("--checkpoints", checkpoints);
    const std::vector<std::string> earlier = CheckpointStore(checkpoints).List();
    if (!resume && !earlier.empty()) {
      LogLine(LogLevel::kWarning, fmt::format("\"{}\" is of an earlier run; this one starts anew and will replace it "
                                              "(--resume would continue it)",
                                              earlier.back()));
    }
  }
  if (json) {
    PrintLine(StartToJson(made, options));
  } else {
    Say("training {} on {}: {} samples of {}, tested on {}; devices {}, batch {}{}\n", model.Name(), data.data,
        made.train->samples(), input.shape.Erase(input.BatchAxis()), made.test->samples(), device.devices,
        data.batch_size, precision == "float32" ? "" : ", in " + precision);
  }

  Progress display(json ? ProgressStyle::kNone : style);
  double seconds = 0;
  int64_t samples = 0;
  const auto on_epoch = [&](const EpochReport& report) {
    display.OnEpoch(report, epochs);
    seconds += report.seconds;
    samples += report.samples;
    if (json) PrintLine(ToJson(report));
  };
  const auto on_batch = [&](const BatchReport& report) {
    display.OnBatch(report, epochs);
    if (json && json_every > 0 && report.step % json_every == 0) PrintLine(StepToJson(report));
  };

  // What is judged is the first metric of the test.
  const std::string judged = "validation/" + ParseMetrics(options.metrics)[0];
  std::vector<Extension> extensions;
  if (!log.empty()) extensions.push_back(LogReport({.path = log}));
  if (!best.empty()) extensions.push_back(BestModel(best, judged));
  std::optional<Trigger> stop;
  if (patience > 0) stop = EarlyStopping({.value = judged, .patience = patience});

  Trainer trainer(made.model, options);
  for (Extension& extension : watch.Extensions({.group = [&] { return trainer.group(); },
                              .settings = Settings(options),
                              .metrics = ParseMetrics(options.metrics),
                              .model = &made.model,
                              .train = made.train.get(),
                              .test = made.test.get()})) {
    extensions.push_back(std::move(extension));
  }
  const ListenToSignals guard(&trainer);
  const FitResult result = trainer.Fit(*made.train, {.epochs = epochs,
                                                     .epoch_batches = epoch_batches,
                                                     .validation = made.test.get(),
                                                     .checkpoints = checkpoints,
                                                     .checkpoint_every = checkpoint_every,
                                                     .keep = keep,
                                                     .resume = resume,
                                                     .on_batch = on_batch,
                                                     .on_epoch = on_epoch,
                                                     .extensions = extensions,
                                                     .stop = stop});
  display.Clear();
  CheckFinite("train", result.train);
  CheckFinite("test", result.validation);
  if (!result.stopped) WarnIfNothingWasLearned(result.train, made.label_counts);
  if (!save.empty()) trainer.Save(save);
  if (json) {
    const nlohmann::json line = {{"event", "end"},
                                 {"stopped", result.stopped},
                                 {"epochs", result.epochs},
                                 {"steps", result.steps},
                                 {"micro_batches", trainer.micro_batches()},
                                 {"test", ToJson(result.validation)},
                                 {"checkpoint", result.checkpoint}};
    PrintLine(line);
  }
  if (result.stopped) {
    Say("stopped at step {}; {}\n", result.steps,
        result.checkpoint.empty() ? "there is no checkpoint to continue from, because --checkpoints is empty"
                                  : fmt::format("checkpoint: {}; go on with --resume", result.checkpoint));
    return kStopped;
  }
  if (!json) Report(result, trainer, input.shape, samples, seconds);
  return kOk;
}

}  // namespace

void AddTrain(CLI::App* app, RunFn* run) {
  const auto c = std::make_shared<TrainCommand>();
  CLI::App* sub =
      app->add_subcommand("train", "train a model; without options: LeNet on drawn digits, on two CPU devices");
  c->model.AddTo(sub);
  c->model.AddVariantsTo(sub);
  c->device.AddTo(sub);
  c->device.AddTimeoutTo(sub);
  c->data.AddTo(sub);
  const auto text = [&](const char* name, std::string* value, const char* help) {
    sub->add_option(name, *value, help)->capture_default_str();
  };
  AddNumber(sub, "--epochs", &c->epochs, 1, 1'000'000, "sweeps over the data, those before a resume included");
  AddNumber(sub, "--epoch-batches", &c->epoch_batches, 0, INT64_MAX / 2,
            "batches of an epoch, wherever in the data it ends; 0: a sweep over them");
  AddText(
      sub, "--optimizer", &c->optimizer,
      "sgd, adam, adamw, rmsprop, ...; default \"sgd(lr=0.05, momentum=0.9, wd=1e-4)\", of text \"adam(lr=0.002)\"");
  text("--schedule", &c->schedule, "e.g. \"factor(step=1000, factor=0.5)\"");
  text("--precision", &c->precision, "float32, bfloat16 or float16; \"bfloat16(Pooling=float32)\": docs/precision.md");
  text("--loss-scale", &c->loss_scale,
       "e.g. \"dynamic(start=65536, interval=2000)\", \"static(1024)\"; default none, of float16 \"dynamic\"");
  text("--micro-batches", &c->micro_batches,
       "pieces that a batch is computed in, one after the other, as one step; \"auto\": the fewest that fit in memory");
  sub->add_option("--memory-limit", c->memory_limit,
                  "of each device, for \"auto\": e.g. 512M, 1.5G; default: what the machine has");
  sub->add_option("--reproducible", c->block,
                  "the same bits on any number of devices of a kind: in blocks of so many samples; alone: 32")
      ->expected(0, 1)
      ->default_str("32");
  sub->add_option("--balance", c->balance,
                  "devices get samples by how fast they are seen to be; alone: measured; \"measured(every=20)\"")
      ->expected(0, 1)
      ->default_str("measured");
  text("--average", &c->average, "keep averages of the weights: e.g. \"ema(0.999)\", \"swa(start=1000, every=10)\"");
  sub->add_flag("--use-average", c->use_average, "validate, score and save with the averages");
  text("--initializer", &c->initializer, "e.g. xavier, \"normal(0.01)\", \"embed*: normal(0.02), msra\"");
  AddText(sub, "--metrics", &c->metrics,
          "comma-separated: accuracy, top-k(5), cross-entropy, f1, mse, ...; default accuracy and cross-entropy");
  text("--kvstore", &c->kvstore, "how devices' gradients are summed: local, device");
  AddNumber(sub, "--seed", &c->seed, 0, UINT64_MAX, "of initial values, shuffling and dropout");
  text("--checkpoints", &c->checkpoints, "folder for checkpoints; \"\" writes none");
  AddNumber(sub, "--checkpoint-every", &c->checkpoint_every, 0, INT64_MAX,
            "steps between checkpoints; 0: at the end of each epoch");
  AddNumber(sub, "--keep", &c->keep, 1, 1'000'000, "checkpoints kept");
  sub->add_flag("--resume", c->resume, "continue from the newest checkpoint in the folder, if there is one");
  sub->add_option("--save", c->save, "write the trained model to this file (.pb, .prototxt or .onnx)");
  sub->add_option("--best", c->best, "write the model with the best test so far to this file, by its first metric");
  AddNumber(sub, "--patience", &c->patience, 0, 1'000'000,
            "end the training after so many epochs without a better test; 0: never");
  sub->add_option("--log", c->log, "write a line of JSON with all values to this file after each epoch");
  sub->add_option("--write-digits", c->data.write_digits, "also write the images as IDX files to this folder");
  text("--progress", &c->progress, "auto, bar, lines or none");
  sub->add_flag("--json", c->json, "JSON lines on standard output instead of text (docs/seeing.md)");
  AddNumber(sub, "--json-every", &c->json_every, 0, INT64_MAX, "with --json: a line every so many steps, too; 0: none");
  c->watch.AddTo(sub);
  sub->callback([c, run] { *run = [c] { return c->Run(); }; });
}

}  // namespace bindery::cli
