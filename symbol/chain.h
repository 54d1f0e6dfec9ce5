// Chain: networks with symbols of their own, one behind the other, as one symbol: what one gives is the data of the
// next. Trained, saved and loaded as any other; and, where the parts have placements, each on devices of its own.
//
//   const Symbol net = Chain({{.name = "features", .symbol = features, .placement = "low"},
//                             {.name = "classifier", .symbol = classifier, .take_labels = true, .placement = "high"}});
//   Trainer trainer(net, {.placements = {{"low", {Cpu(0)}}, {"high", {Cpu(1)}}}});
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "symbol/symbol.h"

namespace bindery {

struct ChainPart {
  std::string name = {};  // in messages
  Symbol symbol = {};
  // Its inputs that the outputs of the part before become, in their order, each one. Of the first part: they stay.
  std::vector<std::string> data = {"data"};
  // In place of that, by name: which output becomes which input. Outputs that nobody takes are left out.
  std::map<std::string, std::string> wiring = {};  // input -> output of the part before
  bool take_labels = false;                        // it has labels. Parts that have one of the same name share it
  std::string placement = {};  // of its nodes that have none (symbol/stages.h); empty: they stay without
};

// Its outputs are those of the last part; what other parts have as losses trains them, as a loss within a graph does.
// Throws Error, which names the part: for inputs that it has not, outputs that are not as many or not there, labels
// that it is not said to take, and parameters or states that two parts call the same.
Symbol Chain(std::span<const ChainPart> parts);
inline Symbol Chain(const std::vector<ChainPart>& parts) { return Chain(std::span<const ChainPart>(parts)); }

}  // namespace bindery
