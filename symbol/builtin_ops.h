// The table of built-in operators: one function each, so that a missing definition is an error of the linker.
#pragma once

#include <span>

#include "symbol/op_def.h"

namespace bindery {

std::span<const OpDef& (*const)()> BuiltinOps();  // symbol/ops.cc

}  // namespace bindery
