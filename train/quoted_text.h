// Text and numbers as JSON (RFC 8259), XML and HTML have them, for what training writes: logs, traces, pages.
#pragma once

#include <string>
#include <string_view>

namespace bindery {

// The same text, with U+FFFD for every byte that is not part of a well-formed UTF-8 sequence (RFC 3629).
std::string ValidUtf8(std::string_view text);

// In double quotes, valid UTF-8 whatever the bytes were.
std::string JsonText(std::string_view text);
// The shortest decimal that reads back as the same number; null for what is not finite.
std::string JsonNumber(double value);

// For the inside of an element or of a quoted attribute: valid UTF-8, & < > " ' as entities, and U+FFFD for control
// characters that XML does not allow.
std::string MarkupText(std::string_view text);

}  // namespace bindery
