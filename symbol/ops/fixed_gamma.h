// Which parameters of batch normalisation count as 1 whatever their values are.
#pragma once

#include <set>
#include <string>

#include "symbol/symbol.h"

namespace bindery {

// The variables that are used as the gamma of BatchNorm with fix_gamma and in no other way: nothing reads them, so they
// are not trained, nor do they decay.
std::set<std::string> ListFixedGammas(const Symbol& symbol);

}  // namespace bindery
