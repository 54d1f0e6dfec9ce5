#include "train/data/tables/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/names.h"
#include "base/split_text.h"
#include "train/data/tables/csv_field.h"

namespace bindery {
namespace {

using csv::IsMissing, csv::IsNumber, csv::Parse, csv::Shown;

bool IsHeader(const std::vector<std::string>& fields) {
  return std::ranges::none_of(fields, [](const std::string& field) { return Parse<double>(Trim(field)).has_value(); });
}

// What a column is, beside the number of a label.
constexpr int64_t kFeature = -1, kLeftOut = -2;

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();  // filled in when the others are scaled

class Parser {
 public:
  Parser(std::string_view bytes, const std::string& name, const CsvOptions& options)
      : reader_(bytes, name, options.separator), name_(name), options_(options) {
    for (const std::string& c : options_.classes) {
      if (!class_of_.emplace(c, static_cast<int64_t>(class_of_.size())).second) {
        Throw<DataError>("\"{}\": class \"{}\" is given twice", name_, c);
      }
    }
  }

  CsvTable Run() {
    bool rows_left = ReadHeader();
    FindLabels();
    if (!label_columns_.empty() && columns_ == std::ssize(label_columns_)) {
      Throw<DataError>("\"{}\": its only column{}{}", name_, columns_ == 1 ? " is the label" : "s are the labels",
                       SeparatorHint());
    }
    FindLeftOut();
    if (std::ranges::find(roles_, kFeature) == roles_.end()) {
      Throw<DataError>("\"{}\": no column is left as a feature: all others are left out", name_);
    }
    FindFeatures();
    for (; rows_left; rows_left = reader_.Next()) ReadRow();
    return Finish();
  }

 private:
  // Is there a row now?
  bool ReadHeader() {
    if (!reader_.Next()) Throw<DataError>("\"{}\": it has no rows", name_);
    columns_ = static_cast<int64_t>(reader_.fields().size());
    if (!options_.header.value_or(IsHeader(reader_.fields()))) return true;
    header_ = reader_.fields();
    for (std::string& name : header_) name = Trim(name);  // as values are
    return reader_.Next();
  }

  // Of a file that has one column, as it seems: the character that may stand between more of them, of its first row.
  std::string SeparatorHint() const {
    const std::string& field = header_.empty() ? reader_.fields()[0] : header_[0];
    const size_t place = field.find_first_of(";\t,|");
    if (columns_ > 1 || place == std::string::npos) return "";
    if (field[place] == '\t') return "; are its fields separated by tabs? separator=tab says so";
    return fmt::format("; are its fields separated by \"{0}\"? separator={0} says so", field[place]);
  }

  std::string ColumnName(int64_t column) const {
    return header_.empty() ? std::to_string(column) : header_[static_cast<size_t>(column)];
  }

  [[noreturn]] void Fail(int64_t column, const std::string& complaint) const {
    const std::string title = header_.empty() ? "" : fmt::format(" (\"{}\")", Shown(ColumnName(column)));
    Throw<DataError>("\"{}\", line {}, column {}{}: {}", name_, reader_.line(), column + 1, title, complaint);
  }

  // The columns that a text names, as messages call their purpose ("for the label") and fate ("be the label").
  std::vector<int64_t> FindColumns(const std::string& text, bool several, bool may_lack, const char* purpose,
                                   const char* fate) const {
    std::vector<int64_t> columns;
    if (text == "none") return columns;
    several = several && std::ranges::find(header_, text) == header_.end();  // a name may have a comma in it
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = several ? std::min(text.find(',', begin), text.size()) : text.size();
      const std::optional<int64_t> column = FindColumn(text.substr(begin, end - begin), may_lack, purpose, fate);
      if (column) columns.push_back(*column);
      begin = end + 1;
    }
    return columns;
  }

