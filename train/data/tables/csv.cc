#include "train/data/tables/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/names.h"
#include "base/split_text.h"
#include "train/data/tables/csv_columns.h"
#include "train/data/tables/csv_field.h"

namespace bindery {
namespace {

using csv::IsMissing, csv::IsNumber, csv::Parse, csv::Shown;

bool IsHeader(const std::vector<std::string>& fields) {
  return std::ranges::none_of(fields, [](const std::string& field) { return Parse<double>(Trim(field)).has_value(); });
}

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
    columns_.emplace(header_, first_row_, name_, options_, SeparatorHint());
    for (const ColumnCategories& one : columns_->categories()) {
      Words& words = words_.emplace_back(Words{.known = &one});
      for (const std::string& value : one.values) words.numbers.emplace(value, std::ssize(words.numbers));
    }
    words_of_.assign(static_cast<size_t>(first_row_), nullptr);
    for (int64_t column = 0; column < first_row_; ++column) {
      for (Words& words : words_) {
        const bool is_it = columns_->role(column) == CsvColumns::kFeature &&
                           columns_->place(column) == static_cast<size_t>(words.known->place);
        if (is_it) words_of_[static_cast<size_t>(column)] = &words;
      }
    }
    for (; rows_left; rows_left = reader_.Next()) ReadRow();
    return Finish();
  }

 private:
  // Of a column of categories.
  struct Words {
    const ColumnCategories* known = nullptr;                   // where they have values, these count alone
    std::map<std::string, int64_t, std::less<>> numbers = {};  // of these, else as they came
    int64_t strangers = 0;                                     // values that are none of the known ones
    std::string stranger = {};                                 // the first, and its line
    int64_t line = 0;
  };

  // Is there a row now?
  bool ReadHeader() {
    if (!reader_.Next()) Throw<DataError>("\"{}\": it has no rows", name_);
    first_row_ = std::ssize(reader_.fields());
    if (!options_.header.value_or(IsHeader(reader_.fields()))) return true;
    header_ = reader_.fields();
    for (std::string& name : header_) name = Trim(name);  // as values are
    return reader_.Next();
  }

  // Of a file that has one column, as it seems: the character that may stand between more of them, of its first row.
  std::string SeparatorHint() const {
    const std::string& field = header_.empty() ? reader_.fields()[0] : header_[0];
    const size_t place = field.find_first_of(";\t,|");
    if (first_row_ > 1 || place == std::string::npos) return "";
    if (field[place] == '\t') return "; are its fields separated by tabs? separator=tab says so";
    return fmt::format("; are its fields separated by \"{0}\"? separator={0} says so", field[place]);
  }

  [[noreturn]] void Fail(int64_t column, const std::string& complaint) const {
    const std::string title = header_.empty() ? "" : fmt::format(" (\"{}\")", Shown(columns_->NameOf(column)));
    Throw<DataError>("\"{}\", line {}, column {}{}: {}", name_, reader_.line(), column + 1, title, complaint);
  }

