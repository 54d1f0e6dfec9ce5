// What heads are, for those who bind them, train by them and measure them.
#pragma once

#include <string>

#include "symbol/graph.h"
#include "symbol/infer.h"

namespace bindery {

// How a head without batch axis is merged over devices: as it is annotated ("merge": see symbol/symbol.h), or as what it
// hands on is (MakeLoss, BlockGrad, casts), times a number, or added up. Empty: nobody says.
std::string MergeRuleOf(const Entry& head);

}  // namespace bindery
