// bindery train
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "symbol/summary.h"
#include "tools/cli/commands.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/options.h"
#include "tools/cli/progress.h"
#include "train/idx.h"
#include "train/initializer.h"
#include "train/prefetch_iter.h"

namespace bindery::cli {
namespace {

struct TrainCommand {
  ModelOptions model;
  DeviceOptions device;
  DataOptions data;
  int64_t epochs = 8;
  std::string optimizer = "sgd(lr=0.05, momentum=0.9, wd=1e-4)", schedule = "constant", initializer = "xavier";
  std::string metrics = "accuracy,cross-entropy", kvstore = "device";
  uint64_t seed = 0;
  std::string checkpoints = kDefaultCheckpoints;
  int64_t checkpoint_every = 0;
  int keep = 3;
  bool resume = false, json = false;
  std::string save, write_digits;
  std::string progress = "auto";

  int Run() const;
};

Trainer* running = nullptr;

// First signal: stop after this step, with a checkpoint. Second: at once.
void OnSignal(int signal) {
  if (running == nullptr) _exit(128 + signal);
  running->RequestStop();
  running = nullptr;
}

ProgressStyle ParseStyle(const std::string& text) {
  if (text == "bar") return ProgressStyle::kBar;
  if (text == "lines") return ProgressStyle::kLines;
  return text == "none" ? ProgressStyle::kNone : ProgressStyle::kAuto;
}

nlohmann::json ToJson(const NamedValues& values) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, value] : values) object[name] = value;
  return object;
}

// Errors in an option's text become usage errors that name the option.
template <class F>
auto Parse(const char* option, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    throw UsageError(fmt::format("{}: {}", option, e.message()));
  }
}

int TrainCommand::Run() const {
  const auto parsed = Parse("--optimizer", [&] { return MakeOptimizer(optimizer); });
  Parse("--schedule", [&] { return ParseSchedule(schedule, parsed->options().learning_rate); });
  Parse("--initializer", [&] { return Initializer(initializer); });
  Parse("--metrics", [&] { return MakeMetric(metrics); });
  const TrainerOptions options{.devices = device.Devices(), .workload = device.workload, .optimizer = optimizer, .schedule = schedule,
                               .initializer = initializer, .metrics = metrics, .kvstore = Parse("--kvstore", [&] { return ParseKVStoreType(kvstore); }),
                               .seed = seed, .threads_per_device = device.threads};
  const Model loaded = model.Load();
  Trainer trainer(loaded, options);

  ImageSet train = data.Train(), test = data.Test();
  if (!write_digits.empty()) {
    WriteIdxImages(train, write_digits + "/train-images-idx3-ubyte", write_digits + "/train-labels-idx1-ubyte");
    WriteIdxImages(test, write_digits + "/t10k-images-idx3-ubyte", write_digits + "/t10k-labels-idx1-ubyte");
  }
  const int64_t train_count = train.labels.elements(), test_count = test.labels.elements();
  Shape batch_shape = train.images.shape();
  if (const auto sample = SampleShape(loaded, model.Name())) {
    train.images = FitImages(train.images, *sample, model.Name());
    test.images = FitImages(test.images, *sample, model.Name());
    batch_shape = train.images.shape();
  }
  batch_shape.Set(0, data.batch_size);
  PrefetchIter train_iter(std::make_unique<ArrayIter>(std::move(train.images), std::move(train.labels), ArrayIterOptions{.batch_size = data.batch_size, .shuffle = true, .seed = seed}));
  ArrayIter test_iter(std::move(test.images), std::move(test.labels), {.batch_size = data.batch_size});

  Progress display(json ? ProgressStyle::kNone : ParseStyle(progress));
  if (!json) {
    fmt::print(stderr, "training {} on {}: {} samples, tested on {}; devices {}, batch {}\n", model.Name(), data.data, train_count, test_count, device.devices, data.batch_size);
  }
  running = &trainer;
  std::signal(SIGINT, OnSignal);
  std::signal(SIGTERM, OnSignal);
  double seconds = 0;
  int64_t trained = 0;
  const FitResult result = trainer.Fit(train_iter, {.epochs = epochs, .validation = &test_iter, .checkpoints = checkpoints, .checkpoint_every = checkpoint_every, .keep = keep, .resume = resume,
      .on_batch = [&](const BatchReport& report) { display.OnBatch(report, epochs); },
      .on_epoch = [&](const EpochReport& report) {
        display.OnEpoch(report, epochs);
        seconds += report.seconds;
        trained += static_cast<int64_t>(report.samples_per_second * report.seconds + 0.5);
        if (!json) return;
        const nlohmann::json line = {{"event", "epoch"}, {"epoch", report.epoch + 1}, {"step", report.step}, {"seconds", report.seconds},
                                     {"samples_per_second", report.samples_per_second}, {"learning_rate", report.learning_rate},
                                     {"train", ToJson(report.train)}, {"test", ToJson(report.validation)}};
        fmt::print("{}\n", line.dump());
        std::fflush(stdout);
      }});
  running = nullptr;
  display.Clear();
  if (!save.empty()) trainer.Save(save);
  if (result.stopped) {
    fmt::print(stderr, "stopped at step {}; checkpoint: {}; go on with --resume\n", result.steps, result.checkpoint);
    return kStopped;
  }
  if (json) {
    const nlohmann::json line = {{"event", "end"}, {"epochs", result.epochs}, {"steps", result.steps}, {"test", ToJson(result.validation)}, {"checkpoint", result.checkpoint}};
    fmt::print("{}\n", line.dump());
    return kOk;
  }
  const auto row = [](const std::string& what, const std::string& value) { fmt::print("  {:<22}{}\n", what, value); };
  fmt::print("\nresult\n");
  row("model", fmt::format("{}, {} parameters", model.Name(), CountParameters(loaded.symbol, {{"data", batch_shape}}).arguments));
  row("devices", device.devices);
  row("epochs, steps", fmt::format("{}, {}", result.epochs, result.steps));
  for (const auto& [name, value] : result.train) row("train " + name, fmt::format("{:.4f}", value));
  for (const auto& [name, value] : result.validation) row("test " + name, fmt::format("{:.4f}", value));
  if (seconds > 0) row("training time", fmt::format("{}, {:.0f} samples/s", Duration(seconds), static_cast<double>(trained) / seconds));
  if (!result.checkpoint.empty()) row("checkpoint", result.checkpoint);
  if (!save.empty()) row("model file", save);
  return kOk;
}

}  // namespace

