// Fields of a CSV file as numbers.
#pragma once

#include <locale.h>
#include <stdlib.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "base/parse_number.h"

namespace bindery::csv {

// Is it a number that rounds to 0? std::from_chars tells neither this from what is too large.
template <class T>
bool IsTooSmall(std::string_view text) {
  T value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc::result_out_of_range || stop != text.data() + text.size()) return false;
  static const locale_t kPlain = ::newlocale(LC_ALL_MASK, "C", nullptr);  // a decimal point, whatever the program's
  return std::abs(::strtod_l(std::string(text).c_str(), nullptr, kPlain)) < 1;
}

// Of any size.
inline bool IsNumber(std::string_view text) {
  double value = 0;
  return std::from_chars(text.data(), text.data() + text.size(), value).ptr == text.data() + text.size();
}

// With a "+" before it or without. Floating numbers that are too small for their type are 0, with their sign.
template <class T>
std::optional<T> Parse(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const std::optional<T> value = ParseNumber<T>(text);
  if constexpr (std::is_floating_point_v<T>) {
    if (!value && IsTooSmall<T>(text)) return text.starts_with('-') ? T(-0.0) : T(0);
  }
  return value;
}

// A field as messages show it, however long it is.
inline std::string Shown(std::string_view text) {
  constexpr size_t kMost = 60;
  return std::string(text.substr(0, kMost)) + (text.size() > kMost ? "..." : "");
}

inline bool IsMissing(std::string_view text) {
  for (const std::string_view known : {"", "NA", "NaN", "nan", "null", "?"}) {
    if (text == known) return true;
  }
  return false;
}

}  // namespace bindery::csv
