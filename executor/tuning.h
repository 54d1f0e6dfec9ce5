// How a kernel is chosen where several could do the work: convolutions on CPUs (docs/plan_layouts.md).
#pragma once

#include <cstdint>
#include <string_view>

namespace bindery {

enum class Tuning : uint8_t {
  kOff,       // by fixed rules
  kMeasured,  // by what each costs on this machine, measured when the program is made, or earlier (files of the user's)
  kWinograd,  // so, and Winograd's are among them: larger errors, and what is not finite spreads over tiles
};
const char* ToString(Tuning tuning);        // "off", "measured", "winograd"
Tuning ParseTuning(std::string_view text);  // throws Error, naming what there is

}  // namespace bindery
