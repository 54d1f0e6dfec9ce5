// Tables and drawings of a symbol, for people.
#pragma once

#include <string>

#include "symbol/infer.h"
#include "symbol/symbol.h"

namespace bindery {

// A table: layer (operator), output shape, parameters, previous layers; totals below. Shapes as far as they are known,
// with element types that are not float32.
// Variables named in `shapes` count as inputs, the others as parameters of their layer.
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
