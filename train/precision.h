// Precision of training as text, as it stands on a command line and in a checkpoint:
//
//   float32                                          everything as the graph says
//   bfloat16, float16                                mixed precision (symbol/passes/mixed_precision.h)
//   bfloat16(Pooling=float32, Normalize=low, Softmax=follow)     the same with operators in other lists
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/device.h"
#include "executor/batch.h"
#include "symbol/passes/mixed_precision.h"

namespace bindery {

// No value for "float32" and "". Throws Error, with the nearest name for operators that do not exist, and for losses in
// the low type.
std::optional<MixedPrecisionOptions> ParsePrecision(std::string_view text);

// The loss scale (ParseLossScaling) that goes with a precision: as given, or "dynamic" for float16 if none is.
std::string LossScaleFor(std::string_view precision, const std::string& given);

// What is bound in the symbol's place for such data and labels. Throws what MixedPrecision throws.
Symbol InPrecision(const Symbol& symbol, std::string_view precision, const std::vector<DataDesc>& data,
                   const std::vector<DataDesc>& labels = {});
// Says so in the log if one of the devices has no units for the low type (executor/units.h).
void LogWithoutUnits(std::string_view precision, const std::vector<Device>& devices);

}  // namespace bindery
