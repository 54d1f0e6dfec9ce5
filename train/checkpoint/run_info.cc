#include "train/checkpoint/run_info.h"

#include <fmt/format.h>

#include <vector>

#include "base/log.h"

namespace bindery {
namespace {

std::string Join(const std::vector<std::string>& parts) { return fmt::format("{}", fmt::join(parts, ",")); }

std::string DescribeDevices(const std::string& devices, const std::string& workload) {
  return workload.empty() ? devices : fmt::format("{} with workload {}", devices, workload);
}

// What a value that is not given means.
std::string Meaning(const std::string& what, const std::string& value) {
  return what == "precision" && value.empty() ? "float32" : value;
}

}  // namespace

RunInfo RunInfoOf(const GroupOptions& group) {
  std::vector<std::string> devices, workload, placements, dtypes;
  for (const Device& device : group.devices) devices.push_back(ToString(device));
  for (const double share : group.workload) workload.push_back(fmt::format("{}", share));
  for (const auto& [name, list] : group.placements) {
    placements.push_back(name + "=");
    for (const Device& device : list) placements.back() += (&device == list.data() ? "" : "+") + ToString(device);
  }
  for (const auto& [pattern, dtype] : group.param_dtypes) dtypes.push_back(fmt::format("{}={}", pattern, dtype));
  RunInfo info = {{"devices", Join(devices)},
                  {"workload", Join(workload)},
                  {"kernels", group.switches.policy == KernelPolicy::kFast ? "fast" : "reference"},
                  {"tuning", ToString(group.switches.tuning)},
                  {"fixed parameters", Join(group.fixed_params)},
                  {"parameter types", Join(dtypes)}};
  if (!placements.empty()) info["placements"] = Join(placements);
  return info;
}

std::string ValueOf(const RunInfo& info, const char* what) {
  const auto found = info.find(what);
  return found == info.end() ? std::string() : found->second;
}

void WarnOfDifferences(const RunInfo& theirs, const RunInfo& ours, const std::string& whose) {
  const auto warn = [](const std::string& message) { LogLine(LogLevel::kWarning, message); };
  const std::string before = DescribeDevices(ValueOf(theirs, "devices"), ValueOf(theirs, "workload"));
  const std::string now = DescribeDevices(ValueOf(ours, "devices"), ValueOf(ours, "workload"));
  if (theirs.contains("devices") && before != now) {
    const std::string block = ValueOf(ours, kReproducibleBlock);
    const bool same = !block.empty() && block == ValueOf(theirs, kReproducibleBlock);
    warn(fmt::format("{} was trained on {}, this run goes on on {}: results are equal {}", whose, before, now,
                     same ? "to the bit, on devices of one kind" : "up to rounding, not to the bit"));
  }
  for (const auto& [what, value] : ours) {
    const auto found = theirs.find(what);
    if (what == "devices" || what == "workload" || found == theirs.end()) continue;
    if (Meaning(what, found->second) == Meaning(what, value)) continue;
    warn(fmt::format("{} was trained with {} \"{}\", this run goes on with \"{}\"", whose, what, found->second, value));
  }
}

}  // namespace bindery
