#include "executor/tuning.h"

#include "base/error.h"

namespace bindery {

const char* ToString(Tuning tuning) {
  switch (tuning) {
    case Tuning::kMeasured: return "measured";
    case Tuning::kWinograd: return "winograd";
    default: return "off";
  }
}

Tuning ParseTuning(std::string_view text) {
  for (const Tuning tuning : {Tuning::kOff, Tuning::kMeasured, Tuning::kWinograd}) {
    if (text == ToString(tuning)) return tuning;
  }
  Throw("unknown way to choose kernels \"{}\"; choices: off, measured, winograd", text);
}

}  // namespace bindery
