#include "train/data/settings.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "base/parse_number.h"

namespace bindery {
namespace {

// Cuts off what stands before `separator`, and that.
std::string_view Cut(std::string_view* text, char separator) {
  const size_t at = text->find(separator);
  const std::string_view before = text->substr(0, at);
  *text = at == std::string_view::npos ? std::string_view() : text->substr(at + 1);
  return before;
}

}  // namespace

DataSettings::DataSettings(const std::string& text) : text_(text) {
  std::string_view rest = text_;
  kind_ = Cut(&rest, ':');
  path_ = Cut(&rest, '?');
  if (path_.empty()) Fail("expected KIND:PATH, and settings behind a \"?\"");
  while (!rest.empty()) {
    std::string_view setting = Cut(&rest, '&');
    const bool complete = setting.find('=') != std::string_view::npos;
    const std::string name(Cut(&setting, '='));
    if (!complete || name.empty()) Fail(fmt::format("expected NAME=VALUE behind the \"?\", got \"{}\"", name));
    if (!values_.emplace(name, setting).second) Fail(fmt::format("\"{}\" is given twice", name));
  }
}

void DataSettings::Fail(const std::string& complaint) const { Throw<DataError>("data \"{}\": {}", text_, complaint); }

std::string DataSettings::Text(const std::string& name, const std::string& otherwise) {
  read_.insert(name);
  for (const auto* texts : {&values_, &defaults_}) {
    if (const auto found = texts->find(name); found != texts->end()) return found->second;
  }
  return otherwise;
}

double DataSettings::Number(const std::string& name, double otherwise, double low, double high) {
  const std::string text = Text(name);
  if (!Has(name)) return otherwise;
  const auto value = ParseNumber<double>(text);
  if (!value || !(*value >= low && *value <= high)) {
    Fail(fmt::format("\"{}\": expected a number from {} to {}, got \"{}\"", name, low, high, text));
  }
  return *value;
}

int64_t DataSettings::Integer(const std::string& name, int64_t otherwise, int64_t low, int64_t high) {
  const std::string text = Text(name);
  if (!Has(name)) return otherwise;
  const auto value = ParseNumber<int64_t>(text);
  if (!value || *value < low || *value > high) {
    Fail(fmt::format("\"{}\": expected a whole number from {} to {}, got \"{}\"", name, low, high, text));
  }
  return *value;
}

bool DataSettings::Flag(const std::string& name, bool otherwise) { return Integer(name, otherwise, 0, 1) != 0; }

template <class T>
std::vector<T> DataSettings::Numbers(const std::string& name) {
  const std::string text = Text(name);
  std::vector<T> numbers;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view number = Cut(&rest, ',');
    const auto value = ParseNumber<T>(number);
    if (!value || !std::isfinite(*value)) Fail(fmt::format("\"{}\": expected numbers, got \"{}\"", name, number));
    numbers.push_back(*value);
  }
  return numbers;
}
template std::vector<float> DataSettings::Numbers(const std::string& name);
template std::vector<double> DataSettings::Numbers(const std::string& name);

void DataSettings::CheckAllRead() const {
  const std::vector<std::string> known(read_.begin(), read_.end());
  for (const auto& [name, value] : values_) {
    if (!read_.contains(name)) Fail(fmt::format("unknown setting \"{}\"{}", name, NameHint(name, known)));
  }
}

}  // namespace bindery
