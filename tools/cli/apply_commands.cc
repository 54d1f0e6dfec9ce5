// bindery test, bindery predict: use of a trained model.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/files.h"
#include "base/log.h"
#include "symbol/ops/heads.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/data.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/json_lines.h"
#include "tools/cli/options.h"
#include "tools/cli/predicted_numbers.h"
#include "tools/cli/predictions.h"
#include "tools/cli/progress.h"
#include "tools/cli/run_options.h"
#include "tools/pages/class_scores.h"
#include "tools/pages/confusion.h"
#include "train/data/tables/npy.h"
#include "train/finite.h"

namespace bindery::cli {
namespace {

nlohmann::json ToJson(const ClassScores& scores) {
  const auto value = [](const std::optional<double>& one) { return one ? nlohmann::json(*one) : nlohmann::json(); };
  return {{"precision", value(scores.precision)}, {"recall", value(scores.recall)}, {"f1", value(scores.f1)}};
}

struct ApplyCommand {
  CLI::App* app = nullptr;
  ModelOptions model;
  DeviceOptions device;
  DataOptions data;
  CheckpointOptions checkpoints;
  std::string output, report;
  std::optional<std::string> metrics;  // by the data, if not given
  double min_accuracy = 0;
  int64_t show = 10, worst = 24, top = 1;
  bool json = false, confusion = false;
  bool unknown_part = false;  // does nobody know whether the model was trained on the rest of the data?

