// The gradient of a symbol is a symbol: print it, save it, run it, differentiate it again.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "symbol/infer.h"
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
//
// Many rules have to know types of forward values: an operand that was stretched gets a sum, a Reshape its shape back.
// These follow from what is given here and what variables declare. Batched axes (of a layout's N, or given as in
// InferTypes) may have any extent, also an unknown one: the gradient is then one for every batch, and a graph with it
// in can be saved, and bound on any number of devices. A shape given without a batch axis is taken as it is.
//
// Throws Error for unknown names, and ModelError naming the operator on the path that has no gradient and why, or
// what would have to be known.
struct GivenTypes {
  ShapeMap shapes = {};
  DTypeMap dtypes = {};
  std::map<std::string, int> batch_axes = {};
};
GradientResult Gradient(const Symbol& heads, std::span<const std::string> wrt, const GivenTypes& given = {});
// With all types known, in the order of Graph::Of(heads): a gradient for these shapes alone, of fewer nodes.
GradientResult Gradient(const Symbol& heads, std::span<const std::string> wrt, const NodeTypes& types);

// What training makes of auxiliary states (OpDef::updates): the last value of each, in the order of the graph. `types`
// are those of Graph::Of(heads).
struct NextState {
  std::string name;
  Symbol value;
};
std::vector<NextState> NextStates(const Symbol& heads, const NodeTypes& types);

// Replaces composite operators (OpDef::expand) by what they are made of, once.
Symbol ExpandComposites(const Symbol& symbol);

}  // namespace bindery
