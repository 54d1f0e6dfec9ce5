// CSV files (RFC 4180): a row a sample, numbers in columns, one of them the label; some columns may be left out, others
// hold words, as categories.
//
// Fields may stand in quotes, "" in them is a quote, and they may hold separators and line ends; lines end in LF or
// CRLF; a byte order mark and empty lines are passed over. Errors name file, line and column. Memory stays within a
// small multiple of the file's size, but for categories, kMostCategories of a column, each of which is a column.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host_tensor.h"
#include "train/data/tables/categories.h"
#include "train/data/tables/scaling.h"

namespace bindery {

// The rows of a file, one after another. Thread safety: none; one thread at a time.
class CsvReader {
 public:
  // `bytes` must outlive the reader; `name` is for messages.
  CsvReader(std::string_view bytes, std::string name, char separator = ',');
  // The next row; false at the end. Throws DataError for quotes that do not close or that stand within a field.
  bool Next();
  const std::vector<std::string>& fields() const { return fields_; }
  int64_t line() const { return line_; }  // where the row begins, from 1

 private:
  // Throws DataError at a field of the present row.
  [[noreturn]] void Fail(size_t field, const char* complaint) const;
  void ReadField(std::string* field);

  const std::string name_;
  const char separator_;
  std::string_view rest_;
  std::vector<std::string> fields_;
  int64_t line_ = 0, next_line_ = 1;
};

enum class CsvMissing {
  kError,
  kLeaveOut,  // the row
  kValue,     // CsvOptions::missing_value
};

// A column by its name or number, as CsvOptions::label; without values: they are to be measured.
struct CsvCategories {
  std::string column;
  std::vector<std::string> values = {};
};

struct CsvOptions {
  char separator = ',';
  std::optional<bool> header = {};  // not set: the first row is one if no field of it is a number
  // A column by its name or by its number, from 0, from the end if negative; "none": there is no label. Where labels are
  // numbers, several may be given, with commas between them. "," "&" "%" may be %2c, %26, %25 in a name.
  std::string label = "-1";
  bool label_of_model = false;            // nobody has said it here: without a header it is the last column then
  std::string label_otherwise = {};       // takes its place where there is no such column; empty: that is an error
  bool label_is_number = false;           // else a class
  std::vector<std::string> classes = {};  // of labels, class 0 first; empty: those of the file
  // Fields that are empty, NA, NaN, null or ?.
  CsvMissing missing = CsvMissing::kError;
  float missing_value = 0;  // takes their place once the others are scaled: 0 is the mean of a column then
  // Columns that are neither features nor labels, like `label`, with commas between them: they may hold any text.
  std::string leave_out = "none";
  bool may_lack_left_out = false;  // else a column to leave out that the file has not is an error
  // The features' names: a file with a header has them all and no others, in any order, and its table has this one.
  // Empty: they are what there is, as they stand.
  std::vector<std::string> features = {};
  bool may_have_others = false;  // else a file that calls its features otherwise is an error
  bool measure_others = false;   // then the numbers of `scaling` are of other columns: these get numbers of their own
  // Features of words, or of numbers that are names: each becomes a column for each of its categories. Not set: those
  // of `known_categories`, which also tell the values of those that are given without. Others are those of the rows
  // `measured`, or an error, if that is not allowed. What is missing in them is an error, or its row is left out.
  std::optional<std::vector<CsvCategories>> categories = {};
  std::vector<ColumnCategories> known_categories = {};
  bool measures_categories = true;
  // Of the features, not of labels, nor of categories, which stay 0 and 1. Without numbers, they are those of the rows
  // that `measured` gives for how many there are, from 0 on and without those that are left out; not set: all.
  ColumnScaling scaling = {};
  std::function<std::vector<int64_t>(int64_t rows)> measured = {};
  int64_t file_bytes = int64_t{1} << 30;
};

struct CsvTable {
  HostTensor data;                   // float32 (rows, columns); of features in their order
  HostTensor labels;                 // float32 (rows), of several columns (rows, columns); of none: empty
  std::vector<std::string> columns;  // features, in the order of data; by number, where there is no header
  bool has_header = false;
  std::vector<std::string> label_names;  // one for each column of labels; empty texts, where there is no header
  std::vector<std::string> classes;      // numbers in their order if all are whole ones, else in that of their bytes
  int64_t left_out = 0;                  // rows
  // CsvOptions of the same name for other files of the same columns, and for other rows: with numbers and values.
  std::string label = "none", leave_out = "none";
  std::vector<ColumnCategories> categories = {};  // known_categories
  ColumnScaling scaling = {};
};

// Throws DataError.
CsvTable ReadCsv(const std::string& path, const CsvOptions& options = {});
CsvTable ParseCsv(std::string_view bytes, const std::string& name, const CsvOptions& options = {});

}  // namespace bindery
