// A data set described in a file of text (.prototxt): proto/data.proto.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "train/data/array_iter.h"

namespace bindery {

// "short", "pad", "discard" or "roll-over". Throws DataError with the nearest name.
LastBatch ParseLastBatch(std::string_view text);

struct DataDescription {
  std::string train;      // for OpenData; or "digits", text:FILE, a folder with IDX files
  std::string test = {};  // for OpenData; empty: a part of train, or what else it has for that
  // What the file does not say is not set.
  std::optional<double> test_part = {};
  std::optional<double> validation_part = {};  // of what is left to train on
  std::optional<std::string> last_batch = {};
  std::optional<int> workers = {};
  std::optional<bool> skip_damaged = {};
};

// Throws DataError, with file, line and column.
DataDescription ReadDataDescription(const std::string& path);

}  // namespace bindery
