// How a kernel is chosen where several could do the work: convolutions on CPUs (docs/plan_layouts.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bindery {

enum class Tuning : uint8_t {
  kOff,       // by fixed rules
  kMeasured,  // by what each costs on this machine, measured when the program is made, or earlier (files of the user's)
  kWinograd,  // so, and Winograd's are among them: larger errors, and what is not finite spreads over tiles
};
const char* ToString(Tuning tuning);        // "off", "measured", "winograd"
Tuning ParseTuning(std::string_view text);  // throws Error, naming what there is

// What this process has chosen by cost so far, in lines, for the record of a run that is to go on with the same bits
// where the user's files are gone; "": nothing. Thread safe, as is the next.
std::string TuningChoices();
// What a record has counts from now on, for what this process has not chosen itself. One of another machine, or of
// kernels that have changed since, or damaged, says nothing.
void AdoptTuningChoices(const std::string& choices);

}  // namespace bindery
