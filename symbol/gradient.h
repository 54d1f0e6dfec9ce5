// The gradient of a symbol is a symbol: print it, save it, run it, differentiate it again.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "symbol/symbol.h"

namespace bindery {

struct GradientResult {
  // One per name in `wrt`; empty where the heads do not depend on it (its gradient is zero).
  std::vector<Symbol> gradients;
  // Names of variables `<output name>_grad` made for the gradients of heads that are not loss heads, per head; "" for
  // loss heads and for heads through which nothing flows to `wrt`. A head listed twice has two ("y_output_grad",
  // "y_output_grad1"), as has one whose name is taken.
  //
  // Nothing in the graph of gradients need tell such a variable's shape and element type (d(a + b)/da is the variable
  // itself): they are the head's, and who infers shapes over that graph gives them by name.
  std::vector<std::string> head_gradients;
};

// d(sum over heads of <head gradient, head>) / d(wrt), by reverse accumulation. Gradients that meet in one value are
// added by one AddN, those of its users in the order of the graph and those of heads last. Only what lies between `wrt`
// and the heads is visited. Nodes of the gradient inherit the annotations of the node they belong to (see Inherited).
//
// A loss (OpDef::is_loss) starts a gradient of its own where it is a head or where something flows back into it; what
// flows back is ignored.
// Throws Error for unknown names, and ModelError naming the operator on the path that has no gradient and why.
GradientResult Gradient(const Symbol& heads, std::span<const std::string> wrt);

// Replaces composite operators (OpDef::expand) by what they are made of, once.
Symbol ExpandComposites(const Symbol& symbol);

}  // namespace bindery
