#include "tools/cli/arguments.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/names.h"
#include "base/parse_number.h"
#include "base/split_text.h"

namespace bindery::cli {
namespace {

struct Names {
  std::vector<std::string> options;  // "--epochs", "-h"
  std::vector<std::pair<std::string, const CLI::Option*>> by_name;
  bool takes_words = false;  // that are no option's: files

  explicit Names(const CLI::App& app) {
    for (const CLI::Option* option : app.get_options()) {
      takes_words |= option->get_positional();
      for (const std::string& name : option->get_lnames()) by_name.emplace_back("--" + name, option);
      for (const std::string& name : option->get_snames()) by_name.emplace_back("-" + name, option);
    }
    for (const auto& [name, option] : by_name) {
      if (name.starts_with("--")) options.push_back(name);
    }
  }
  const CLI::Option* Find(const std::string& name) const {
    for (const auto& [known, option] : by_name) {
      if (known == name) return option;
    }
    return nullptr;
  }
};

bool LooksLikeOption(std::string_view word) { return word.starts_with("--") && word.size() > 2; }

[[noreturn]] void Fail(const std::string& message, const std::string& command = "") {
  throw UsageError(fmt::format("{}\ntry: bindery {}{}--help", message, command, command.empty() ? "" : " "));
}

// What other programs' options are here; empty for others.
std::string CalledElsewhere(const std::string& word, const Names& names) {
  struct Other {
    const char *name, *here, *text;
  };
  static constexpr Other kOthers[] = {
      {"--lr", "--optimizer", "the rate is the optimizer's: --optimizer \"sgd(lr=0.1)\""},
      {"--learning-rate", "--optimizer", "the rate is the optimizer's: --optimizer \"sgd(lr=0.1)\""},
      {"--momentum", "--optimizer", "it is the optimizer's: --optimizer \"sgd(lr=0.1, momentum=0.9)\""},
      {"--weight-decay", "--optimizer", "it is the optimizer's: --optimizer \"sgd(lr=0.1, wd=1e-4)\""},
      {"--wd", "--optimizer", "it is the optimizer's: --optimizer \"sgd(lr=0.1, wd=1e-4)\""},
      {"--batch", "--batch-size", "it is --batch-size"},
      {"--gpu", "--device", "GPUs are devices: --device cuda:0"},
      {"--gpus", "--device", "GPUs are devices: --device cuda:0,cuda:1"},
      {"--cuda", "--device", "GPUs are devices: --device cuda:0"},
  };
  for (const auto& [name, here, text] : kOthers) {
    if (word == name && names.Find(here)) return text;
  }
  return "";
}

// What is wrong with a word that stands where an option should.
[[noreturn]] void FailAtWord(const std::string& word, const Names& names, const std::string& command) {
  if (!word.starts_with("-")) {
    std::string nearest = names.Find("--" + word) ? "--" + word : "";
    std::error_code none;
    if (names.Find("--model") && std::filesystem::exists(word, none)) nearest = "--model " + word;
    Fail(fmt::format("unexpected word \"{}\": {} takes options only{}", word, command,
                     nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest)),
         command);
  }
  const std::string long_form = LooksLikeOption(word) ? word : "-" + word;  // -epochs is --epochs
  if (const std::string elsewhere = CalledElsewhere(long_form, names); !elsewhere.empty()) {
    Fail(fmt::format("unknown option \"{}\": {}", word, elsewhere), command);
  }
  const std::string hint = NearestName(long_form, names.options);
  Fail(fmt::format("unknown option \"{}\"{}", word, hint.empty() ? "" : fmt::format("; did you mean \"{}\"?", hint)),
       command);
}

const CLI::App& FindCommand(const CLI::App& app, const std::string& word) {
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == word) return *command;
    commands.push_back(command->get_name());
  }
  if (word.empty() || word.starts_with("-")) {
    Fail(fmt::format("a command must come first{}; known: {}", word.empty() ? "" : fmt::format(", got \"{}\"", word),
                     fmt::join(commands, ", ")));
  }
  Fail(fmt::format("unknown command \"{}\"{}", word, NameHint(word, commands)));
}

template <class T>
std::string Range(T low, T high) {
  return fmt::format("{} from {} to {}", std::is_integral_v<T> ? "a whole number" : "a number", low, high);
}

}  // namespace

