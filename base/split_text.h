// A text in parts, and without its margins.
#pragma once

#include <string_view>
#include <vector>

namespace bindery {

// What lies between separators, in order and empty parts too: "a,,b" at ',' is "a", "", "b", and "" is one empty part.
// The parts point into the text.
std::vector<std::string_view> SplitText(std::string_view text, char separator);

// Without the blanks, tabs and ends of lines around it; points into the text.
std::string_view Trim(std::string_view text);

}  // namespace bindery
