// Lowering: from a symbol to the graph that will be compiled: composites expanded, gradients added, passes run,
// operators fused, every type known.
#pragma once

#include <string>
#include <vector>

#include "executor/program.h"
#include "symbol/graph.h"
#include "symbol/infer.h"

namespace bindery {

struct LoweredGraph {
  Graph graph;                        // outputs: heads, what forward computes besides, the non-empty gradients
  NodeTypes types;                    // per node of `graph`
  std::optional<int64_t> batch = {};  // its extent
  int num_heads = 0;
  int forward_nodes = 0;  // nodes [0, forward_nodes) are what the heads and the updates need

  // Of the symbol as it was given, in listing order.
  std::vector<std::string> arguments = {}, auxiliary = {}, head_names = {};
  std::vector<ValueType> argument_types = {}, auxiliary_types = {};
  std::vector<std::string> head_gradients = {};  // per head, "" where none is needed
  std::vector<ValueType> head_types = {};
  struct Gradient {
    std::string name;  // of the argument
    GradReq req;
    int output = -1;  // index in graph.outputs; -1: zero
  };
  std::vector<Gradient> gradients = {};  // in the order of arguments
  struct Update {
    std::string state;  // auxiliary
    int output = -1;    // index in graph.outputs of its next value
  };
  std::vector<Update> updates = {};
};

LoweredGraph Lower(const Symbol& symbol, const CompileOptions& options);

}  // namespace bindery
