// A text in parts.
#pragma once

#include <string_view>
#include <vector>

namespace bindery {

// What lies between separators, in order and empty parts too: "a,,b" at ',' is "a", "", "b", and "" is one empty part.
// The parts point into the text.
std::vector<std::string_view> SplitText(std::string_view text, char separator);

}  // namespace bindery
