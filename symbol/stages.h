// Stages: a graph cut where it goes from one placement to another, into symbols that can be bound one by one, each on
// devices of its own, and run one behind the other.
//
// A node's placement is its annotation `ctx_group`, or, without one, that of its first input that has one, or else that
// of a node that reads it; else "", whoever binds it chooses. A stage is of one placement, and reads what earlier
// stages compute: a placement has several where the graph goes back and forth. Each parameter is in one stage, where
// its placement first reads it; what other stages read of it crosses to them like any other value. Data, labels and
// states are not in a stage: each stage that reads them is given them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "symbol/graph.h"
#include "symbol/symbol.h"

namespace bindery {

inline constexpr const char* kPlacement = "ctx_group";

// Those that annotations name, each once, in the order of the graph.
std::vector<std::string> ListPlacements(const Symbol& symbol);
// A copy without them, to be bound on one device.
Symbol WithoutPlacements(const Symbol& symbol);

class Stages {
 public:
  // A value that one stage computes and a later one reads, under `name`, as a variable of its own.
  struct Crossing {
    std::string name;
    Entry value;  // of the whole graph
    int from = 0, to = 0;
  };
  struct Stage {
    std::string placement;
    std::vector<int> heads = {};              // of the whole symbol, by position
    std::vector<int> sends = {}, reads = {};  // crossings
  };

  // `data`: variables that batches bring, but for `labels`; states of a recurrent network are such, too. Throws
  // ModelError where a placement would have to compute something before it has data, and for an auxiliary state that
  // two stages use.
  Stages(const Symbol& symbol, std::set<std::string> data, std::set<std::string> labels);

  const Graph& graph() const { return graph_; }
  const std::vector<Stage>& stages() const { return stages_; }  // each after those that it reads from
  const std::vector<Crossing>& crossings() const { return crossings_; }

  // Its outputs are its heads, then, in the order of `sends`, a copy of each value that it sends: one for each stage
  // that reads it, so that their gradients are added up here. No gradient comes back where `blocked`, by crossing, says
  // so. Nodes are annotated as before, but for their placements.
  Symbol SymbolOf(int stage, const std::vector<bool>& blocked) const;

 private:
  bool IsFed(const Node& node) const {
    return node.is_variable() && (data_.contains(node.name()) || labels_.contains(node.name()));
  }
  void Place();
  void Level();
  void Number();
  void Cross();

  Graph graph_;
  std::set<std::string> data_, labels_;
  std::vector<std::string> names_;          // of placements
  std::vector<int> placements_, levels_;    // by node
  std::vector<int> stage_of_;               // by node; -1: fed
  std::vector<std::vector<int>> nodes_of_;  // by stage
  std::vector<std::vector<int>> readers_;   // by node
  std::vector<Stage> stages_;
  std::vector<Crossing> crossings_;
  std::map<std::tuple<const Node*, int, int>, int> crossing_of_;  // by its value and the stage that reads it
};

}  // namespace bindery
