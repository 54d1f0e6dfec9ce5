// Names in messages: "unknown argument "fc1_wieght"; did you mean "fc1_weight"?"
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bindery {

// The candidate with the smallest edit distance to `name`, or "" if none is near (distance > max(2, length / 3), or no
// character in common).
std::string NearestName(std::string_view name, std::span<const std::string> candidates);
// `; did you mean "x"?` or `; known: a, b, c` (at most 20 of them), ready to append to a message.
std::string NameHint(std::string_view name, std::span<const std::string> candidates);
// "fc1_weight and 2 more", of names of which there is one at least.
std::string NamesInShort(std::span<const std::string> names);

}  // namespace bindery
