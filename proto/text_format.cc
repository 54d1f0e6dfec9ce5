#include "proto/text_format.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

namespace bindery {
namespace {

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (error.message.empty()) error = {line, column, message};
  }
  TextError error;
};

}  // namespace

std::string TextError::ToString() const {
  if (line < 0) return message.empty() ? "it cannot be parsed" : message;
  return std::to_string(line + 1) + ":" + std::to_string(column + 1) + ": " + message;
}

std::optional<TextError> ParseMessage(google::protobuf::TextFormat::Parser* parser, std::string_view text,
                                      google::protobuf::Message* message) {
  FirstError first;
  parser->RecordErrorsTo(&first);
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  const bool parsed = parser->Parse(&stream, message);
  parser->RecordErrorsTo(nullptr);
  return parsed ? std::nullopt : std::optional(first.error);
}

std::optional<TextError> ParseMessage(std::string_view text, google::protobuf::Message* message) {
  google::protobuf::TextFormat::Parser parser;
  parser.SetRecursionLimit(10);
  return ParseMessage(&parser, text, message);
}

}  // namespace bindery
