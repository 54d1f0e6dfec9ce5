// The settings of a data set's text (train/data/open.h), each read once, by name.
// Thread safety: none; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bindery {

class DataSettings {
 public:
  // Throws DataError unless it is KIND:PATH?NAME=VALUE&...
  explicit DataSettings(const std::string& text);

  // For what the text does not say. What of them nobody reads is no error.
  void SetDefaults(std::map<std::string, std::string> defaults) { defaults_ = std::move(defaults); }

  const std::string& kind() const { return kind_; }
  const std::string& path() const { return path_; }
  bool IsSaid(const std::string& name) const { return values_.contains(name); }  // by the text
  bool Has(const std::string& name) const { return IsSaid(name) || defaults_.contains(name); }
  // The value, else `otherwise`. Throw DataError if it is not of the form.
  std::string Text(const std::string& name, const std::string& otherwise = "");
  double Number(const std::string& name, double otherwise, double low, double high);
  int64_t Integer(const std::string& name, int64_t otherwise, int64_t low, int64_t high);
  bool Flag(const std::string& name, bool otherwise);  // 0 or 1
  template <class T = float>                           // or double
  std::vector<T> Numbers(const std::string& name);     // finite ones, with commas between
  // Throws DataError for a setting that nobody has read.
  void CheckAllRead() const;
  [[noreturn]] void Fail(const std::string& complaint) const;  // throws DataError, with the text

 private:
  std::string text_, kind_, path_;
  std::map<std::string, std::string> values_, defaults_;
  std::set<std::string> read_;
};

}  // namespace bindery
