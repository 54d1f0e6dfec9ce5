// Averages of weights over the steps of a training, kept beside the optimizer's state. As text:
//
//   ema(decay=0.999)        average = decay average + (1 - decay) w, from the first update's w on
//   swa(start, every=1)     the mean of the w after updates start, start + every, ...; before, w itself
//
// Functions of the number of the update: a resumed run needs the average alone. As PyTorch's AveragedModel.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kernels/update.h"

namespace bindery {

struct Averaging {
  std::string text;              // ParseAveraging(text) is the same
  UpdateKernel kernel;           // of one state, the average; leaves the weight as it is
  std::vector<double> settings;  // its own
};
std::optional<Averaging> ParseAveraging(std::string_view text);  // "": none. Throws Error

}  // namespace bindery
