#include "base/device.h"

#include <optional>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/split_text.h"

namespace bindery {
namespace {

struct KindName {
  DeviceKind kind;
  std::string_view name;
};
constexpr KindName kKinds[] = {{DeviceKind::kCpu, "cpu"}, {DeviceKind::kCuda, "cuda"}, {DeviceKind::kSim, "sim"}};

}  // namespace

std::string ToString(DeviceKind kind) {
  for (const KindName& entry : kKinds) {
    if (entry.kind == kind) return std::string(entry.name);
  }
  return fmt::format("invalid device kind {}", static_cast<int>(kind));
}

std::string ToString(Device device) { return fmt::format("{}:{}", ToString(device.kind), device.index); }

Device ParseDevice(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  for (const KindName& entry : kKinds) {
    if (entry.name != name) continue;
    if (colon == std::string_view::npos) return {entry.kind, 0};
    const std::optional<int> index = ParseNumber<int>(text.substr(colon + 1));
    if (index && text[colon + 1] != '-') return {entry.kind, *index};
  }
  Throw<DeviceError>("invalid device \"{}\": expected cpu, cuda or sim, or one of them with a number as in cpu:1",
                     text);
}

std::vector<Device> ParseDevices(std::string_view comma_list) {
  std::vector<Device> devices;
  for (const std::string_view device : SplitText(comma_list, ',')) devices.push_back(ParseDevice(device));
  return devices;
}

}  // namespace bindery
