#include "tools/cli/json_lines.h"

#include <fmt/format.h>

#include <cstdio>
#include <new>

#include "base/error.h"
#include "tools/cli/arguments.h"

namespace bindery::cli {

nlohmann::json ToJson(const NamedValues& values) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, value] : values) object[name] = value;
  return object;
}

nlohmann::json ToJson(const EpochReport& report) {
  return {{"event", "epoch"},
          {"epoch", report.epoch + 1},
          {"step", report.step},
          {"seconds", report.seconds},
          {"samples_per_second", report.samples_per_second},
          {"learning_rate", report.learning_rate},
          {"train", ToJson(report.train)},
          {"test", ToJson(report.validation)}};
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

nlohmann::json ErrorToJson(const std::exception& error) {
  const auto is = [&](auto* type) { return dynamic_cast<decltype(type)>(&error) != nullptr; };
  const char* const kind = is(static_cast<const UsageError*>(nullptr))        ? "usage"
                           : is(static_cast<const ModelError*>(nullptr))      ? "model"
                           : is(static_cast<const ShapeError*>(nullptr))      ? "model"
                           : is(static_cast<const DataError*>(nullptr))       ? "data"
                           : is(static_cast<const CheckpointError*>(nullptr)) ? "checkpoint"
                           : is(static_cast<const DeviceError*>(nullptr))     ? "device"
                           : is(static_cast<const std::bad_alloc*>(nullptr))  ? "device"
                           : is(static_cast<const NumericError*>(nullptr))    ? "numeric"
                                                                              : "failed";
  return {{"event", "error"}, {"kind", kind}, {"message", error.what()}};
}

void PrintLine(const nlohmann::json& line) {
  fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  std::fflush(stdout);
}

}  // namespace bindery::cli
