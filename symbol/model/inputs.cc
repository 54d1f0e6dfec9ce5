// Models cut to what is wanted of them.
#include "symbol/model.h"

namespace bindery {

Model Cut(const Model& model, const Symbol& symbol) {
  Model cut{.symbol = symbol, .metadata = model.metadata};
  for (const std::string& name : symbol.ListInputs()) {
    if (const auto value = model.params.find(name); value != model.params.end()) cut.params.insert(*value);
    if (const auto value = model.aux.find(name); value != model.aux.end()) cut.aux.insert(*value);
  }
  return cut;
}

}  // namespace bindery
