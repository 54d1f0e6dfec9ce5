#include "tools/cli/run_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/split_text.h"
#include "tools/cli/arguments.h"
#include "train/data/open.h"
#include "train/data/samples/numbers.h"

namespace bindery::cli {
namespace {

constexpr std::string_view kPrefix = "option ";  // of a name in a checkpoint's info: "option --data"

// Of one call, not of the run.
constexpr const char* kOfACall[] = {"--help",   "--config",       "--solver",    "--checkpoints", "--overwrite",
                                    "--resume", "--write-digits", "--trace",     "--trace-steps", "--progress",
                                    "--json",   "--json-every",   "--log-level", "--quiet"};

// What is said together: where the first is given, the checkpoint's others are of no use.
struct Belongings {
  const char* owner;
  std::vector<const char*> belongings;
};
const std::vector<Belongings>& AllBelongings() {
  static const std::vector<Belongings> kAll = {{"--devices", {"--workload"}},
                                               {"--weights", {"--map"}},
                                               {"--data", {"--test-data", "--shard"}},
                                               {"--micro-batches", {"--memory-limit"}},
                                               {"--average", {"--use-average"}}};
  return kAll;
}

std::string Absolute(const std::string& path) { return path.empty() ? path : std::filesystem::absolute(path).string(); }

std::string AbsoluteData(const std::string& text) {
  constexpr std::string_view kText = "text:";
  if (text.empty() || (!IsDataText(text) && CutShard(text).data == "digits")) return text;
  if (text.starts_with(kText)) return std::string(kText) + Absolute(text.substr(kText.size()));
  return IsDataText(text) ? WithAbsolutePaths(text) : Absolute(text);
}

std::string AbsolutePlots(const std::string& plot) {
  std::vector<std::string> files;
  for (const std::string_view part : SplitText(plot, ',')) {
    const std::string file(part);
    files.push_back(file == "-" ? file : Absolute(file));
  }
  return fmt::format("{}", fmt::join(files, ","));
}

std::string Flag(bool value) { return value ? "true" : ""; }
template <class T>
std::string UnlessZero(T value) {
  return value == 0 ? "" : fmt::format("{}", value);
}

// By all names of the option; "" if it has none of them.
std::string NameAmong(const CLI::Option& option, const OptionTexts& texts) {
  for (const std::string& name : option.get_lnames()) {
    if (texts.contains("--" + name)) return "--" + name;
  }
  return "";
}

// Empty texts among them.
OptionTexts AllTextsOf(const DataOptions& data) {
  return {
      {"--data", AbsoluteData(data.data)},
      {"--test-data", AbsoluteData(data.test_data)},
      {"--last-batch", data.last_batch},
      {"--workers", fmt::format("{}", data.workers)},
      {"--skip-damaged", Flag(data.skip_damaged)},
      {"--train-digits", fmt::format("{}", data.train_digits)},
      {"--test-digits", fmt::format("{}", data.test_digits)},
      {"--digits-seed", fmt::format("{}", data.digits_seed)},
      {"--test-part", fmt::format("{}", data.test_part)},
      {"--validation-part", UnlessZero(data.validation_part)},
      {"--shard", data.shard},
      {"--batch-size", fmt::format("{}", data.batch_size)},
  };
}

}  // namespace

OptionTexts TextsOf(const DataOptions& data) {
  OptionTexts texts = AllTextsOf(data);
  std::erase_if(texts, [](const auto& entry) { return entry.second.empty(); });
  return texts;
}

OptionTexts TextsOf(const CLI::App& command, const TrainArguments& a, const TrainerOptions& options) {
  const std::string model = a.model.model.empty() && a.model.weights.empty() ? a.model.Name() : a.model.model;
  OptionTexts texts = {
      {"--model", model.empty() || a.model.IsByName() ? model : Absolute(model)},
      {"--weights", Absolute(a.model.weights)},
      {"--map", a.model.map},
      {"--dropout", UnlessZero(a.model.dropout)},
      {"--label-smoothing", a.label_smoothing ? fmt::format("{}", *a.label_smoothing) : ""},
      {"--class-weights", a.class_weights},
      {"--sync-batch-norm", Flag(a.model.sync_batch_norm)},
      {"--devices", a.device.devices},
      {"--workload", fmt::format("{}", fmt::join(a.device.workload, ","))},
      {"--threads", fmt::format("{}", a.device.threads)},
      {"--device-timeout", fmt::format("{}", a.device.timeout)},
      {"--epochs", fmt::format("{}", a.epochs)},
      {"--epoch-batches", fmt::format("{}", a.epoch_batches)},
      {"--optimizer", options.optimizer},
      {"--schedule", a.schedule},
      {"--precision", a.precision},
      {"--loss-scale", a.loss_scale},
      {"--micro-batches", a.micro_batches},
      {"--mirror", a.mirror},
      {"--memory-limit", a.memory_limit},
      {"--reproducible", UnlessZero(a.block)},
      {"--balance", a.balance},
      {"--tune", a.tune},
      {"--average", a.average},
      {"--use-average", Flag(a.use_average)},
      {"--initializer", a.initializer},
      {"--freeze", a.freeze},
      {"--lr-mult", a.lr_mult},
      {"--wd-mult", a.wd_mult},
      {"--metrics", options.metrics},
      {"--kvstore", a.kvstore},
      {"--seed", fmt::format("{}", a.seed)},
      {"--checkpoint-every", fmt::format("{}", a.checkpoint_every)},
      {"--keep", fmt::format("{}", a.keep)},
      {"--save", Absolute(a.save)},
      {"--best", Absolute(a.best)},
      {"--keep-best", Flag(a.keep_best)},
      {"--watch", a.judged_by},
      {"--patience", UnlessZero(a.patience)},
      {"--log", Absolute(a.log)},
      {"--tensorboard", Absolute(a.watch.tensorboard)},
      {"--plot", AbsolutePlots(a.watch.plot)},
  };
  texts.merge(AllTextsOf(a.data));
  // Who adds an option says here, or in kOfACall, whether it is the run's.
  for (const CLI::Option* option : command.get_options()) {
    const bool of_a_call = std::ranges::any_of(kOfACall, [&](const char* name) { return option->check_name(name); });
    Check(of_a_call || !NameAmong(*option, texts).empty(), option->get_name().c_str());
  }
  std::erase_if(texts, [](const auto& entry) { return entry.second.empty(); });
  return texts;
}

std::map<std::string, std::string> ToInfo(const OptionTexts& texts) {
  std::map<std::string, std::string> info;
  for (const auto& [name, text] : texts) info[std::string(kPrefix) + name] = text;
  return info;
}

OptionTexts TextsIn(const std::map<std::string, std::string>& info) {
  OptionTexts texts;
  for (const auto& [key, text] : info) {
    if (key.starts_with(kPrefix)) texts[key.substr(kPrefix.size())] = text;
  }
  return texts;
}

Model ModelIn(Checkpoint checkpoint) {
  Model model = std::move(checkpoint.model);
  const bool has_averages = checkpoint.step > 0;  // before that they are zeros
  if (!has_averages || !TextsIn(checkpoint.info).contains("--use-average")) return model;
  for (auto& [name, value] : model.params) {
    const auto average = checkpoint.optimizer_state.find(name + ":average");
    if (average != checkpoint.optimizer_state.end()) value = std::move(average->second);
  }
  return model;
}

bool IsOfData(const std::string& option) {
  static const std::set<std::string> kData = {"--data",         "--test-data",       "--last-batch",  "--workers",
                                              "--skip-damaged", "--train-digits",    "--test-digits", "--digits-seed",
                                              "--test-part",    "--validation-part", "--shard",       "--batch-size"};
  return kData.contains(option);
}

void TakeOver(const OptionTexts& texts, const std::string& whose, CLI::App* command) {
  std::set<std::string> left_out;
  for (const auto& [owner, belongings] : AllBelongings()) {
    const CLI::Option* option = command->get_option_no_throw(owner);
    if (option != nullptr && !option->empty()) left_out.insert(belongings.begin(), belongings.end());
  }
  for (const auto& [name, text] : texts) {
    if (left_out.contains(name)) continue;
    CLI::Option* option = command->get_option_no_throw(name);
    if (option == nullptr) {
      Throw<CheckpointError>("{} was trained with {} \"{}\", which this program does not know", whose, name, text);
    }
    if (!option->empty()) continue;
    const auto fail = [&](const std::exception& e) {
      Throw<CheckpointError>("{} was trained with {} \"{}\": {}", whose, name, text, e.what());
    };
    try {
      option->add_result(text);
      option->run_callback();
    } catch (const UsageError& e) {
      fail(e);
    } catch (const CLI::Error& e) {
      fail(e);
    }
  }
}

bool IsGiven(const CLI::App& command, std::initializer_list<const char*> options) {
  return std::ranges::any_of(options, [&](const char* name) {
    const CLI::Option* option = command.get_option_no_throw(name);
    return option != nullptr && !option->empty();
  });
}

}  // namespace bindery::cli
