// What a model with a head of regression says of samples, as `bindery predict` prints and writes it: its numbers, by
// the names of the columns that it learned them from, and what is known of the sample.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/host_tensor.h"

namespace bindery::cli {

struct PredictedNumbers {
  HostTensor values = {};                 // float32 (samples, outputs)
  std::vector<std::string> names = {};    // of the outputs
  std::vector<double> labels = {};        // (samples, outputs); or none, where they are not known
  std::vector<std::string> records = {};  // one each, or none

  int64_t samples() const { return values.shape()[0]; }
};

// Of the first `count` samples. For people; a list of objects.
std::string ToTable(const PredictedNumbers& numbers, int64_t count);
nlohmann::json ToJson(const PredictedNumbers& numbers, int64_t count);
// Of all, RFC 4180, with a line of names at the head.
std::string ToCsv(const PredictedNumbers& numbers);

}  // namespace bindery::cli
