#include "tools/cli/predicted_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tools/cli/predictions.h"

namespace bindery::cli {
namespace {

float ValueOf(const PredictedNumbers& p, int64_t sample, size_t output) {
  return p.values.data<float>()[static_cast<size_t>(sample) * p.names.size() + output];
}

std::optional<double> LabelOf(const PredictedNumbers& p, int64_t sample, size_t output) {
  const size_t place = static_cast<size_t>(sample) * p.names.size() + output;
  return place < p.labels.size() ? std::optional(p.labels[place]) : std::nullopt;
}

std::string RecordOf(const PredictedNumbers& p, int64_t sample) {
  return p.records.empty() ? "" : RecordName(p.records[static_cast<size_t>(sample)]);
}

}  // namespace

std::string ToTable(const PredictedNumbers& p, int64_t count) {
  std::string table = "sample";
  for (const std::string& name : p.names) table += fmt::format("  {0:>12}  {1:>12}", name, "label");
  table += p.records.empty() ? "\n" : "  record\n";
  for (int64_t i = 0; i < std::min(count, p.samples()); ++i) {
    table += fmt::format("{:6}", i);
    for (size_t k = 0; k < p.names.size(); ++k) {
      const std::optional<double> label = LabelOf(p, i, k);
      table += fmt::format("  {:>{}.6g}  {:>12}", ValueOf(p, i, k), std::max<size_t>(p.names[k].size(), 12),
                           label ? fmt::format("{:.6g}", *label) : "-");
    }
    table += p.records.empty() ? "\n" : "  " + RecordOf(p, i) + "\n";
  }
  return table;
}

nlohmann::json ToJson(const PredictedNumbers& p, int64_t count) {
  nlohmann::json list = nlohmann::json::array();
  for (int64_t i = 0; i < std::min(count, p.samples()); ++i) {
    nlohmann::json object = {{"sample", i}, {"values", nlohmann::json::object()}, {"labels", nullptr}};
    for (size_t k = 0; k < p.names.size(); ++k) {
      object["values"][p.names[k]] = ValueOf(p, i, k);
      if (const std::optional<double> label = LabelOf(p, i, k)) object["labels"][p.names[k]] = *label;
    }
    if (const std::string record = RecordOf(p, i); !record.empty()) object["record"] = record;
    list.push_back(std::move(object));
  }
  return list;
}

std::string ToCsv(const PredictedNumbers& p) {
  std::string csv = "sample";
  for (const std::string& name : p.names) csv += "," + QuotedField(name);
  for (const std::string& name : p.names) csv += "," + QuotedField("label " + name);
  csv += ",record\n";
  for (int64_t i = 0; i < p.samples(); ++i) {
    csv += fmt::format("{}", i);
    for (size_t k = 0; k < p.names.size(); ++k) csv += fmt::format(",{:.9g}", ValueOf(p, i, k));
    for (size_t k = 0; k < p.names.size(); ++k) {
      const std::optional<double> label = LabelOf(p, i, k);
      csv += label ? fmt::format(",{:.9g}", *label) : ",";
    }
    csv += "," + QuotedField(RecordOf(p, i)) + "\n";
  }
  return csv;
}

}  // namespace bindery::cli
