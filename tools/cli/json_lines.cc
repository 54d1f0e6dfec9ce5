#include "tools/cli/json_lines.h"

#include <fmt/format.h>

#include <cstdio>

namespace bindery::cli {

nlohmann::json ToJson(const NamedValues& values) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, value] : values) object[name] = value;
  return object;
}

void AddJudged(const NamedValues& values, const std::string& judged_on, nlohmann::json* line) {
  (*line)["test"] = nlohmann::json::object();
  (*line)[judged_on] = ToJson(values);
}

nlohmann::json ToJson(const EpochReport& report, const std::string& judged_on) {
  nlohmann::json line = {{"event", "epoch"},
                         {"epoch", report.epoch + 1},
                         {"step", report.step},
                         {"seconds", report.seconds},
                         {"samples_per_second", report.samples_per_second},
                         {"learning_rate", report.learning_rate},
                         {"train", ToJson(report.train)},
                         {"best", report.best}};
  AddJudged(report.validation, judged_on, &line);
  return line;
}

nlohmann::json StepToJson(const BatchReport& report) {
  return {{"event", "step"},
          {"epoch", report.epoch + 1},
          {"batch", report.batch},
          {"batches", report.batches},
          {"step", report.step},
          {"samples", report.samples},
          {"seconds", report.seconds},
          {"learning_rate", report.learning_rate},
          {"train", ToJson(report.metric->Get())}};
}

nlohmann::json ErrorToJson(ExitCode code, const std::string& message) {
  const auto kind = [&] {
    switch (code) {
      case kUsage: return "usage";
      case kModel: return "model";
      case kData: return "data";
      case kCheckpoint: return "checkpoint";
      case kDevice: return "device";
      case kNumeric: return "numeric";
      default: return "failed";
    }
  }();
  return {{"event", "error"}, {"kind", kind}, {"message", message}};
}

void PrintLine(const nlohmann::json& line) {
  fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  std::fflush(stdout);
}

}  // namespace bindery::cli
