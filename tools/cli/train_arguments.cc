#include "tools/cli/train_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/names.h"
#include "base/split_text.h"
#include "symbol/graph.h"
#include "tools/cli/arguments.h"
#include "tools/cli/exit_codes.h"
#include "train/initializer.h"
#include "train/precision.h"
#include "train/weights/weights.h"

namespace bindery::cli {
namespace {

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

std::vector<std::string> ParametersOf(const Symbol& symbol) {
  std::vector<std::string> parameters;
  const std::set<std::string> labels = ListLabels(symbol);
  for (const std::string& name : symbol.ListArguments()) {
    if (name != "data" && !labels.contains(name)) parameters.push_back(name);
  }
  return parameters;
}

}  // namespace

ProgressStyle TrainArguments::Style() const {
  const std::vector<std::string> names = {"auto", "bar", "lines", "none"};
  constexpr ProgressStyle kStyles[] = {ProgressStyle::kAuto, ProgressStyle::kBar, ProgressStyle::kLines,
                                       ProgressStyle::kNone};
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == progress) return kStyles[i];
  }
  throw UsageError(fmt::format("--progress: unknown style \"{}\"{}", progress, NameHint(progress, names)));
}

int64_t TrainArguments::MicroBatchesOf(int64_t limit) const {
  if (micro_batches == "auto") return MicroBatches::kAutomatic;
  const auto number = ParseNumber<int64_t>("--micro-batches", micro_batches, 1, StepBlock::kPrediction);
  if (number > data.batch_size) {
    throw UsageError(fmt::format("--micro-batches: a batch of {} samples makes at most {}, got {}", data.batch_size,
                                 data.batch_size, number));
  }
  if (limit > 0 && mirror != "auto") {
    throw UsageError(
        "--memory-limit says how many micro-batches there are, or what is computed again: --micro-batches auto, "
        "--mirror auto");
  }
  return number;
}

TrainerOptions TrainArguments::Parse() const {
  const std::string rule = optimizer.value_or(data.IsText() ? "adam(lr=0.002)" : "sgd(lr=0.05, momentum=0.9, wd=1e-4)");
  const auto parsed = ParseOption("--optimizer", [&] { return MakeOptimizer(rule); });
  ParseOption("--schedule", [&] { return ParseSchedule(schedule, parsed->options().learning_rate); });
  ParseOption("--precision", [&] { return ParsePrecision(precision); });
  ParseOption("--loss-scale", [&] { return ParseLossScaling(loss_scale); });
  if (!ParseOption("--average", [&] { return ParseAveraging(average); }) && use_average) {
    throw UsageError("--use-average needs --average");
  }
  ParseOption("--balance", [&] { return ParseBalancing(balance); });
  const Tuning tuning = TuningOf(tune);
  if (tuning != Tuning::kOff && block > 0) {
    throw UsageError(
        "--reproducible gives the same bits on all machines, --tune chooses by what is fast here: not both");
  }
  if (block < 0) throw UsageError(fmt::format("--reproducible: blocks have at least 1 sample, got {}", block));
  ParseOption("--initializer", [&] { return Initializer(initializer); });
  if (metrics) ParseMetrics(*metrics);
  const int64_t limit = memory_limit.empty() ? 0 : ParseBytes("--memory-limit", memory_limit);
  return {.devices = device.Devices(),
          .workload = device.workload,
          .optimizer = rule,
          .schedule = schedule,
          .initializer = initializer,
          .metrics = metrics.value_or(kMetricsOfHeads),
          .precision = precision,
          .loss_scale = loss_scale,
          .average = average,
          .use_average = use_average,
          .micro_batches = MicroBatchesOf(limit),
          .mirror = ParseMirror(mirror),
          .memory_limit = limit,
          .reproducible_block = block,
          .balance = balance,
          .kvstore = ParseOption("--kvstore", [&] { return ParseKVStoreType(kvstore); }),
          .seed = seed,
          .threads_per_device = device.threads,
          .tuning = tuning,
          .engine = device.MakeEngine()};
}

