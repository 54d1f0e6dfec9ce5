#include "train/call_text.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/names.h"
#include "base/parse_number.h"
#include "base/split_text.h"

namespace bindery {
namespace {

// What a word in quotes stands for; any other, itself.
std::string WithoutQuotes(std::string_view value) {
  if (value.size() < 2 || value.front() != '"' || value.back() != '"') return std::string(value);
  value = value.substr(1, value.size() - 2);
  std::string word;
  for (size_t i = 0; i < value.size(); ++i) {
    word += value[i];
    if (value.substr(i, 2) == "\"\"") ++i;
  }
  return word;
}

// Does a quote behind this begin a word, or go on with one by a quote of its own?
bool MayBeginWord(std::string_view before) {
  before = Trim(before);
  return before.empty() || std::string_view("=(,\"").find(before.back()) != std::string_view::npos;
}

}  // namespace

CallText::CallText(std::string what, std::string_view text) : what_(std::move(what)), text_(text) {
  text = Trim(text);
  const size_t open = text.find('(');
  const std::string_view name = Trim(text.substr(0, open));
  if (name.empty() || name.find_first_of("),=") != std::string_view::npos)
    Fail("expected a name, or name(setting, name=setting)");
  name_ = name;
  for (char& c : name_) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (open == std::string_view::npos) return;
  if (text.back() != ')') Fail("the closing parenthesis is missing");
  const std::string_view inside = Trim(text.substr(open + 1, text.size() - open - 2));
  if (inside.empty()) return;
  for (const std::string& part : SplitCalls(inside)) {
    const size_t equals = part.find('=');
    const std::string_view key = equals == std::string::npos ? "" : Trim(std::string_view(part).substr(0, equals));
    const std::string_view value = equals == std::string::npos ? part : Trim(std::string_view(part).substr(equals + 1));
    if (value.empty() || (equals != std::string::npos && key.empty())) Fail("expected name(setting, name=setting)");
    if (key.empty() && !settings_.empty() && !settings_.back().first.empty())
      Fail(fmt::format("\"{}\" follows a setting with a name and needs one too", value));
    settings_.emplace_back(key, WithoutQuotes(value));
  }
}

void CallText::Declare(std::vector<std::string> names) {
  for (size_t i = 0; i < settings_.size(); ++i) {
    std::string& name = settings_[i].first;
    if (name.empty()) {
      if (i >= names.size()) Fail(fmt::format("{} takes at most {} settings", name_, names.size()));
      name = names[i];
    } else if (std::find(names.begin(), names.end(), name) == names.end()) {
      Fail(fmt::format("unknown setting \"{}\"{}", name, NameHint(name, names)));
    }
    for (size_t other = 0; other < i; ++other) {
      if (settings_[other].first == name) Fail(fmt::format("\"{}\" is given twice", name));
    }
  }
}

const std::string* CallText::Find(const std::string& name) const {
  for (const auto& [key, value] : settings_) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::optional<double> CallText::Number(const std::string& name) const {
  const std::string* text = Find(name);
  if (!text) return std::nullopt;
  const std::optional<double> value = ParseNumber<double>(*text);
  if (!value || !std::isfinite(*value)) Fail(fmt::format("\"{}\" must be a number, got \"{}\"", name, *text));
  return value;
}

std::optional<int64_t> CallText::Integer(const std::string& name) const {
  const std::string* text = Find(name);
  if (!text) return std::nullopt;
  const std::optional<int64_t> value = ParseNumber<int64_t>(*text);
  if (!value) Fail(fmt::format("\"{}\" must be a whole number, got \"{}\"", name, *text));
  return value;
}

std::optional<std::string> CallText::Word(const std::string& name) const {
  const std::string* text = Find(name);
  return text ? std::optional(*text) : std::nullopt;
}

void CallText::Fail(const std::string& complaint) const { Throw("{} \"{}\": {}", what_, text_, complaint); }

CallPrinter& CallPrinter::Add(std::string_view name, double value) { return Add(name, fmt::format("{}", value)); }

CallPrinter& CallPrinter::Add(std::string_view name, std::string_view value) {
  text_ += fmt::format("{}{}={}", empty_ ? "(" : ", ", name, value);
  empty_ = false;
  return *this;
}

std::vector<std::string> SplitCalls(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  bool quoted = false;
  for (const char c : text) {
    if (c == '"' && (quoted || MayBeginWord(parts.back()))) quoted = !quoted;
    if (!quoted) depth += (c == '(') - (c == ')');
    if (c == ',' && depth == 0 && !quoted) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  for (std::string& part : parts) part = Trim(part);
  return parts;
}

std::string QuotedWord(std::string_view word) {
  std::string quoted = "\"";
  for (const char c : word) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace bindery
