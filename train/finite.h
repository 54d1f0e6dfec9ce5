// Which of the values of a model or of a run is not a number, or infinite: a run that ends so has diverged.
#pragma once

#include <string>

#include "base/host_tensor.h"
#include "train/checkpoint/checkpoint.h"

namespace bindery {

// The first element that is not finite: `"fc1_weight", element 17, is nan`. "" if all are.
std::string FirstNotFinite(const HostTensorMap& values);
// Throws NumericError, with the first one, unless parameters, auxiliary states and optimizer states all are.
void CheckFinite(const Checkpoint& checkpoint);

}  // namespace bindery