  template <class T>
  T ReadNumber(int64_t column, std::string_view text) const {
    const std::optional<T> value = Parse<T>(text);
    if (value && std::isfinite(*value)) return *value;
    const bool may_go = columns_->role(column) == CsvColumns::kFeature && !IsNumber(text);
    Fail(
        column,
        fmt::format("expected a finite number, got \"{}\"{}", Shown(text),
                    may_go ? "; \"categories\" names columns of words, \"leave_out\" those that are no features" : ""));
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
      if (columns_->role(static_cast<int64_t>(i)) != CsvColumns::kLeftOut && IsMissing(Trim(fields[i]))) return true;
    }
    return false;
  }

  // Its number among those of the column: of the known ones, else as they come.
  double ReadCategory(int64_t column, std::string_view text, Words* words) {
    if (IsMissing(text)) {
      Fail(column, "the category is missing, whose place no number takes; missing=leave-out leaves such rows out");
    }
    const auto found = words->numbers.find(text);
    if (found != words->numbers.end()) return static_cast<double>(found->second);
    if (!words->known->values.empty()) {
      if (words->strangers++ == 0) {
        words->stranger = Shown(text);
        words->line = reader_.line();
      }
      return ColumnCategories::kNone;
    }
    if (std::ssize(words->numbers) == kMostCategories) {
      Fail(column,
           fmt::format("the column has more than {} categories; \"leave_out\" names columns that are no features",
                       kMostCategories));
    }
    for (const char c : text) {
      if (static_cast<unsigned char>(c) < ' ') Fail(column, "a category has a control character in its name");
    }
    const int64_t number = std::ssize(words->numbers);
    words->numbers.emplace(text, number);
    return static_cast<double>(number);
  }

  double ReadFeatureOf(int64_t column, std::string_view text) {
    Words* const words = words_of_[static_cast<size_t>(column)];
    if (words != nullptr) return ReadCategory(column, text, words);
    return IsMissing(text) ? kMissing : ReadFeature(column, text);
  }

  void ReadRow() {
    const std::vector<std::string>& fields = reader_.fields();
    const auto count = static_cast<int64_t>(fields.size());
    if (count != columns_->count()) {
      Throw<DataError>("\"{}\", line {}: expected {} columns, got {}", name_, reader_.line(), columns_->count(), count);
    }
    // Before anything is read: what is left out gives no class either.
    if (options_.missing == CsvMissing::kLeaveOut && IsAnyMissing(fields)) {
      ++left_out_;
      return;
    }
    const size_t begin_labels = labels_.size();
    labels_.resize(begin_labels + columns_->labels().size());
    const size_t begin_values = values_.size();
    values_.resize(begin_values + static_cast<size_t>(columns_->features()));
    for (int64_t column = 0; column < count; ++column) {
      const std::string_view text = Trim(fields[static_cast<size_t>(column)]);
      const int64_t label = columns_->role(column);
      if (label == CsvColumns::kLeftOut) continue;
      if (IsMissing(text) && options_.missing == CsvMissing::kError) Fail(column, "the value is missing");
      // Words like "?" may be classes; nothing is none.
      if (label >= 0 && text.empty()) {
        Fail(column, "the label is missing, whose place no number takes; missing=leave-out leaves such rows out");
      }
      if (label < 0) {
        values_[begin_values + columns_->place(column)] = ReadFeatureOf(column, text);
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
    SortNames(&classes);
    std::vector<float> place(classes.size());
    for (size_t i = 0; i < classes.size(); ++i) {
      place[static_cast<size_t>(class_of_.find(classes[i])->second)] = static_cast<float>(i);
    }
    for (float& label : labels_) label = place[static_cast<size_t>(label)];
    return classes;
  }

  // By which what is computed of the rows is computed.
  std::vector<int64_t> MeasuredRows() const {
    if (options_.measured) return options_.measured(rows_);
    std::vector<int64_t> all(static_cast<size_t>(rows_));
    std::iota(all.begin(), all.end(), int64_t{0});
    return all;
  }

  // The categories of a column, of which `rows` have the numbers as they came: now by the order of those measured.
  std::vector<std::string> Measure(const Words& words, HostTensor* rows) const {
    const std::span<double> values = rows->data<double>();
    const auto columns = static_cast<size_t>(columns_->features()), place = static_cast<size_t>(words.known->place);
    std::vector<bool> is_there(words.numbers.size());
    const std::vector<int64_t> measured_rows = MeasuredRows();
    if (measured_rows.empty())
      Throw<DataError>("\"{}\": there is no row to train on, which could have categories", name_);
    for (const int64_t row : measured_rows) {
      is_there[static_cast<size_t>(values[static_cast<size_t>(row) * columns + place])] = true;
    }
    ColumnCategories measured;
    for (const auto& [name, number] : words.numbers) {
      if (is_there[static_cast<size_t>(number)]) measured.values.push_back(name);
    }
    SortNames(&measured.values);
    std::vector<double> numbers(words.numbers.size());
    for (const auto& [name, number] : words.numbers) numbers[static_cast<size_t>(number)] = measured.NumberOf(name);
    for (size_t i = place; i < values.size(); i += columns) values[i] = numbers[static_cast<size_t>(values[i])];
    return measured.values;
  }

  // Of each row, the columns of its categories.
  HostTensor Expand(HostTensor rows, CsvTable* table) const {
    table->categories = columns_->categories();
    for (size_t i = 0; i < words_.size(); ++i) {
      ColumnCategories& one = table->categories[i];
      const std::string column = table->columns[static_cast<size_t>(one.place)];
      if (one.values.empty()) one.values = Measure(words_[i], &rows);
      if (words_[i].strangers == 0) continue;
      LogLine(LogLevel::kWarning,
              fmt::format("\"{}\", line {}, column \"{}\": \"{}\" is none of the {} categories of the training; such "
                          "values, of which there are {}, count as none of them",
                          name_, words_[i].line, column, words_[i].stranger, one.values.size(), words_[i].strangers));
    }
    return words_.empty() ? std::move(rows) : ExpandCategories(table->categories, rows);
  }

  // Scales what is there, and fills in what is not, in `table`.
  void Scale(const HostTensor& rows, CsvTable* table) const {
    ColumnScaling& scaling = table->scaling = options_.scaling;
    try {
      if (!scaling.IsMeasured() || (columns_->has_others() && options_.measure_others)) {
        scaling = MeasureColumns(rows, scaling.scale, MeasuredRows());
        const std::vector<bool> stay = AreOfCategories(table->categories, columns_->features());
        for (size_t i = 0; i < scaling.first.size(); ++i) {
          if (!stay[i]) continue;
          scaling.first[i] = 0;
          scaling.second[i] = 1;
        }
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
    const int64_t count = std::ssize(columns_->labels());
    if (count > 0 && !options_.label_is_number) {
      table.classes = options_.classes.empty() ? SortClasses() : options_.classes;
    }
    table.has_header = !header_.empty();
    table.columns = columns_->FeatureNames();
    table.label_names = columns_->LabelNames();
    table.label = columns_->LabelText();
    table.leave_out = columns_->LeftOutText();
    Scale(Expand(TakeValues(), &table), &table);
    if (count > 0) table.labels = HostTensor::From(count == 1 ? Shape{rows_} : Shape{rows_, count}, labels_);
    return table;
  }

  CsvReader reader_;
  const std::string& name_;
  const CsvOptions& options_;
  std::vector<std::string> header_;
  int64_t first_row_ = 0, rows_ = 0, left_out_ = 0;  // columns of that one
  std::optional<CsvColumns> columns_;
  std::vector<Words> words_;
  std::vector<Words*> words_of_;  // of each column; nullptr: it has no categories
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
