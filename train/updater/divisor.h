// Who divides gradients by the samples of a step: the loss heads, or the update.
#pragma once

#include <optional>

#include "executor/executor_group.h"
#include "symbol/symbol.h"
#include "train/optimizers/optimizer.h"

namespace bindery {

// Is this so of the heads that something is trained by? No value if they disagree.
std::optional<bool> OfHeads(const Symbol& symbol, bool (*is)(const NodePtr& head));

// Does the update? An explicit rescale of the optimizer wins over that. Throws ModelError, unless it has one, where
// heads disagree, and where one is a Mean over samples, which the update would divide once more.
bool DividesBySamples(ExecutorGroup* group, const Optimizer& optimizer);

}  // namespace bindery
