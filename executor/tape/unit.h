// Unit: one imperative call, compiled: the symbol that it made, of variables in0, in1, ..., and the program of it for
// some shapes, element types and a kind of device. Immutable; shared by all calls that make the same.
// Private to executor/tape.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/tape/placed_program.h"
#include "symbol/symbol.h"

namespace bindery::tape {

// What decides a call's program, besides the symbol.
struct UnitOptions {
  std::vector<ValueType> inputs = {};  // types of the arrays
  // Per input: might its gradient be wanted? If any is, values of the symbol that gradients need are results, too.
  std::vector<bool> wanted = {};
  Mode mode = Mode::kPredict;
  DeviceKind device = DeviceKind::kCpu;
  int threads = 1;
};

struct Unit {
  using Value = std::pair<std::string, int>;  // a node of the symbol by its name, and which of its outputs

  uint64_t id = 0;        // no other unit of this process has it
  std::string name = {};  // the operator, for messages: "Convolution"
  Symbol symbol = {};     // nodes have names that differ
  Mode mode = Mode::kPredict;
  std::vector<std::string> inputs = {};  // names of the variables
  std::vector<bool> is_auxiliary = {};   // per input: is it a state of an operator?
  std::vector<int> arguments = {};       // per argument of the program: which input; inputs that are not read are none
  std::vector<int> auxiliary = {};       // per state of the program: which input
  PlacedProgram program = {};
  int num_outputs = 0;              // results that are outputs of the symbol; then saved ones
  std::vector<Value> results = {};  // per result of the program: what it is
  bool is_random = false;
};

// Checks that the symbol has no other variables than the inputs; throws Error, naming the operator. Nodes get names by
// their operators and numbers ("convolution0"), and attributes adapted to one device.
Symbol Canonical(const Symbol& symbol, const std::vector<Symbol>& inputs, Mode mode);
// Equal keys: the same unit. `symbol`: canonical.
std::string KeyOf(const Symbol& symbol, const UnitOptions& options);
// Throws Error, ShapeError, ModelError.
std::shared_ptr<const Unit> MakeUnit(const Symbol& symbol, const std::vector<Symbol>& inputs,
                                     const UnitOptions& options);
// What the calls of a symbol are named after: its last operator.
std::string NameOf(const Symbol& symbol);

// A program of `symbol` for arguments of these types, by name.
PlacedProgram CompilePlaced(const Symbol& symbol, const GivenTypes& types, Mode mode, DeviceKind device, int threads,
                            const std::string& observe = {});

}  // namespace bindery::tape
