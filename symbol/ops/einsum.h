// Einstein's sums, as a function of symbols.
#pragma once

#include <string>
#include <vector>

#include "symbol/symbol.h"

namespace bindery {

// Einsum("bij,bjk->bik", {a, b}): letters name axes; one that the output does not have is summed over. Without "->" the
// output has the letters that are there once, in alphabetical order. "..." are axes without names, which stretch and
// come first in an output that is not told; the number of axes of each operand must then be given. A letter twice in
// one operand is its diagonal. Operands are multiplied from the left to the right, as products of matrices where a
// letter of both is summed over. Throws ModelError.
Symbol Einsum(const std::string& equation, const std::vector<Symbol>& operands, const std::vector<int>& ranks = {},
              const std::string& name = {});

}  // namespace bindery
