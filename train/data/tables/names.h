// Names of columns, and what stands in them, within the settings of a data set's text: "," "&" "%" "=" ":" "|" and line
// ends are %2c and so on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bindery {

std::string CodedName(std::string_view name);
std::string DecodedName(std::string_view coded);  // a "%" that codes nothing stays
// Of several, with `separator` between them; an empty text has none.
std::string CodedNames(const std::vector<std::string>& names, char separator);
std::vector<std::string> DecodedNames(std::string_view coded, char separator);

}  // namespace bindery