  std::optional<int64_t> FindColumn(const std::string& text, bool may_lack, const char* purpose,
                                    const char* fate) const {
    const auto named = std::ranges::find(header_, text);
    if (named != header_.end()) return named - header_.begin();
    const auto number = Parse<int64_t>(text);
    if (number && *number >= -columns_ && *number < columns_) return *number < 0 ? *number + columns_ : *number;
    if (may_lack) return std::nullopt;
    if (!number) {
      Throw<DataError>("\"{}\": there is no column \"{}\" {}{}", name_, text, purpose,
                       header_.empty() ? ", and the file has no header" : NameHint(text, header_));
    }
    Throw<DataError>("\"{}\": column {} should {}, but there are {}", name_, *number, fate, columns_);
  }

  void FindLabels() {
    roles_.assign(static_cast<size_t>(columns_), kFeature);
    label_columns_ =
        FindColumns(options_.label, options_.label_is_number, /*may_lack=*/false, "for the label", "be the label");
    for (size_t i = 0; i < label_columns_.size(); ++i) {
      int64_t& role = roles_[static_cast<size_t>(label_columns_[i])];
      if (role >= 0) Throw<DataError>("\"{}\": column \"{}\" is a label twice", name_, ColumnName(label_columns_[i]));
      role = static_cast<int64_t>(i);
    }
  }

  void FindLeftOut() {
    for (const int64_t column :
         FindColumns(options_.leave_out, /*several=*/true, options_.may_lack_left_out, "to leave out", "be left out")) {
      int64_t& role = roles_[static_cast<size_t>(column)];
      if (role == kLeftOut) Throw<DataError>("\"{}\": column \"{}\" is left out twice", name_, ColumnName(column));
      if (role >= 0) {
        Throw<DataError>(
            "\"{}\": column \"{}\" is to be left out, but it is the label; \"label\" names another, "
            "label=none says that there is none",
            name_, ColumnName(column));
      }
      role = kLeftOut;
    }
  }

  void FindFeatures() {
    places_.assign(roles_.size(), 0);
    std::map<std::string_view, size_t> columns;  // by name
    std::set<std::string_view> here;             // the features' names
    for (size_t column = 0; column < roles_.size(); ++column) {
      if (roles_[column] == kFeature) places_[column] = features_++;
      if (header_.empty()) continue;
      columns.emplace(header_[column], column);
      if (roles_[column] == kFeature) here.insert(header_[column]);
    }
    const std::vector<std::string>& names = options_.features;
    const std::set<std::string_view> known(names.begin(), names.end());
    if (names.empty() || header_.empty()) return;
    has_others_ = options_.may_have_others && here != known;
    if (has_others_) return;
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
      places_[found->second] = static_cast<int64_t>(i);
    }
    for (const std::string_view name : here) {
      if (known.contains(name)) continue;
      Throw<DataError>("\"{}\": column \"{}\" is no feature of the model{}; \"leave_out\" names such columns", name_,
                       name, NameHint(name, names));
    }
    if (features_ != std::ssize(names)) Throw<DataError>("\"{}\": a feature is there twice", name_);
  }

