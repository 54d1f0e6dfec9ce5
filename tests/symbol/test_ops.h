// Small operators of the tests' own: what the built-in ones need not have.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "symbol/op_def.h"
#include "symbol/symbol.h"
#include "tests/message_of.h"

namespace bindery {

// data -> first, second, both of data's shape; hidden third. Gradient of data: the sum of what flows back.
const OpDef& ForkOp();
// data, scale, auxiliary state -> output; scale and state have one element. No gradient rule.
const OpDef& StatefulOp();
// data -> output. A loss head whose gradient is its output; the rule refuses to be given a head gradient.
const OpDef& TestLossOp();

std::vector<Symbol> Outputs(const OpDef& op, std::vector<Symbol> inputs, const std::string& name);

// Runs a graph of element-wise operators on scalars; throws Error for an operator that it does not know.
std::vector<double> RunOnScalars(const Symbol& symbol, const std::map<std::string, double>& arguments);

// How many nodes run this operator?
int Count(const Symbol& symbol, const OpDef& op);

}  // namespace bindery
