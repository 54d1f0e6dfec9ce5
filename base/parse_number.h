// A whole text as a number.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace bindery {

// In decimal, without blanks or a leading "+"; of floating types also "inf" and "nan". No value for anything else, and
// for numbers beyond the type.
template <class T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace bindery
