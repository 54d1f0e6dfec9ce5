// The names of the columns that are a CSV file's labels. Private to train/data.
#pragma once

#include <string>
#include <vector>

#include "train/data/tables/csv.h"

namespace bindery {

// In the order of the labels; empty texts where the file has no header. Throws DataError.
std::vector<std::string> CsvLabels(const std::string& path, const CsvOptions& options);

}  // namespace bindery
