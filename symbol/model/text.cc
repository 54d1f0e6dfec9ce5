#include "symbol/model/text.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <limits>
#include <memory>

#include "symbol/model/wire.h"

namespace bindery {
namespace {

using google::protobuf::TextFormat;

// Keeps the first complaint; later ones often follow from it.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!message_.empty()) return;
    line_ = line;
    column_ = column;
    message_ = message;
  }
  [[noreturn]] void Fail(const ModelSource& source) const {
    if (line_ >= 0) source.FailAt(line_, column_, message_);
    source.Fail({}, message_.empty() ? "not a model as text" : message_);
  }

 private:
  int line_ = -1, column_ = 0;
  std::string message_;
};

bool Parse(TextFormat::Parser* parser, std::string_view text, proto::Model* message) {
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  return parser->Parse(&stream, message);
}

// The version of a text that does not parse: a newer format may have fields that we do not know.
int64_t VersionOf(std::string_view text, const ModelLimits& limits) {
  FirstError ignored;
  TextFormat::Parser parser;
  parser.SetRecursionLimit(limits.recursion);
  parser.RecordErrorsTo(&ignored);
  parser.AllowUnknownField(true);
  proto::Model message;
  return Parse(&parser, text, &message) && message.has_version() ? message.version() : kModelVersion;
}

// A message within one line: `attr { name: "kernel" ints: [5, 5] }`.
class OnOneLine : public TextFormat::FastFieldValuePrinter {
 public:
  OnOneLine() {
    printer_.SetSingleLineMode(true);
    printer_.SetUseShortRepeatedPrimitives(true);
    printer_.SetUseUtf8StringEscaping(true);
  }
  void PrintMessageStart(const google::protobuf::Message&, int, int, bool,
                         TextFormat::BaseTextGenerator* generator) const override {
    generator->PrintLiteral(" { ");
  }
  bool PrintMessageContent(const google::protobuf::Message& message, int, int, bool,
                           TextFormat::BaseTextGenerator* generator) const override {
    std::string text;
    printer_.PrintToString(message, &text);
    generator->PrintString(text);  // ends with a space
    return true;
  }
  void PrintMessageEnd(const google::protobuf::Message&, int, int, bool,
                       TextFormat::BaseTextGenerator* generator) const override {
    generator->PrintLiteral("}\n");
  }

 private:
  TextFormat::Printer printer_;
};

}  // namespace

void ParseText(std::string_view text, const ModelLimits& limits, ModelSource* source, proto::Model* message) {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    source->Fail({}, "a text of 2 GiB or more cannot be read");
  }
  CheckTextSize(text, limits, *source);
  FirstError error;
  TextFormat::Parser parser;
  parser.SetRecursionLimit(limits.recursion);
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(&source->locations());
  if (!Parse(&parser, text, message)) {
    CheckVersion(VersionOf(text, limits), *source);
    error.Fail(*source);
  }
  if (message->has_version()) CheckVersion(message->version(), *source);
}

std::string PrintText(const proto::Model& message) {
  TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  printer.SetUseUtf8StringEscaping(true);
  const auto print_on_one_line = [&](const google::protobuf::Descriptor* type, const char* field) {
    printer.RegisterFieldValuePrinter(type->FindFieldByName(field), new OnOneLine);  // the printer takes it
  };
  print_on_one_line(proto::Model::descriptor(), "metadata");
  print_on_one_line(proto::Model::descriptor(), "param");
  print_on_one_line(proto::Model::descriptor(), "aux");
  print_on_one_line(proto::Graph::descriptor(), "variable");
  print_on_one_line(proto::Node::descriptor(), "attr");
  print_on_one_line(proto::Node::descriptor(), "annotation");
  std::string text;
  printer.PrintToString(message, &text);
  return text;
}

}  // namespace bindery