void AddTrain(CLI::App* app, RunFn* run) {
  const auto c = std::make_shared<TrainCommand>();
  CLI::App* sub = app->add_subcommand("train", "train a model; without options: LeNet on drawn digits, on two CPU devices");
  c->model.AddTo(sub);
  c->device.AddTo(sub);
  c->data.AddTo(sub);
  sub->add_option("--epochs", c->epochs, "sweeps over the data, those before a resume included")->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))->capture_default_str();
  sub->add_option("--optimizer", c->optimizer, "e.g. \"sgd(lr=0.05, momentum=0.9, wd=1e-4)\"")->capture_default_str();
  sub->add_option("--schedule", c->schedule, "e.g. \"factor(step=1000, factor=0.5)\"")->capture_default_str();
  sub->add_option("--initializer", c->initializer, "e.g. xavier, \"normal(0.01)\", msra")->capture_default_str();
  sub->add_option("--metrics", c->metrics, "comma-separated: accuracy, top-k(5), cross-entropy, mse, ...")->capture_default_str();
  sub->add_option("--kvstore", c->kvstore, "how devices' gradients are summed: local, device")->capture_default_str();
  sub->add_option("--seed", c->seed, "of initial values, shuffling and dropout")->capture_default_str();
  sub->add_option("--checkpoints", c->checkpoints, "folder for checkpoints; \"\" writes none")->capture_default_str();
  sub->add_option("--checkpoint-every", c->checkpoint_every, "steps between checkpoints; 0: at the end of each epoch")->check(CLI::NonNegativeNumber)->capture_default_str();
  sub->add_option("--keep", c->keep, "checkpoints kept")->check(CLI::Range(1, 1'000'000))->capture_default_str();
  sub->add_flag("--resume", c->resume, "continue from the newest checkpoint in the folder, if there is one");
  sub->add_option("--save", c->save, "write the trained model to this file (.pb or .prototxt)");
  sub->add_option("--write-digits", c->write_digits, "also write the images as IDX files to this folder");
  sub->add_option("--progress", c->progress, "auto, bar, lines or none")->check(CLI::IsMember({"auto", "bar", "lines", "none"}))->capture_default_str();
  sub->add_flag("--json", c->json, "JSON lines on standard output instead of text");
  sub->callback([c, run] { *run = [c] { return c->Run(); }; });
}

}  // namespace bindery::cli
