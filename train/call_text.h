// CallText: a choice with its settings as text, "sgd(momentum=0.9)", "factor(1000, 0.9, warmup=100)", as it stands on a
// command line and in a checkpoint. Settings are numbers or words, by position, then by name; without any, "sgd" alone
// will do. A word with , ( ) in it stands in quotes, and has two for each of its own: output="a, b".
//
// Thread safety: none; one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bindery {

class CallText {
 public:
  // `what` is what the text stands for, in messages: `optimizer "sgd(momentum=x)": ...`. Throws Error if it is not of
  // this form.
  CallText(std::string what, std::string_view text);

  const std::string& name() const { return name_; }  // lower case

  // The names of all settings, in the order of positions. To be called before any is read. Throws Error for an unknown
  // one (with the nearest name), one given twice, and for too many.
  void Declare(std::vector<std::string> names);
  // Throw Error if the value is not a (finite) number or whole number. The optional is empty if it was not given.
  std::optional<double> Number(const std::string& name) const;
  std::optional<int64_t> Integer(const std::string& name) const;
  std::optional<std::string> Word(const std::string& name) const;

  // Throws Error: `<what> "<text>": <complaint>`.
  [[noreturn]] void Fail(const std::string& complaint) const;

 private:
  const std::string* Find(const std::string& name) const;

  std::string what_, text_, name_;
  std::vector<std::pair<std::string, std::string>> settings_;  // name ("" by position) and value
};

// Prints "name(a=1, b=0.5)"; numbers so that reading them gives the same bits.
class CallPrinter {
 public:
  explicit CallPrinter(std::string name) : text_(std::move(name)) {}
  CallPrinter& Add(std::string_view name, double value);
  CallPrinter& Add(std::string_view name, std::string_view value);
  std::string Text() const { return empty_ ? text_ : text_ + ")"; }

 private:
  std::string text_;
  bool empty_ = true;
};

// Cuts at commas that are not inside parentheses or quotes: "accuracy(axis=1),mse" -> two. Blanks around the parts are
// dropped.
std::vector<std::string> SplitCalls(std::string_view text);
// A word in quotes.
std::string QuotedWord(std::string_view word);

}  // namespace bindery