  void AddTo(CLI::App* sub) {
    app = sub;
    model.AddTo(sub);
    device.AddTo(sub);
    device.AddTimeoutTo(sub);
    data.AddTo(sub);
    CLI::Option* from = sub->get_option("--data");
    from->default_str("")->description(from->get_description() + "; default: what the checkpoint's run was trained on");
    checkpoints.AddTo(sub);
    sub->add_flag("--validation", data.on_validation,
                  "of the data of the training, the part of --validation-part, in place of the test data");
    sub->add_flag("--json", json, "JSON on standard output");
  }
  // The model to apply, and `data` as the command line and the model's checkpoint have them.
  LoadedModel LoadModelAndSettleData(bool for_prediction);
  // That --validation takes what the model of this source was not trained on, with these options.
  void CheckSameParts(const OptionTexts& run, const std::string& source) const;
  // The model on its devices, and the test data in its form.
  std::unique_ptr<Trainer> Load(const LoadedModel& trained, TestData* test, bool for_prediction) const;
  void CheckDataAndMetrics() const;
  void CheckNoClasses(const std::string& source) const;  // of a model that gives numbers
  int Test();
  // Which class is taken for which: to the line, to standard output, and as a page, as the options want it.
  void Judge(Trainer* trainer, const TestData& test, const std::string& source, const NamedValues& values,
             nlohmann::json* line) const;
  int Predict();
  // Prints what was predicted, and writes it where it is wanted.
  template <class T>
  int Write(const T& answers) const;
  int WriteAsItIs(const HostTensor& scores) const;
};

// What the command line does not say about the data, the checkpoint does. A model's file says nothing about them, and
// digits are drawn for those only who ask for them.
LoadedModel ApplyCommand::LoadModelAndSettleData(bool for_prediction) {
  device.Devices();  // is checked before much is read
  LoadedModel trained = LoadTrained(checkpoints, model);
  if (GivesNumbers(trained.model)) CheckNoClasses(trained.source);
  if (!metrics) metrics = DefaultMetrics(trained.model.symbol);
  // What is given to be predicted is not to be trained on: there is no part to be kept for a test.
  const bool all = for_prediction && !data.on_validation && IsGiven(*app, {"--data"}) &&
                   !IsGiven(*app, {"--test-part"}) && !data.says_part;
  const OptionTexts run = TextsIn(trained.info);
  OptionTexts texts = run;
  // A file that describes data says all of it.
  std::erase_if(texts, [&](const auto& option) { return data.from_file || !IsOfData(option.first); });
  // The run's shard is of the run's data.
  if (IsGiven(*app, {"--test-data"}) && !data.on_validation) texts.erase("--shard");
  TakeOver(texts, trained.source, app);
  if (data.on_validation && !run.empty()) CheckSameParts(run, trained.source);
  if (all) data.test_part = 1;
  unknown_part = run.empty() && !all && data.test_data.empty() && !IsGiven(*app, {"--test-part"}) && !data.says_part;
  if (IsGiven(*app, {"--data", "--test-digits", "--digits-seed"})) return trained;
  if (IsGiven(*app, {"--test-data"}) && !data.on_validation) return trained;
  throw UsageError(fmt::format(
      "{} does not say what it was trained on: give --data (\"--data digits\" for drawn digits)", trained.source));
}

void ApplyCommand::CheckSameParts(const OptionTexts& run, const std::string& source) const {
  const OptionTexts here = TextsOf(data);
  const auto text_in = [](const OptionTexts& texts, const char* option) {
    const auto found = texts.find(option);
    return found == texts.end() ? "none" : fmt::format("\"{}\"", found->second);
  };
  for (const char* option :
       {"--data", "--test-data", "--validation-part", "--test-part", "--shard", "--train-digits", "--digits-seed"}) {
    const std::string of_run = text_in(run, option), given = text_in(here, option);
    if (given == of_run) continue;
    throw UsageError(fmt::format(
        "--validation: {} is {}, but {} was trained with {}: it takes a part of the run's own data, so give no others, "
        "or leave it out",
        option, given, source, of_run));
  }
}

std::unique_ptr<Trainer> ApplyCommand::Load(const LoadedModel& trained, TestData* test, bool for_prediction) const {
  const TrainerOptions options{.devices = device.Devices(),
                               .workload = device.workload,
                               .metrics = *metrics,
                               .threads_per_device = device.threads,
                               .engine = device.MakeEngine()};
  *test = MakeTestData(data, trained.model, trained.source, for_prediction);
  // Who gives data to test on may not know that a part of them is taken.
  const bool is_part =
      !data.on_validation && data.test_data.empty() && (data.IsSamples() || data.IsText()) && data.test_part < 1;
  const std::string part = is_part ? fmt::format("--test-part {} of ", data.test_part) : "";
  Tell("{}; data: {}{}\n", trained.source, part, data.TestedText());
  if (is_part && unknown_part) {
    LogLine(LogLevel::kWarning,
            fmt::format("{} does not say whether it was trained on other samples of {}: {} of them are tested on, as "
                        "after a training on these; of new data, --test-part 1 takes all",
                        trained.source, data.data, data.test_part));
  }
  if (!for_prediction) CheckMetrics(options.metrics, trained.model, *test->iter);
  return std::make_unique<Trainer>(trained.model, options);
}

void ApplyCommand::Judge(Trainer* trainer, const TestData& test, const std::string& source, const NamedValues& values,
                         nlohmann::json* line) const {
  const Judgement judged = bindery::Judge(trainer, test.iter.get(), report.empty() ? 0 : worst);
  if (json && confusion) {
    nlohmann::json rows = nlohmann::json::array();
    for (int64_t label = 0; label < judged.confusion.classes(); ++label) {
      nlohmann::json row = nlohmann::json::array();
      for (int64_t c = 0; c < judged.confusion.classes(); ++c) row.push_back(judged.confusion.count(label, c));
      rows.push_back(std::move(row));
    }
    (*line)["confusion"] = std::move(rows);  // [label][answer]
    (*line)["classes"] = nlohmann::json::array();
    for (int64_t label = 0; label < judged.confusion.classes(); ++label) {
      nlohmann::json one = ToJson(ScoresOfClass(judged.confusion, label));
      one["class"] = label;
      one["samples"] = judged.confusion.OfLabel(label);
      if (label < std::ssize(test.classes)) one["name"] = test.classes[static_cast<size_t>(label)];
      (*line)["classes"].push_back(std::move(one));
    }
    (*line)["macro_average"] = ToJson(MacroAverage(judged.confusion));
    (*line)["unjudged"] = judged.unjudged;
  } else if (confusion) {
    fmt::print("{}\n{}", ToText(judged.confusion, test.classes), ScoresToText(judged.confusion, test.classes));
    if (judged.unjudged > 0) fmt::print("{} more without a class as label, or with NaN as a score\n", judged.unjudged);
  }
  if (report.empty()) return;
  WriteFileAtomically(report, JudgementPage(judged, {.title = fmt::format("{} on {}", source, data.TestedText()),
                                                     .names = test.classes,
                                                     .values = values}));
}

void ApplyCommand::CheckNoClasses(const std::string& source) const {
  for (const auto& [option, is_set] : {std::pair("--confusion", confusion),
                                       {"--report", !report.empty()},
                                       {"--min-accuracy", min_accuracy > 0},
                                       {"--top", top > 1}}) {
    if (is_set) throw UsageError(fmt::format("{} is about classes, but {} gives numbers", option, source));
  }
}

// What can be said before the model is loaded is said then; what its checkpoint tells of the data, behind that.
void ApplyCommand::CheckDataAndMetrics() const {
  if ((confusion || !report.empty()) && data.IsText()) {
    throw UsageError(fmt::format("{}: samples of a text have no class each", confusion ? "--confusion" : "--report"));
  }
  if (!metrics) return;  // those of the model's heads
  const std::vector<std::string> names = ParseMetrics(*metrics);
  if (min_accuracy > 0 && std::find(names.begin(), names.end(), "accuracy") == names.end()) {
    throw UsageError(fmt::format("--min-accuracy needs the metric accuracy, --metrics has {}", *metrics));
  }
}

int ApplyCommand::Test() {
  if (!report.empty()) CheckOutputFile("--report", report);
  model.CheckKept({{"--report", report}});
  CheckDataAndMetrics();
  const LoadedModel trained = LoadModelAndSettleData(/*for_prediction=*/false);
  CheckDataAndMetrics();
  TestData test;
  const std::unique_ptr<Trainer> trainer = Load(trained, &test, /*for_prediction=*/false);
  const int64_t count = test.iter->samples();
  const NamedValues values = trainer->Score(*test.iter);
  CheckValues(data.on_validation ? "validation" : "test", values);
  const auto judge = [&](nlohmann::json* line) {
    if (confusion || !report.empty()) {
      Judge(trainer.get(), test, model.model.empty() && model.weights.empty() ? checkpoints.folder : model.Name(),
            values, line);
    }
  };
  if (json) {
    nlohmann::json line = {{"samples", count}, {"skipped", SkippedBy(*test.iter)}};
    for (const auto& [name, value] : values) line[name] = value;
    judge(&line);
    PrintLine(line);
  } else {
    const std::string unit = data.UnitOf(values.back().first);  // of the last, which stands before it
    const int64_t skipped = SkippedBy(*test.iter);
    fmt::print("{} samples{}: {}{}\n", count,
               skipped > 0 ? fmt::format(", of which {} damaged and skipped", skipped) : "", ToText(values), unit);
    judge(nullptr);
  }
  for (const auto& [name, value] : values) {
    if (name == "accuracy" && min_accuracy > 0 && !(value >= min_accuracy)) {
      Say("accuracy {:.4f} is below {}\n", value, min_accuracy);
      return kBelowTarget;
    }
  }
  return kOk;
}

const HostTensor& AllOf(const Predictions& predictions) { return predictions.scores; }
const HostTensor& AllOf(const PredictedNumbers& numbers) { return numbers.values; }

template <class T>
int ApplyCommand::Write(const T& answers) const {
  if (json) {
    // Names of files are not always UTF-8.
    PrintLine(ToJson(answers, show));
  } else {
    fmt::print("{}", ToTable(answers, show));
    if (answers.samples() > show)
      fmt::print("({} of {} shown; --show and --output give more)\n", show, answers.samples());
  }
  if (output.ends_with(".npy")) {
    SaveNpy(AllOf(answers), output);
  } else if (!output.empty()) {
    WriteFileAtomically(output, ToCsv(answers));
  }
  return kOk;
}

// An output that is no list of answers.
int ApplyCommand::WriteAsItIs(const HostTensor& scores) const {
  SaveNpy(scores, output);
  if (json) {
    PrintLine({{"file", output}, {"shape", scores.shape().dims()}});
  } else {
    fmt::print("{}: {}\n", output, scores.shape());
  }
  return kOk;
}

HostTensor OfClasses(const Symbol& symbol, const HostTensor& scores) {
  try {
    return ClassProbabilities(symbol, scores);
  } catch (const ModelError& error) {
    Throw<ModelError>("{}; --output FILE.npy writes others as they are", error.message());
  }
}

int ApplyCommand::Predict() {
  if (!output.empty()) CheckOutputFile("--output", output);
  for (const char* other : {".html", ".json", ".parquet", ".tsv", ".xls", ".xlsx"}) {
    if (!output.ends_with(other)) continue;
    throw UsageError(fmt::format("--output: \"{}\": predictions are written as .csv or .npy", output));
  }
  const auto check_data = [&] {
    if (data.IsText()) throw UsageError("--data: predict tells classes of samples; bindery generate writes text");
  };
  check_data();
  const LoadedModel trained = LoadModelAndSettleData(/*for_prediction=*/true);
  check_data();
  TestData test;
  const std::unique_ptr<Trainer> trainer = Load(trained, &test, /*for_prediction=*/true);
  const HostTensor scores = trainer->Predict(*test.iter)[0].Cast(DType::kFloat32);  // (N, classes)
  const std::string head = trainer->symbol().ListOutputs()[0];
  const int64_t count = test.seen->count;
  if (scores.shape().rank() < 1 || scores.shape()[0] != count || scores.elements() == 0) {
    Throw<ModelError>("output \"{}\" of shape {} has no answer for each of {} samples", head, scores.shape(), count);
  }
  if (const std::string bad = FirstNotFinite({{head, scores}}); !bad.empty()) {
    Throw<NumericError>("output {}: the model has diverged", bad);
  }
  const HeadKind kind = HeadKindOf(*trained.model.symbol.entries()[0].node);
  const bool is_one = scores.shape().rank() == 2 && scores.shape()[1] == 1;
  if (GivesNumbers(trained.model) || (is_one && (kind == HeadKind::kNumbers || kind == HeadKind::kNoLoss))) {
    return Write(PredictedNumbers{.values = scores,
                                  .names = NamesOfNumbers(trained.model, scores.shape().CountFrom(1)),
                                  .labels = test.seen->labels,
                                  .records = test.seen->records});
  }
  if (scores.shape().rank() != 2 && output.ends_with(".npy")) return WriteAsItIs(scores);
  const Predictions predictions{.scores = OfClasses(trained.model.symbol, scores),
                                .labels = test.seen->labels,
                                .records = test.seen->records,
                                .classes = test.classes,
                                .top = top};
  return Write(predictions);
}

}  // namespace

void AddTest(CLI::App* app, RunFn* run) {
  const auto c = std::make_shared<ApplyCommand>();
  CLI::App* sub = app->add_subcommand("test", "measure a trained model on the test data");
  c->AddTo(sub);
  AddText(sub, "--metrics", &c->metrics, "comma-separated; default: what fits the model's heads (bindery choices)");
  AddNumber(sub, "--min-accuracy", &c->min_accuracy, 0, 1, "exit with status 9 below this accuracy");
  sub->add_flag("--confusion", c->confusion,
                "which class is taken for which, how often; and precision, recall and F1 of each");
  sub->add_option("--report", c->report,
                  "write a page with that and the worst answers, with their images, to this file");
  AddNumber(sub, "--worst", &c->worst, 0, 1'000, "answers in the report");
  sub->callback([c, run] { *run = [c] { return c->Test(); }; });
}

void AddPredict(CLI::App* app, RunFn* run) {
  const auto c = std::make_shared<ApplyCommand>();
  CLI::App* sub = app->add_subcommand(
      "predict",
      "say which class each sample is of, or its numbers, by a trained model: all of --data, else what the model was "
      "tested on");
  c->AddTo(sub);
  AddNumber(sub, "--show", &c->show, 0, INT64_MAX, "rows to print");
  AddNumber(sub, "--top", &c->top, 1, 1 << 24, "so many of the likeliest classes of each sample");
  sub->add_option("--output", c->output,
                  "write all predictions to this CSV file; or all classes' probabilities, or numbers, to an .npy file");
  sub->callback([c, run] { *run = [c] { return c->Predict(); }; });
}

}  // namespace bindery::cli
