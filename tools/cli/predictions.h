// What a model says of samples, as `bindery predict` prints and writes it: the likeliest class of each, its probability,
// and what is known of the sample: its label, and what its record is called.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/host_tensor.h"

namespace bindery::cli {

struct Predictions {
  HostTensor scores = {};                 // float32 (samples, classes)
  std::vector<double> labels = {};        // one each; or none, where they are not known
  std::vector<std::string> records = {};  // likewise
  std::vector<std::string> classes = {};  // their names, where they have any
  int64_t top = 1;                        // so many of the likeliest classes

  int64_t samples() const { return scores.shape()[0]; }
};

// A record's name as lists have it, without the marks that messages have: of a file its path.
std::string RecordName(const std::string& name);
std::string QuotedField(const std::string& text);  // of CSV, in quotes where it must

// Of the first `count` samples. For people; a list of objects.
std::string ToTable(const Predictions& predictions, int64_t count);
nlohmann::json ToJson(const Predictions& predictions, int64_t count);
// Of all, RFC 4180, with a line of names at the head.
std::string ToCsv(const Predictions& predictions);

}  // namespace bindery::cli
