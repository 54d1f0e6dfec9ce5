// Tables and drawings of a symbol, for people.
#pragma once

#include <set>
#include <string>

#include "symbol/infer.h"
#include "symbol/symbol.h"

namespace bindery {

// Variables that come with each batch, by name: those named in `shapes`, labels (ListLabels), and what an operator
// takes as its first input and is declared for batches of any size. The others are parameters.
std::set<std::string> ListGiven(const Symbol& symbol, const ShapeMap& shapes);

// A table: layer (operator), output shape, parameters, previous layers; totals below. Shapes as far as they are known,
// with element types that are not float32.
std::string Summary(const Symbol& symbol, const ShapeMap& shapes);
// Totals alone.
struct ParameterCount {
  int64_t arguments = 0, auxiliary = 0;
};
ParameterCount CountParameters(const Symbol& symbol, const ShapeMap& shapes);

struct DotOptions {
  bool hide_weights = true;
};
std::string ToDot(const Symbol& symbol, const ShapeMap& shapes = {}, const DotOptions& options = {});  // Graphviz

}  // namespace bindery
