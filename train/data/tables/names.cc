#include "train/data/tables/names.h"

#include <fmt/format.h>

#include <charconv>

#include "base/split_text.h"

namespace bindery {

std::string CodedName(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const bool plain = std::string_view("%,&=:|\n\r").find(c) == std::string_view::npos;
    text += plain ? std::string(1, c) : fmt::format("%{:02x}", static_cast<unsigned char>(c));
  }
  return text;
}

std::string DecodedName(std::string_view coded) {
  std::string name;
  for (size_t i = 0; i < coded.size(); ++i) {
    unsigned char byte = 0;
    const char* const code = coded.data() + i + 1;
    const bool is_code =
        coded[i] == '%' && i + 2 < coded.size() && std::from_chars(code, code + 2, byte, 16).ptr == code + 2;
    name += is_code ? static_cast<char>(byte) : coded[i];
    if (is_code) i += 2;
  }
  return name;
}

std::string CodedNames(const std::vector<std::string>& names, char separator) {
  std::string text;
  for (const std::string& name : names) {
    if (&name != names.data()) text += separator;
    text += CodedName(name);
  }
  return text;
}

std::vector<std::string> DecodedNames(std::string_view coded, char separator) {
  std::vector<std::string> names;
  if (coded.empty()) return names;
  for (const std::string_view name : SplitText(coded, separator)) names.push_back(DecodedName(name));
  return names;
}

}  // namespace bindery
