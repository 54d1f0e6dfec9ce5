#include "tools/cli/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

namespace bindery::cli {
namespace {

// One sample's.
struct Row {
  std::vector<int64_t> best = {};  // classes, the likeliest first
  const float* scores = nullptr;
};

Row RowOf(const Predictions& p, int64_t sample) {
  const int64_t classes = p.scores.shape().CountFrom(1);
  Row row{.best = std::vector<int64_t>(static_cast<size_t>(classes)),
          .scores = p.scores.data<float>().data() + sample * classes};
  std::iota(row.best.begin(), row.best.end(), int64_t{0});
  const int64_t count = std::min(p.top, classes);
  std::partial_sort(row.best.begin(), row.best.begin() + count, row.best.end(), [&](int64_t a, int64_t b) {
    return row.scores[a] > row.scores[b] || (row.scores[a] == row.scores[b] && a < b);
  });
  row.best.resize(static_cast<size_t>(count));
  return row;
}

// Empty: it has none.
std::string ClassName(const Predictions& p, double number) {
  const bool known = number >= 0 && number < static_cast<double>(p.classes.size()) && std::floor(number) == number;
  return known ? p.classes[static_cast<size_t>(number)] : "";
}
std::string NameOrNumber(const Predictions& p, double number) {
  const std::string name = ClassName(p, number);
  return name.empty() ? fmt::format("{:.9g}", number) : name;
}

bool IsLabelled(const Predictions& p) { return !p.labels.empty(); }
double LabelOf(const Predictions& p, int64_t sample) { return p.labels[static_cast<size_t>(sample)]; }

std::string RecordOf(const Predictions& p, int64_t sample) {
  return p.records.empty() ? "" : RecordName(p.records[static_cast<size_t>(sample)]);
}

}  // namespace

std::string RecordName(const std::string& name) {
  const bool is_path =
      name.size() > 2 && name.front() == '"' && name.back() == '"' && name.find("\", ") == std::string::npos;
  return is_path ? name.substr(1, name.size() - 2) : name;
}

std::string QuotedField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string ToTable(const Predictions& p, int64_t count) {
  count = std::min(count, p.samples());
  const auto first = [&](int64_t i) { return NameOrNumber(p, static_cast<double>(RowOf(p, i).best[0])); };
  const auto label = [&](int64_t i) { return IsLabelled(p) ? NameOrNumber(p, LabelOf(p, i)) : "-"; };
  size_t of_class = std::string_view("class").size(), of_label = std::string_view("label").size();  // columns
  for (int64_t i = 0; i < count; ++i) {
    of_class = std::max(of_class, first(i).size());
    of_label = std::max(of_label, label(i).size());
  }
  std::string table = fmt::format("sample  {:>{}}  probability  {:>{}}{}{}\n", "class", of_class, "label", of_label,
                                  p.top > 1 ? "  next" : "", p.records.empty() ? "" : "  record");
  for (int64_t i = 0; i < count; ++i) {
    const Row row = RowOf(p, i);
    table += fmt::format("{:6}  {:>{}}  {:11.4f}  {:>{}}", i, first(i), of_class, row.scores[row.best[0]], label(i),
                         of_label);
    for (size_t k = 1; k < row.best.size(); ++k) {
      table += fmt::format("{}{} {:.4f}", k == 1 ? "  " : ", ", NameOrNumber(p, static_cast<double>(row.best[k])),
                           row.scores[row.best[k]]);
    }
    if (!p.records.empty()) table += "  " + RecordOf(p, i);
    table += "\n";
  }
  return table;
}

nlohmann::json ToJson(const Predictions& p, int64_t count) {
  nlohmann::json list = nlohmann::json::array();
  for (int64_t i = 0; i < std::min(count, p.samples()); ++i) {
    const Row row = RowOf(p, i);
    const auto answer = [&](int64_t number) {
      nlohmann::json object = {{"class", number}, {"probability", row.scores[number]}};
      const std::string name = ClassName(p, static_cast<double>(number));
      if (!name.empty()) object["name"] = name;
      return object;
    };
    nlohmann::json object = answer(row.best[0]);
    object["sample"] = i;
    object["label"] = nullptr;
    if (IsLabelled(p)) {
      const double label = LabelOf(p, i);
      if (std::floor(label) == label && std::abs(label) < 1e15) {
        object["label"] = static_cast<int64_t>(label);
      } else {
        object["label"] = label;
      }
      if (const std::string name = ClassName(p, label); !name.empty()) object["label_name"] = name;
    }
    if (const std::string record = RecordOf(p, i); !record.empty()) object["record"] = record;
    for (size_t k = 0; k < row.best.size() && p.top > 1; ++k) object["top"].push_back(answer(row.best[k]));
    list.push_back(std::move(object));
  }
  return list;
}

std::string ToCsv(const Predictions& p) {
  const int64_t columns = std::min(p.top, p.scores.shape().CountFrom(1));
  std::string csv = "sample,class,probability,label,name,label_name,record";
  for (int64_t k = 2; k <= columns; ++k) csv += fmt::format(",class_{0},probability_{0},name_{0}", k);
  csv += "\n";
  for (int64_t i = 0; i < p.samples(); ++i) {
    const Row row = RowOf(p, i);
    const auto name = [&](double number) { return QuotedField(ClassName(p, number)); };
    csv += fmt::format("{},{},{:.9g},", i, row.best[0], row.scores[row.best[0]]);
    if (IsLabelled(p)) csv += fmt::format("{:.9g}", LabelOf(p, i));
    csv += fmt::format(",{},{},{}", name(static_cast<double>(row.best[0])), IsLabelled(p) ? name(LabelOf(p, i)) : "",
                       QuotedField(RecordOf(p, i)));
    for (size_t k = 1; k < row.best.size(); ++k) {
      csv += fmt::format(",{},{:.9g},{}", row.best[k], row.scores[row.best[k]], name(static_cast<double>(row.best[k])));
    }
    csv += "\n";
  }
  return csv;
}

}  // namespace bindery::cli
