#include "executor/sample_error.h"

namespace bindery {

std::optional<int64_t> RowOfSample(int64_t sample, std::span<const int64_t> index) {
  if (sample >= std::ssize(index)) return std::nullopt;
  return index[static_cast<size_t>(sample)];
}

std::string SampleText(int64_t sample, std::span<const int64_t> index) {
  const std::optional<int64_t> row = RowOfSample(sample, index);
  return fmt::format("sample {} of the batch{}", sample, row ? fmt::format(", row {} of the data", *row) : "");
}

}  // namespace bindery