std::vector<std::string> SplitArguments(const CLI::App& app, int argc, const char* const* argv) {
  std::vector<std::string> given(argv + 1, argv + argc);
  if (!given.empty() && given[0] == "version") given[0] = "--version";
  if (!given.empty() && given[0] == "help") {  // of a command, or of all
    given.erase(given.begin());
    given.push_back("--help");
  }
  const std::string first = given.empty() ? "" : given[0];
  if (Names(app).Find(first)) {  // --help, --version
    if (given.size() > 1) Fail(fmt::format("{} stands alone, got \"{}\" after it", first, given[1]));
    return {first};
  }
  const CLI::App& command = FindCommand(app, first);
  const std::string& about = command.get_name();
  const Names names(command);

  std::vector<std::string> words = {first};
  std::set<const CLI::Option*> seen;
  for (size_t i = 1; i < given.size(); ++i) {
    const std::string& word = given[i];
    const size_t equals = LooksLikeOption(word) ? word.find('=') : std::string::npos;
    const std::string name = word.substr(0, equals);
    const CLI::Option* option = names.Find(name);
    if (!option && names.takes_words && !word.starts_with("-")) {
      words.push_back(word);
      continue;
    }
    if (!option) FailAtWord(name, names, about);
    words.push_back(name);
    const bool is_flag = option->get_expected_max() == 0;
    if (is_flag && equals != std::string::npos) Fail(fmt::format("{} takes no value", name), about);
    if (!is_flag && !seen.insert(option).second) Fail(fmt::format("{} is given twice", name), about);
    if (is_flag) continue;
    if (equals != std::string::npos) {
      words.push_back(word.substr(equals + 1));
      continue;
    }
    if (option->get_expected_min() == 0 && (i + 1 == given.size() || LooksLikeOption(given[i + 1]))) {
      words.push_back(option->get_default_str());  // what it means alone
      continue;
    }
    if (i + 1 == given.size()) Fail(fmt::format("{}: its value is missing", name), about);
    const std::string& value = given[++i];
    if (LooksLikeOption(value)) {
      Fail(fmt::format("{0}: its value is missing before \"{1}\" ({0}={1} if that is the value)", name, value), about);
    }
    words.push_back(value);
  }
  return words;
}

template <class T>
T ParseNumber(const std::string& option, std::string_view text, T low, T high) {
  const std::optional<T> value = bindery::ParseNumber<T>(text);
  if (!value || !(*value >= low && *value <= high)) {
    throw UsageError(fmt::format("{}: expected {}, got \"{}\"", option, Range(low, high), text));
  }
  return *value;
}

template <class T>
std::vector<T> ParseNumbers(const std::string& option, std::string_view text, T low, T high) {
  std::vector<T> values;
  for (const std::string_view number : SplitText(text, ',')) values.push_back(ParseNumber(option, number, low, high));
  return values;
}

bool IsTrue(const std::string& source, const std::string& text, const std::string& expected) {
  std::string lower = text;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* yes : {"true", "yes", "on", "1"}) {
    if (lower == yes) return true;
  }
  for (const char* no : {"false", "no", "off", "0"}) {
    if (lower == no) return false;
  }
  throw UsageError(fmt::format("{}: expected {}, got \"{}\"", source, expected, text));
}

int64_t ParseBytes(const std::string& option, std::string_view text) {
  constexpr std::string_view kUnits = "kMGT";
  std::string_view number = text;
  if (number.ends_with("iB")) number.remove_suffix(2);
  const size_t unit = number.empty() ? std::string_view::npos : kUnits.find(number.back());
  const bool plain = unit == std::string_view::npos && number == text;
  if (unit != std::string_view::npos) number.remove_suffix(1);
  constexpr double kMost = 1e18;
  std::optional<double> value;
  if (plain) {
    if (const std::optional<int64_t> bytes = bindery::ParseNumber<int64_t>(number)) value = static_cast<double>(*bytes);
  } else if (unit != std::string_view::npos) {
    value = bindery::ParseNumber<double>(number);
    if (value) *value *= std::exp2(10.0 * static_cast<double>(unit + 1));
  }
  if (!value || !(*value >= 1 && *value <= kMost)) {
    throw UsageError(fmt::format("{}: expected bytes, as 2000000, 512M or 1.5G, got \"{}\"", option, text));
  }
  return static_cast<int64_t>(*value);
}

Mirror ParseMirror(std::string_view text) {
  if (text.empty() || text == "off") return {};
  if (text == "auto") return {.bytes = Mirror::kAutomatic};
  if (text == "least") return {.least = true};
  if (text.back() == '%') {
    const auto percent = bindery::ParseNumber<double>(text.substr(0, text.size() - 1));
    if (percent && *percent > 0 && *percent <= 100) return {.share = *percent / 100};
  } else if (text[0] >= '0' && text[0] <= '9') {
    return {.bytes = ParseBytes("--mirror", text)};
  }
  throw UsageError(fmt::format(
      "--mirror: expected off, auto, least, a share of the working memory as 50%, or bytes of it as 512M, got \"{}\"",
      text));
}

void AddTune(CLI::App* app, std::string* value) {
  app->add_option("--tune", *value,
                  "choose convolutions by what they cost here, measured when they are bound first; alone: measured; "
                  "\"winograd\": with Winograd's, which round more; \"off\"")
      ->expected(0, 1)
      ->default_str("measured")
      ->option_text("[TEXT]");
}

Tuning TuningOf(const std::string& value) {
  try {
    return ParseTuning(value);
  } catch (const Error& e) {
    throw UsageError("--tune: " + e.message());
  }
}

template int ParseNumber(const std::string&, std::string_view, int, int);
template int64_t ParseNumber(const std::string&, std::string_view, int64_t, int64_t);
template uint64_t ParseNumber(const std::string&, std::string_view, uint64_t, uint64_t);
template double ParseNumber(const std::string&, std::string_view, double, double);
template std::vector<int64_t> ParseNumbers(const std::string&, std::string_view, int64_t, int64_t);
template std::vector<double> ParseNumbers(const std::string&, std::string_view, double, double);

}  // namespace bindery::cli
