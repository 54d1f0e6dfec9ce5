// What each column of a CSV file is: a label, a feature, in which place of a row, with categories or not; or left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/data/tables/csv.h"

namespace bindery {

class CsvColumns {
 public:
  static constexpr int64_t kFeature = -1, kLeftOut = -2;

  // Of a file called `name` with so many columns, called `header` (empty: by their numbers). `hint` ends the message
  // for a file of labels alone. All that is given must outlive the columns. Throws DataError.
  CsvColumns(const std::vector<std::string>& header, int64_t count, const std::string& name, const CsvOptions& options,
             const std::string& hint);

  int64_t count() const { return count_; }
  int64_t features() const { return features_; }
  int64_t role(int64_t column) const { return roles_[static_cast<size_t>(column)]; }  // the number of a label, or these
  size_t place(int64_t column) const { return places_[static_cast<size_t>(column)]; }  // of a feature, in a row
  const std::vector<int64_t>& labels() const { return labels_; }
  // Are the features others than those of the options?
  bool has_others() const { return has_others_; }
  // Features of categories, in the order of their places. Without values: they are to be measured.
  const std::vector<ColumnCategories>& categories() const { return categories_; }
  std::string NameOf(int64_t column) const;
  std::vector<std::string> FeatureNames() const;  // by their places
  std::vector<std::string> LabelNames() const;    // empty texts, where there is no header
  // CsvOptions::label and leave_out for other files of the same columns.
  std::string LabelText() const;
  std::string LeftOutText() const;

 private:
  std::vector<int64_t> FindAll(const std::string& text, bool several, bool may_lack, const char* purpose,
                               const char* fate) const;
  std::optional<int64_t> Find(const std::string& text, bool may_lack, const char* purpose, const char* fate) const;
  void FindLabels();
  void FindLeftOut();
  void FindFeatures();
  void FindCategories();

  const std::vector<std::string>& header_;
  const int64_t count_;
  const std::string& name_;
  const CsvOptions& options_;
  std::vector<int64_t> labels_, roles_;
  std::vector<size_t> places_;
  int64_t features_ = 0;
  bool has_others_ = false;
  std::vector<ColumnCategories> categories_;
};

}  // namespace bindery
