// Messages as text, by protobuf's text format.
#pragma once

#include <google/protobuf/text_format.h>

#include <optional>
#include <string>
#include <string_view>

namespace bindery {

// What is wrong with a text. Of several complaints the first: later ones often follow from it.
struct TextError {
  int line = -1, column = 0;  // from 0; line -1: nowhere in particular
  std::string message = {};   // may be empty, if `line` is -1

  std::string ToString() const;  // "LINE:COLUMN: MESSAGE", from 1
};

// Parses as `parser` is set up, but for where it reports errors. The text is of less than 2 GiB.
std::optional<TextError> ParseMessage(google::protobuf::TextFormat::Parser* parser, std::string_view text,
                                      google::protobuf::Message* message);

// The same for short texts that people write, whose messages lie in each other to a depth of 10 at most.
std::optional<TextError> ParseMessage(std::string_view text, google::protobuf::Message* message);

}  // namespace bindery