  // By their names where these tell them apart in the text of a data set, too.
  std::string LeftOut() const {
    std::vector<std::string> names;
    for (int64_t column = 0; column < columns_; ++column) {
      if (roles_[static_cast<size_t>(column)] != kLeftOut) continue;
      const std::string name = ColumnName(column);
      const bool tells = header_.empty() || (std::ranges::find(header_, name) - header_.begin() == column &&
                                             name.find_first_of(",&") == std::string::npos && name != "none");
      names.push_back(tells ? name : std::to_string(column));
    }
    return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ","));
  }

  template <class T>
  T ReadNumber(int64_t column, std::string_view text) const {
    const std::optional<T> value = Parse<T>(text);
    if (value && std::isfinite(*value)) return *value;
    const bool may_go = roles_[static_cast<size_t>(column)] == kFeature && !IsNumber(text);
    Fail(column, fmt::format("expected a finite number, got \"{}\"{}", Shown(text),
                             may_go ? "; \"leave_out\" names columns that are no features" : ""));
  }

  // What is scaled is rounded to float32 behind that, all other numbers are as they are read.
  double ReadFeature(int64_t column, std::string_view text) const {
    const bool scaled = options_.scaling.scale != ColumnScale::kNone;
    return scaled ? ReadNumber<double>(column, text) : ReadNumber<float>(column, text);
  }

  // A number that can hardly be the name of a class: the last column may be none of labels.
  bool IsMeasure(std::string_view text) const {
    const auto number = [](std::string_view name) { return Parse<double>(name); };
    return number(text) && (std::floor(*number(text)) != *number(text) || !number(options_.classes[0]));
  }

  float ReadClass(int64_t column, std::string_view text) {
    const auto found = class_of_.find(text);
    if (found != class_of_.end()) return static_cast<float>(found->second);
    if (!options_.classes.empty()) {
      Fail(column, fmt::format("\"{}\" is none of the {} classes{}", Shown(text), options_.classes.size(),
                               IsMeasure(text) ? "; if the file has no labels, label=none says so"
                                               : NameHint(Shown(text), options_.classes)));
    }
    constexpr size_t kMostClasses = 65536;
    if (class_of_.size() == kMostClasses) {
      Fail(column,
           fmt::format("the labels have more than {} different values: are they numbers, not classes?", kMostClasses));
    }
    for (const char c : text) {
      if (static_cast<unsigned char>(c) < ' ') Fail(column, "a class has a control character in its name");
    }
    return static_cast<float>(class_of_.emplace(text, static_cast<int64_t>(class_of_.size())).first->second);
  }

  bool IsAnyMissing(const std::vector<std::string>& fields) const {
    for (size_t i = 0; i < fields.size(); ++i) {
      if (roles_[i] != kLeftOut && IsMissing(Trim(fields[i]))) return true;
    }
    return false;
  }

  void ReadRow() {
    const std::vector<std::string>& fields = reader_.fields();
    const auto count = static_cast<int64_t>(fields.size());
    if (count != columns_) {
      Throw<DataError>("\"{}\", line {}: expected {} columns, got {}", name_, reader_.line(), columns_, count);
    }
    // Before anything is read: what is left out gives no class either.
    if (options_.missing == CsvMissing::kLeaveOut && IsAnyMissing(fields)) {
      ++left_out_;
      return;
    }
    const size_t begin_labels = labels_.size();
    labels_.resize(begin_labels + label_columns_.size());
    const size_t begin_values = values_.size();
    values_.resize(begin_values + static_cast<size_t>(features_));
    for (int64_t column = 0; column < columns_; ++column) {
      const std::string_view text = Trim(fields[static_cast<size_t>(column)]);
      const int64_t label = roles_[static_cast<size_t>(column)];
      if (label == kLeftOut) continue;
      const bool missing = IsMissing(text);
      if (missing && options_.missing == CsvMissing::kError) Fail(column, "the value is missing");
      // Words like "?" may be classes; nothing is none.
      if (label >= 0 && text.empty()) {
        Fail(column, "the label is missing, whose place no number takes; missing=leave-out leaves such rows out");
      }
      if (label < 0) {
        const auto place = static_cast<size_t>(places_[static_cast<size_t>(column)]);
        values_[begin_values + place] = missing ? kMissing : ReadFeature(column, text);
        continue;
      }
      float& value = labels_[begin_labels + static_cast<size_t>(label)];
      value = options_.label_is_number ? ReadNumber<float>(column, text) : ReadClass(column, text);
    }
    ++rows_;
  }

  // Classes were numbered as they came: now by their order.
  std::vector<std::string> SortClasses() {
    std::vector<std::string> classes;
    for (const auto& [name, number] : class_of_) classes.push_back(name);
    const auto whole = [](const std::string& text) { return Parse<int64_t>(text); };
    if (std::ranges::all_of(classes, [&](const std::string& c) { return whole(c).has_value(); })) {
      std::ranges::stable_sort(classes, {}, [&](const std::string& c) { return *whole(c); });
    }
    std::vector<float> place(classes.size());
    for (size_t i = 0; i < classes.size(); ++i) {
      place[static_cast<size_t>(class_of_.find(classes[i])->second)] = static_cast<float>(i);
    }
    for (float& label : labels_) label = place[static_cast<size_t>(label)];
    return classes;
  }

  // Scales what is there, and fills in what is not, in `table`.
  void Scale(const HostTensor& rows, CsvTable* table) const {
    ColumnScaling& scaling = table->scaling = options_.scaling;
    try {
      if (!scaling.IsMeasured() || (has_others_ && options_.measure_others)) {
        std::vector<int64_t> all(static_cast<size_t>(rows_));
        std::iota(all.begin(), all.end(), int64_t{0});
        scaling = MeasureColumns(rows, scaling.scale, options_.measured ? options_.measured(rows_) : all);
      }
      table->data = ScaleColumns(scaling, rows, options_.missing_value);
    } catch (const DataError& e) {
      Throw<DataError>("\"{}\": {}", name_, e.message());
    }
  }

  // Of the features, (rows, columns), float64.
  HostTensor TakeValues() {
    HostTensor rows(DType::kFloat64, {rows_, std::ssize(values_) / rows_});
    std::ranges::copy(values_, rows.data<double>().begin());
    values_ = {};
    return rows;
  }

  CsvTable Finish() {
    if (rows_ == 0) Throw<DataError>("\"{}\": it has no rows but the header, or all were left out", name_);
    CsvTable table;
    table.left_out = left_out_;
    const int64_t count = std::ssize(label_columns_);
    if (count > 0 && !options_.label_is_number) {
      table.classes = options_.classes.empty() ? SortClasses() : options_.classes;
    }
    table.has_header = !header_.empty();
    table.columns.resize(static_cast<size_t>(features_));
    for (size_t column = 0; column < roles_.size(); ++column) {
      if (roles_[column] != kFeature) continue;
      table.columns[static_cast<size_t>(places_[column])] = ColumnName(static_cast<int64_t>(column));
    }
    for (const int64_t column : label_columns_) {
      table.label_names.push_back(header_.empty() ? "" : ColumnName(column));
    }
    table.leave_out = LeftOut();
    Scale(TakeValues(), &table);
    if (count > 0) table.labels = HostTensor::From(count == 1 ? Shape{rows_} : Shape{rows_, count}, labels_);
    return table;
  }

  CsvReader reader_;
  const std::string& name_;
  const CsvOptions& options_;
  std::vector<std::string> header_;
  int64_t columns_ = 0, features_ = 0, rows_ = 0, left_out_ = 0;
  std::vector<int64_t> label_columns_, roles_;  // and of each column, which label it is, or kFeature, or kLeftOut
  std::vector<int64_t> places_;                 // of each column that is a feature, in a row of the table
  bool has_others_ = false;                     // its features are not those of the options
  std::map<std::string, int64_t, std::less<>> class_of_;
  std::vector<double> values_;
  std::vector<float> labels_;
};

}  // namespace

CsvTable ParseCsv(std::string_view bytes, const std::string& name, const CsvOptions& options) {
  if (options.separator == '"' || options.separator == '\n' || options.separator == '\r') {
    Throw<DataError>("\"{}\": fields cannot be separated by quotes or line ends", name);
  }
  return Parser(bytes, name, options).Run();
}

CsvTable ReadCsv(const std::string& path, const CsvOptions& options) {
  return ParseCsv(ReadFile(path, options.file_bytes), path, options);
}

}  // namespace bindery
