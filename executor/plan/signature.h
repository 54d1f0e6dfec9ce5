// Signature: what a symbol shows to whoever binds it, by position: its arguments in the order of ListArguments, its
// auxiliary states, its heads. A binding says once what each argument is for and what is known of it. The compiler
// finds out the rest (Plan::arguments) at the same positions, and nothing behind it looks anything up by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "executor/format.h"
#include "symbol/gradient.h"
#include "symbol/graph.h"
#include "symbol/symbol.h"

namespace bindery {

enum class Role : uint8_t { kParameter, kData, kLabel, kState, kHeadGradient };

enum class GradReq : uint8_t { kNull, kWrite, kAdd };

struct Argument {
  std::string name = {};
  Role role = Role::kParameter;
  int place = -1;  // among the data, the labels or the states of a batch; -1: in none, zero
  // What is known beforehand; the rest is inferred.
  std::optional<Shape> shape = {};
  std::optional<DType> dtype = {};
  std::optional<int> batch_axis = {};  // -1: not batched
  GradReq request = GradReq::kNull;    // ignored in prediction
  // A parameter that nothing changes: normalisation layers all of whose own are fixed use and keep their running
  // statistics.
  bool is_fixed = false;
  // What is made of it alone may be kept (Plan::derived): whatever changes it is an operation of the engine, and most
  // runs find it as it was.
  bool is_kept = false;
  bool by_rows = false;               // a parameter's gradient may be kept by rows, where it is known so (AsRows)
  std::optional<Format> format = {};  // that a parameter is stored in, if it is decided already
  bool operator==(const Argument&) const = default;
};

struct Signature {
  std::vector<Argument> arguments = {};
  std::vector<std::string> auxiliary = {}, heads = {};

  static Signature Of(const Symbol& symbol);  // all parameters, nothing known of them
  std::vector<std::string> ArgumentNames() const;
  GivenTypes Given() const;  // what is known, by name, for inference
  bool operator==(const Signature&) const = default;
};

// By node: does a gradient flow to it, on to an argument whose gradient is asked for?
std::vector<bool> TrainedNodes(const Graph& graph, const Signature& signature);

}  // namespace bindery
