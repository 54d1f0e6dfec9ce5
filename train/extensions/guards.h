// Extensions that watch over a run, and act on what they see.
#pragma once

#include <string>

#include "train/loop/extension.h"

namespace bindery {

// Throws NumericError if something that is reported, or a parameter, a running statistic or an optimizer's state, is
// not finite. (That gradients and, with metrics, outputs are is looked at in every step.) Waits for all that is in
// flight.
Extension FailOnBadNumbers(Trigger trigger = EveryEpochs());

// Shows a model's schedule the mean of a value since the last time: how `plateau` learns of it. Which is better says
// LargerIsBetter. A run that goes on by another value than before looks for the best anew. (Trainer::Fit shows it the
// metric that it watches by itself.)
Extension JudgeBy(const std::string& value, const std::string& model = "main", Trigger trigger = EveryEpochs(),
                  Better better = Better::kAuto);

}  // namespace bindery