void TrainArguments::CheckOutputs() const {
  if (resume && checkpoints.empty()) throw UsageError("--resume needs a folder: --checkpoints is empty");
  if (keep_best && checkpoints.empty()) throw UsageError("--keep-best needs a folder: --checkpoints is empty");
  if (resume && overwrite) throw UsageError("--resume goes on with an earlier run, --overwrite replaces it: not both");
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
    ParseOption(option, [&name = *path] { CheckModelName(name); });
    CheckOutputFile(option, *path);
  }
  if (!log.empty()) CheckOutputFile("--log", log);
  watch.Check();
}

std::vector<std::string> TrainArguments::Frozen(const Model& trained) const {
  if (freeze.empty()) return {};
  const std::vector<std::string> parameters = ParametersOf(trained.symbol);
  std::vector<std::string> frozen = ParseOption("--freeze", [&] { return ChooseNames(parameters, freeze); });
  if (frozen.size() == parameters.size()) throw UsageError("--freeze: nothing is left to be trained");
  return frozen;
}

MultiplierList TrainArguments::Multipliers(const Model& trained) const {
  MultiplierList all;
  for (const auto& [option, text] : {std::pair("--lr-mult", &lr_mult), {"--wd-mult", &wd_mult}}) {
    if (text->empty()) continue;
    const size_t before = all.size();
    for (const std::string_view part : SplitText(*text, ',')) {
      const size_t equals = std::min(part.rfind('='), part.size());
      const std::string names(Trim(part.substr(0, equals)));
      if (names.empty() || equals == part.size()) {
        throw UsageError(fmt::format("{}: expected NAMES=NUMBER, as \"conv*=0.1\", got \"{}\"", option, part));
      }
      const auto factor = ParseNumber<double>(option, Trim(part.substr(equals + 1)), 0, 1e6);
      all.push_back({.names = names});
      (text == &lr_mult ? all.back().lr : all.back().wd) = factor;
    }
    const MultiplierList own(all.begin() + static_cast<std::ptrdiff_t>(before), all.end());
    ParseOption(option, [&] { CheckMultipliers(own, ParametersOf(trained.symbol)); });
  }
  return all;
}

