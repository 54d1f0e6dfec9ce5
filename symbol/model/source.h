// Where a model's message came from: the beginning of every complaint about it, "net.prototxt:14:3: " or "net.pb: ".
#pragma once

#include <google/protobuf/text_format.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/error.h"

namespace bindery {

// One step from a message to a field of it; `index` of repeated fields only.
struct FieldStep {
  const char* field;
  int index = -1;
};
using FieldPath = std::initializer_list<FieldStep>;

class ModelSource {
 public:
  ModelSource(std::string name, bool text) : name_(std::move(name)), text_(text) {}

  const std::string& name() const { return name_; }
  bool text() const { return text_; }
  // Filled by the text parser; empty for binary files and messages that we made.
  google::protobuf::TextFormat::ParseInfoTree& locations() { return locations_; }

  // Throws ModelError. `path` leads from the message Model to the field at fault.
  [[noreturn]] void Fail(FieldPath path, std::string_view message) const;
  [[noreturn]] void FailAt(int line, int column, std::string_view message) const;  // counted from 0

  // Runs `f`; an Error of it is complained about at `path` with `who` in front.
  template <class F>
  auto At(FieldPath path, const std::string& who, F&& f) const {
    try {
      return f();
    } catch (const Error& error) {
      Fail(path, who + ": " + error.message());
    }
  }

 private:
  std::string name_;
  bool text_;
  google::protobuf::TextFormat::ParseInfoTree locations_;
};

// A name from a file, fit for a terminal: control characters escaped, cut after 100 bytes.
std::string ShortName(std::string_view name);
std::string QuotedName(std::string_view name);  // the same in quotes, for a message

// Throws ModelError for a name of more than 4096 bytes. A node of a file may stand for many, which are called after it,
// and those that read it may be, too: of longer names they would take many times the file's size.
void CheckName(std::string_view name);

}  // namespace bindery
