// The words of a command line, before and while CLI11 parses them. CLI11 alone takes too much (010 is 8, --seed -1 is
// 2^64 - 1, --save --json writes a file "--json") and says too little about the rest.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "executor/kernel.h"
#include "executor/plan/mirror.h"

namespace bindery::cli {

// A wrong command line, or a value of an option that makes no sense: exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The words with every `--name=value` cut in two. Throws UsageError for an unknown command or option (with the nearest
// one), a missing value, an option given twice, and words that are no option's value.
std::vector<std::string> SplitArguments(const CLI::App& app, int argc, const char* const* argv);

// `text` as a decimal number from `low` to `high`; T is int, int64_t, uint64_t or double. Throws UsageError.
template <class T>
T ParseNumber(const std::string& option, std::string_view text, T low, T high);
// The same, for numbers with commas between.
template <class T>
std::vector<T> ParseNumbers(const std::string& option, std::string_view text, T low, T high);

// Of a flag that is set by a text: true, yes, on or 1; false, no, off or 0. Throws UsageError, which tells what is
// `expected`; `source` is where the text comes from.
bool IsTrue(const std::string& source, const std::string& text, const std::string& expected);

// Bytes, at least 1: a number, of which one with a unit may have decimals: "1500000", "512M", "1.5GiB". Units k, M, G,
// T are powers of 1024, as with iB behind them. Throws UsageError.
int64_t ParseBytes(const std::string& option, std::string_view text);
// "off", "auto", "least", a share of working memory as "50%", or bytes of it as "512M".
Mirror ParseMirror(std::string_view text);

// The option --tune: "off", "measured", which it is alone, or "winograd"; and what it says. The latter throws
// UsageError.
void AddTune(CLI::App* app, std::string* value);
Tuning TuningOf(const std::string& value);

// The option `name` for a number; `value` holds the default.
template <class T>
void AddNumber(CLI::App* app, const std::string& name, T* value, std::type_identity_t<T> low,
               std::type_identity_t<T> high, const std::string& help) {
  const auto parse = [=](const std::string& text) { *value = ParseNumber<T>(name, text, low, high); };
  app->add_option_function<std::string>(name, parse, help)->type_name("NUMBER")->default_str(fmt::format("{}", *value));
}
// One that has no value of its own if it is not given.
template <class T>
void AddNumber(CLI::App* app, const std::string& name, std::optional<T>* value, std::type_identity_t<T> low,
               std::type_identity_t<T> high, const std::string& help) {
  const auto parse = [=](const std::string& text) { *value = ParseNumber<T>(name, text, low, high); };
  app->add_option_function<std::string>(name, parse, help)->type_name("NUMBER");
}
template <class T>
void AddNumbers(CLI::App* app, const std::string& name, std::vector<T>* values, std::type_identity_t<T> low,
                std::type_identity_t<T> high, const std::string& help) {
  const auto parse = [=](const std::string& text) { *values = ParseNumbers<T>(name, text, low, high); };
  app->add_option_function<std::string>(name, parse, help)->type_name("NUMBER,...");
}

// The option `name` for a text that has no value of its own if it is not given; an empty one is one.
inline void AddText(CLI::App* app, const std::string& name, std::optional<std::string>* value,
                    const std::string& help) {
  app->add_option_function<std::string>(
      name, [=](const std::string& text) { *value = text; }, help);
}

}  // namespace bindery::cli