void TrainArguments::AddTo(CLI::App* app) {
  model.AddTo(app);
  model.AddVariantsTo(app);
  device.AddTo(app);
  device.AddTimeoutTo(app);
  data.AddTo(app);
  const auto text = [&](const char* name, std::string* value, const char* help) {
    app->add_option(name, *value, help)->capture_default_str();
  };
  AddNumber(app, "--epochs", &epochs, 1, 1'000'000, "sweeps over the data, those before a resume included");
  AddNumber(app, "--epoch-batches", &epoch_batches, 0, INT64_MAX / 2,
            "batches of an epoch, wherever in the data it ends; 0: a sweep over them");
  AddText(app, "--optimizer", &optimizer,
          "sgd, adam, adamw, rmsprop, ... (bindery choices); default \"sgd(lr=0.05, momentum=0.9, wd=1e-4)\", of text "
          "\"adam(lr=0.002)\"");
  text("--schedule", &schedule, "e.g. \"factor(step=1000, factor=0.5)\", \"cosine(20, unit=epoch)\"; bindery choices");
  text("--precision", &precision, "float32, bfloat16 or float16; \"bfloat16(Pooling=float32)\": docs/precision.md");
  text("--loss-scale", &loss_scale,
       "e.g. \"dynamic(start=65536, interval=2000)\", \"static(1024)\"; default none, of float16 \"dynamic\"");
  text("--micro-batches", &micro_batches,
       "pieces that a batch is computed in, one after the other, as one step; \"auto\": the fewest that fit in memory");
  text(
      "--mirror", &mirror,
      "compute values again in backward, to the same bits, and so take less memory: \"auto\": as much as makes it fit; "
      "a share of the working memory, \"50%\"; bytes of it, \"512M\"; \"least\"");
  app->add_option("--memory-limit", memory_limit,
                  "of each device, for \"auto\": e.g. 512M, 1.5G; default: what the machine has");
  // What these are alone is not what they are by default, which is off; help shows it as that unless told otherwise.
  app->add_option("--reproducible", block,
                  "the same bits on any number of devices of a kind: in blocks of so many samples; alone: 32")
      ->expected(0, 1)
      ->default_str("32")
      ->option_text("[INT]");
  app->add_option("--balance", balance,
                  "devices get samples by how fast they are seen to be; alone: measured; \"measured(every=20)\"")
      ->expected(0, 1)
      ->default_str("measured")
      ->option_text("[TEXT]");
  AddTune(app, &tune);
  text("--average", &average, "keep averages of the weights: e.g. \"ema(0.999)\", \"swa(start=1000, every=10)\"");
  app->add_flag("--use-average", use_average, "validate, score and save with the averages");
  text("--freeze", &freeze, "parameters that stay as they are, by names or patterns: e.g. \"conv*,fc1_weight\"");
  text("--lr-mult", &lr_mult, "of the learning rate, by names or patterns of parameters: e.g. \"conv*=0.1,fc2_*=2\"");
  text("--wd-mult", &wd_mult, "of the weight decay, the same way");
  AddNumber(
      app, "--label-smoothing", &label_smoothing, 0, 1,
      "part of each label that all classes share, as label_smoothing of PyTorch; metrics are of the labels as they "
      "are; default: as the model has it, which is 0 by name");
  app->add_option(
      "--class-weights", class_weights,
      "how much labels of each class count: balanced, as if there were as many of each; numbers, \"1,10\"; by names, "
      "\"ill=10\", others 1; none; metrics count all alike; default: as the model has it, which is none by name");
  text("--initializer", &initializer, "e.g. xavier, \"normal(0.01)\", \"embed*: normal(0.02), msra\"");
  AddText(app, "--metrics", &metrics,
          "comma-separated: accuracy, top-k(5), cross-entropy, f1, mse, ...; default: what fits the model's heads "
          "(bindery choices)");
  text("--kvstore", &kvstore, "how devices' gradients are summed: local, device");
  AddNumber(app, "--seed", &seed, 0, UINT64_MAX, "of initial values, shuffling and dropout");
  text("--checkpoints", &checkpoints, "folder for checkpoints; \"\" writes none");
  AddNumber(app, "--checkpoint-every", &checkpoint_every, 0, INT64_MAX,
            "steps between checkpoints; 0: at the end of each epoch");
  AddNumber(app, "--keep", &keep, 1, 1'000'000, "checkpoints kept");
  app->add_flag("--keep-best", keep_best,
                "keep the checkpoint of the best epoch, too; one is written after each epoch");
  app->add_flag("--overwrite", overwrite, "replace the checkpoints of an earlier run in the folder");
  app->add_option_function<std::string>(
         "--resume",
         [this](const std::string& text) {
           from_best = text == "best";
           resume = from_best || text == "newest" || IsTrue("--resume", text, "newest or best");
         },
         "continue from the newest checkpoint in the folder, if there is one, with its options unless others are "
         "given; best: from that of the best epoch (--keep-best), later ones being set aside")
      ->expected(0, 1)
      ->default_str("newest")
      ->option_text("[TEXT]");
  app->add_option("--save", save, "write the trained model to this file (.pb, .prototxt or .onnx)");
  app->add_option("--best", best, "write the model with the best test so far to this file");
  app->add_option(
      "--watch", judged_by,
      "the metric by which an epoch is the best: of --best, --keep-best, --patience, plateau; default: the first");
  AddNumber(app, "--patience", &patience, 0, 1'000'000,
            "end the training after so many epochs without a better test; 0: never");
  app->add_option("--log", log, "write a line of JSON with all values to this file after each epoch");
  app->add_option("--write-digits", data.write_digits,
                  "also write the images to a folder: FOLDER as IDX files, images:FOLDER as PNG files by class");
  text("--progress", &progress, "auto, bar, lines or none");
  app->add_flag("--json", json, "JSON lines on standard output instead of text (docs/seeing.md)");
  AddNumber(app, "--json-every", &json_every, 0, INT64_MAX, "with --json: a line every so many steps, too; 0: none");
  watch.AddTo(app);
}

}  // namespace bindery::cli
