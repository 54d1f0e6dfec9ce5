#include "symbol/model/text.h"

#include <google/protobuf/text_format.h>

#include <limits>
#include <memory>

#include "proto/text_format.h"
#include "symbol/model/wire.h"

namespace bindery {
namespace {

using google::protobuf::TextFormat;

// The version of a text that does not parse: a newer format may have fields that we do not know.
int64_t VersionOf(std::string_view text, const ModelLimits& limits) {
  TextFormat::Parser parser;
  parser.SetRecursionLimit(limits.recursion);
  parser.AllowUnknownField(true);
  proto::Model message;
  return !ParseMessage(&parser, text, &message) && message.has_version() ? message.version() : kModelVersion;
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
  TextFormat::Parser parser;
  parser.SetRecursionLimit(limits.recursion);
  parser.WriteLocationsTo(&source->locations());
  if (const auto error = ParseMessage(&parser, text, message)) {
    CheckVersion(VersionOf(text, limits), *source);
    if (error->line >= 0) source->FailAt(error->line, error->column, error->message);
    source->Fail({}, error->message.empty() ? "not a model as text" : error->message);
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
