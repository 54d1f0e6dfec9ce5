// Which operators there are for what: the table of contents of docs/operators.md, and its appendix.
#pragma once

#include <string>
#include <vector>

#include "symbol/op_def.h"

namespace bindery::cli {

// A gradient, what fusion makes, an operator that takes numbers from a tensor, or a part of others: no program's word.
bool IsMadeByTheLibrary(const OpDef& op);

// A table of these operators and of functions made of several, with PyTorch's names. Those that no row names come last.
std::string OperatorsByPurpose(const std::vector<const OpDef*>& ops);

}  // namespace bindery::cli
