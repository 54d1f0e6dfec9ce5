// A case of an operator with its gradients, ready to be run in any dtype: what all that is checked of cases builds on.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "symbol/infer.h"
#include "symbol/symbol.h"
#include "tests/executor/check_operator.h"
#include "tests/executor/graph_runner.h"

namespace bindery {

class PreparedCase {
 public:
  explicit PreparedCase(const OperatorCase& c);

  struct Types {
    DTypeMap of;  // variables and head gradients
    std::vector<DType> outputs;
  };
  Types TypesFor(DType dtype) const;

  // The gradients, and the symbol with those that are not zero.
  struct Graphs {
    std::vector<std::string> heads;
    std::vector<Symbol> gradients;
    Symbol everything;
  };
  // For values of these shapes in a dtype; for every batch if the case has one.
  Graphs GraphsFor(DType dtype, const HostTensorMap& values) const;

  // The case's, of variables whose values have so many axes.
  std::map<std::string, int> BatchAxesOf(const HostTensorMap& values) const;

  RunOptions Options() const { return {.mode = case_.mode, .step = case_.step, .batch_axes = case_.batch_axes}; }
  // In double, by the reference kernels.
  RunResult Compute(const Symbol& symbol, const HostTensorMap& values) const;

  // The values that a symbol needs, cast.
  static HostTensorMap CastTo(const Types& types, const HostTensorMap& values, const Symbol& symbol);
  // Has any of the values formats other than plain?
  static bool HasLayouts(const HostTensorMap& values);

  // Of an output of `everything_`.
  std::string NameOf(size_t output) const;

  const Symbol& everything() const { return everything_; }

 protected:
  const OperatorCase& case_;
  Symbol symbol_;                         // composites expanded
  std::vector<std::string> names_;        // of its variables
  std::vector<std::string> wrt_, heads_;  // heads_: names of head gradients, or ""
  std::vector<Symbol> gradients_;         // may be empty: zero
  Symbol everything_;                     // in float64: outputs, then gradients that are not zero
  HostTensorMap values_;                  // float64; head gradients too

 private:
  void ChooseGradients();
};

}  // namespace bindery
