#include "train/data/tables/csv_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/names.h"
#include "train/data/tables/csv_field.h"
#include "train/data/tables/names.h"

namespace bindery {

using csv::Parse;

CsvColumns::CsvColumns(const std::vector<std::string>& header, int64_t count, const std::string& name,
                       const CsvOptions& options, const std::string& hint)
    : header_(header), count_(count), name_(name), options_(options) {
  FindLabels();
  if (!labels_.empty() && count_ == std::ssize(labels_)) {
    Throw<DataError>("\"{}\": its only column{}{}", name_, count_ == 1 ? " is the label" : "s are the labels", hint);
  }
  FindLeftOut();
  if (std::ranges::find(roles_, kFeature) == roles_.end()) {
    Throw<DataError>("\"{}\": no column is left as a feature: all others are left out", name_);
  }
  FindFeatures();
  FindCategories();
}

std::string CsvColumns::NameOf(int64_t column) const {
  return header_.empty() ? std::to_string(column) : header_[static_cast<size_t>(column)];
}

std::vector<std::string> CsvColumns::FeatureNames() const {
  std::vector<std::string> names(static_cast<size_t>(features_));
  for (int64_t column = 0; column < count_; ++column) {
    if (role(column) == kFeature) names[place(column)] = NameOf(column);
  }
  return names;
}

std::vector<std::string> CsvColumns::LabelNames() const {
  std::vector<std::string> names;
  for (const int64_t column : labels_) names.push_back(header_.empty() ? "" : NameOf(column));
  return names;
}

// By their names where these tell them apart in the text of a data set, too.
std::string CsvColumns::LeftOutText() const {
  std::vector<std::string> names;
  for (int64_t column = 0; column < count_; ++column) {
    if (role(column) != kLeftOut) continue;
    const std::string name = NameOf(column);
    const bool tells = header_.empty() || (std::ranges::find(header_, name) - header_.begin() == column &&
                                           name.find_first_of(",&") == std::string::npos && name != "none");
    names.push_back(tells ? name : std::to_string(column));
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ","));
}

std::string CsvColumns::LabelText() const {
  if (labels_.empty()) return "none";
  if (header_.empty()) return options_.label;
  std::vector<std::string> names;
  for (const int64_t column : labels_) {
    const std::string name = NameOf(column);
    const bool tells = std::ranges::find(header_, name) - header_.begin() == column && !name.empty() && name != "none";
    names.push_back(tells ? CodedName(name) : std::to_string(column));
  }
  return fmt::format("{}", fmt::join(names, ","));
}

// The columns that a text names, as messages call their purpose ("for the label") and fate ("be the label").
std::vector<int64_t> CsvColumns::FindAll(const std::string& text, bool several, bool may_lack, const char* purpose,
                                         const char* fate) const {
  std::vector<int64_t> columns;
  if (text == "none") return columns;
  several = several && std::ranges::find(header_, text) == header_.end();  // a name may have a comma in it
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = several ? std::min(text.find(',', begin), text.size()) : text.size();
    const std::optional<int64_t> column = Find(text.substr(begin, end - begin), may_lack, purpose, fate);
    if (column) columns.push_back(*column);
    begin = end + 1;
  }
  return columns;
}

std::optional<int64_t> CsvColumns::Find(const std::string& text, bool may_lack, const char* purpose,
                                        const char* fate) const {
  for (const std::string& name : {text, DecodedName(text)}) {
    const auto named = std::ranges::find(header_, name);
    if (named != header_.end()) return named - header_.begin();
  }
  const auto number = Parse<int64_t>(text);
  if (number && *number >= -count_ && *number < count_) return *number < 0 ? *number + count_ : *number;
  if (may_lack) return std::nullopt;
  if (!number) {
    Throw<DataError>("\"{}\": there is no column \"{}\" {}{}", name_, DecodedName(text), purpose,
                     header_.empty() ? ", and the file has no header" : NameHint(text, header_));
  }
  Throw<DataError>("\"{}\": column {} should {}, but there are {}", name_, *number, fate, count_);
}

void CsvColumns::FindLabels() {
  roles_.assign(static_cast<size_t>(count_), kFeature);
  const bool several = options_.label_is_number;
  const auto find = [&](const std::string& text, bool may_lack) {
    const char* const purpose =
        options_.label_of_model ? "for the label, which the model was trained with" : "for the label";
    return FindAll(text, several, may_lack, purpose, "be the label");
  };
  // Names of a model tell nothing of a file that has none.
  const std::string otherwise = options_.label_of_model && header_.empty() ? "-1" : options_.label_otherwise;
  const bool lacks = !otherwise.empty() && options_.label != "none" && find(options_.label, true).empty();
  labels_ = find(lacks ? otherwise : options_.label, false);
  if (lacks && otherwise == "-1") {
    LogLine(header_.empty() ? LogLevel::kInfo : LogLevel::kWarning,
            fmt::format("\"{}\": it has no {}: its last column is taken for the label, \"{}\"; \"label\" names "
                        "another, label=none says that there is none",
                        name_, header_.empty() ? "header" : "column of the label's name", options_.label));
  }
  for (size_t i = 0; i < labels_.size(); ++i) {
    int64_t& role = roles_[static_cast<size_t>(labels_[i])];
    if (role >= 0) Throw<DataError>("\"{}\": column \"{}\" is a label twice", name_, NameOf(labels_[i]));
    role = static_cast<int64_t>(i);
  }
}

