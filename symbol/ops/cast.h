// What passes ask of a Cast, whose function is in shape_ops.h.
#pragma once

#include <optional>

#include "symbol/op_def.h"

namespace bindery {

std::optional<Entry> CastFrom(const Node& node);  // what a Cast takes; nothing of other nodes

}  // namespace bindery
