#include "executor/plan/signature.h"

namespace bindery {

Signature Signature::Of(const Symbol& symbol) {
  Signature signature{.auxiliary = symbol.ListAuxiliaryStates(), .heads = symbol.ListOutputs()};
  for (std::string& name : symbol.ListArguments()) signature.arguments.push_back({.name = std::move(name)});
  return signature;
}

std::vector<std::string> Signature::ArgumentNames() const {
  std::vector<std::string> names;
  for (const Argument& a : arguments) names.push_back(a.name);
  return names;
}

GivenTypes Signature::Given() const {
  GivenTypes given;
  for (const Argument& a : arguments) {
    if (a.shape) given.shapes[a.name] = *a.shape;
    if (a.dtype) given.dtypes[a.name] = *a.dtype;
    if (a.batch_axis) given.batch_axes[a.name] = *a.batch_axis;
  }
  return given;
}

}  // namespace bindery