void CsvColumns::FindLeftOut() {
  for (const int64_t column :
       FindAll(options_.leave_out, /*several=*/true, options_.may_lack_left_out, "to leave out", "be left out")) {
    int64_t& role = roles_[static_cast<size_t>(column)];
    if (role == kLeftOut) Throw<DataError>("\"{}\": column \"{}\" is left out twice", name_, NameOf(column));
    if (role >= 0) {
      Throw<DataError>(
          "\"{}\": column \"{}\" is to be left out, but it is the label; \"label\" names another, label=none says that "
          "there is none",
          name_, NameOf(column));
    }
    role = kLeftOut;
  }
}

void CsvColumns::FindFeatures() {
  places_.assign(roles_.size(), 0);
  std::map<std::string_view, size_t> columns;  // by name
  std::set<std::string_view> here;             // the features' names
  for (size_t column = 0; column < roles_.size(); ++column) {
    if (roles_[column] == kFeature) places_[column] = static_cast<size_t>(features_++);
    if (header_.empty()) continue;
    columns.emplace(header_[column], column);
    if (roles_[column] == kFeature) here.insert(header_[column]);
  }
  const std::vector<std::string>& names = options_.features;
  const std::set<std::string_view> known(names.begin(), names.end());
  const bool are_as_many = features_ == std::ssize(names);
  if (names.empty() || (header_.empty() && are_as_many)) return;
  has_others_ = options_.may_have_others && (header_.empty() || here != known);
  if (has_others_) return;
  if (header_.empty()) {
    Throw<DataError>(
        "\"{}\": it has {} features, but the model {}; \"leave_out\" names columns that are none, \"label\" "
        "the label, label=none says that there is none",
        name_, features_, names.size());
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const auto found = columns.find(names[i]);
    if (found == columns.end()) {
      Throw<DataError>("\"{}\": there is no column \"{}\", which the model has as a feature{}", name_, names[i],
                       NameHint(names[i], header_));
    }
    if (!here.contains(names[i])) {
      Throw<DataError>("\"{}\": column \"{}\" is a feature of the model, but here it is {}", name_, names[i],
                       roles_[found->second] == kLeftOut
                           ? "left out"
                           : "the label; \"label\" names another, label=none says that there is none");
    }
    places_[found->second] = i;
  }
  for (const std::string_view name : here) {
    if (known.contains(name)) continue;
    Throw<DataError>("\"{}\": column \"{}\" is no feature of the model{}; \"leave_out\" names such columns", name_,
                     name, NameHint(name, names));
  }
  if (!are_as_many) Throw<DataError>("\"{}\": a feature is there twice", name_);
}

void CsvColumns::FindCategories() {
  const std::vector<ColumnCategories> none;
  const std::vector<ColumnCategories>& known = has_others_ ? none : options_.known_categories;
  for (const ColumnCategories& one : known) {
    if (one.place < features_) continue;
    Throw<DataError>("\"{}\": the model has categories of feature {}, from 0, but there are {}", name_, one.place,
                     features_);
  }
  if (!options_.categories) {
    categories_ = known;
    return;
  }
  for (const CsvCategories& said : *options_.categories) {
    const int64_t column = *Find(said.column, /*may_lack=*/false, "of categories", "have categories");
    if (role(column) != kFeature) {
      Throw<DataError>("\"{}\": column \"{}\" is to have categories, but it is {}", name_, NameOf(column),
                       role(column) == kLeftOut ? "left out"
                                                : "the label; \"label\" names another, label=none says that there is "
                                                  "none");
    }
    ColumnCategories one{.place = static_cast<int64_t>(place(column)), .values = said.values};
    const auto is_it = [&](const ColumnCategories& other) { return other.place == one.place; };
    if (std::ranges::any_of(categories_, is_it)) {
      Throw<DataError>("\"{}\": column \"{}\" has categories twice", name_, NameOf(column));
    }
    const auto found = std::ranges::find_if(known, is_it);
    if (one.values.empty() && found != known.end()) one.values = found->values;
    if (one.values.empty() && !options_.measures_categories) {
      Throw<DataError>(
          "\"{}\": the categories of column \"{}\" are those of the data that a model was trained on, and there are "
          "none; \"categories\" gives them as {}:ONE|ANOTHER",
          name_, NameOf(column), CodedName(NameOf(column)));
    }
    categories_.push_back(std::move(one));
  }
  std::ranges::sort(categories_, {}, &ColumnCategories::place);
}

}  // namespace bindery
