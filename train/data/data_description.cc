#include "train/data/data_description.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/names.h"
#include "proto/data.pb.h"
#include "proto/text_format.h"
#include "train/data/open.h"
#include "train/data/samples/numbers.h"

namespace bindery {

LastBatch ParseLastBatch(std::string_view text) {
  const std::vector<std::string> names = {"short", "pad", "discard", "roll-over"};
  const auto found = std::ranges::find(names, text);
  if (found == names.end()) Throw<DataError>("unknown kind of last batch \"{}\"{}", text, NameHint(text, names));
  return static_cast<LastBatch>(found - names.begin());
}

DataDescription ReadDataDescription(const std::string& path) {
  constexpr int64_t kMostBytes = 1 << 20;
  const std::string text = ReadFile(path, kMostBytes);
  proto::Data data;
  if (const auto error = ParseMessage(text, &data)) Throw<DataError>("{}:{}", path, error->ToString());
  DataDescription file{.train = data.train(), .test = data.test()};
  if (data.has_test_part()) file.test_part = data.test_part();
  if (data.has_validation_part()) file.validation_part = data.validation_part();
  if (data.has_last_batch()) file.last_batch = data.last_batch();
  if (data.has_workers()) file.workers = data.workers();
  if (data.has_skip_damaged()) file.skip_damaged = data.skip_damaged();
  const auto check = [&](const std::string& source, bool known) {
    if (source.empty() || known) return;
    Throw<DataError>("{}: \"{}\" is no data set: KIND:PATH, text:FILE, digits or a folder of IDX files", path, source);
  };
  std::error_code error;  // a name too long, a circle of links: no folder
  const std::string train = IsDataText(file.train) ? file.train : CutShard(file.train).data;
  check(file.train, IsDataText(train) || train.starts_with("text:") || train == "digits" ||
                        std::filesystem::is_directory(train, error));
  if (!file.test.empty() && !file.train.empty() && !IsDataText(file.train)) {
    Throw<DataError>("{}: test: \"{}\" has its own", path, file.train);
  }
  check(file.test, IsDataText(file.test));
  if (file.train.empty()) Throw<DataError>("{}: it does not say what to train on", path);
  if (!(file.test_part.value_or(0) >= 0 && file.test_part.value_or(0) <= 1)) {
    Throw<DataError>("{}: test_part: expected 0 to 1, got {}", path, *file.test_part);
  }
  if (!(file.validation_part.value_or(0) >= 0 && file.validation_part.value_or(0) <= 0.99)) {
    Throw<DataError>("{}: validation_part: expected 0 to 0.99, got {}", path, *file.validation_part);
  }
  if (file.workers && (*file.workers < 1 || *file.workers > 1024)) {
    Throw<DataError>("{}: workers: expected 1 to 1024, got {}", path, *file.workers);
  }
  if (file.last_batch) ParseLastBatch(*file.last_batch);
  return file;
}

}  // namespace bindery
