// What a run is made with and another may be that goes on from its checkpoint: kept beside the rest (Checkpoint::info).
// Private to train/.
#pragma once

#include <map>
#include <string>

#include "executor/group/options.h"

namespace bindery {

using RunInfo = std::map<std::string, std::string>;

inline constexpr const char* kReproducibleBlock = "reproducible block";  // samples of one; not there: none
inline constexpr const char* kTuningChoices = "tuning choices";          // TuningChoices of executor/tuning.h

std::string ValueOf(const RunInfo& info, const char* what);  // "": there is none

// Devices, workload, kernels, fixed parameters, types of parameters, placements.
RunInfo RunInfoOf(const GroupOptions& group);

// Logs a warning for each difference; of what the checkpoint does not know, none. `whose`: "the checkpoint".
void WarnOfDifferences(const RunInfo& theirs, const RunInfo& ours, const std::string& whose);

}  // namespace bindery
