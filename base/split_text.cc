#include "base/split_text.h"

#include <algorithm>

namespace bindery {

std::vector<std::string_view> SplitText(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? text.substr(0, 0)
                                         : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace bindery
