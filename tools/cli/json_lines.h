// The lines of JSON that `bindery train --json` writes, one for each event; docs/train_events.schema.json describes
// them. Numbers that are not finite are null.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/cli/exit_codes.h"
#include "train/trainer.h"

namespace bindery::cli {

inline constexpr int kEventsSchema = 1;  // of all lines; another number when what is there changes its meaning

nlohmann::json ToJson(const NamedValues& values);
// What a training was judged by, as "test" or "validation"; there is a "test" in any case, empty if it was not that.
void AddJudged(const NamedValues& values, const std::string& judged_on, nlohmann::json* line);
nlohmann::json ToJson(const EpochReport& report, const std::string& judged_on);
nlohmann::json StepToJson(const BatchReport& report);
// "usage", "model", "data", "checkpoint", "device", "numeric", "failed": as the exit statuses.
nlohmann::json ErrorToJson(ExitCode code, const std::string& message);

// A line on standard output, at once. Text that is no UTF-8 has replacements.
void PrintLine(const nlohmann::json& line);

}  // namespace bindery::cli
