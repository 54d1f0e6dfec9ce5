// A value in a batch that a network cannot take, and whose it is.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"

namespace bindery {

class SampleError final : public DataError {
 public:
  SampleError(const std::string& message, int64_t sample, std::optional<int64_t> row)
      : DataError(message), sample_(sample), row_(row) {}
  int64_t sample() const { return sample_; }           // of the batch
  std::optional<int64_t> row() const { return row_; }  // of the data, if the batch knows it (Batch::index)

 private:
  int64_t sample_;
  std::optional<int64_t> row_;
};

// The row of a sample by a Batch::index, if that says it; "sample 3 of the batch, row 17 of the data".
std::optional<int64_t> RowOfSample(int64_t sample, std::span<const int64_t> index);
std::string SampleText(int64_t sample, std::span<const int64_t> index);

}  // namespace bindery
