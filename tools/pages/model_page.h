// A page about a model: its layers, and what the plan of each device does and needs.
#pragma once

#include <string>
#include <vector>

#include "executor/plan/plan.h"
#include "symbol/infer.h"
#include "symbol/symbol.h"

namespace bindery {

struct ModelPageOptions {
  std::string name;     // of the model
  std::string purpose;  // "training", "prediction"
  struct OfDevice {
    std::string device;
    int64_t samples = 0;
    const Plan* plan = nullptr;
    MemoryReport memory = {};  // what it shares with devices before it is theirs
  };
  std::vector<OfDevice> devices = {};
};

// `shapes`: of the inputs, as symbol/print/summary.h has them.
std::string ModelPage(const Symbol& symbol, const ShapeMap& shapes, const ModelPageOptions& options);

// The arena over the calls of a plan: each range of bytes a box, from the call that writes it first to the last that
// reads it, with the names of its values; above it, how many bytes are alive.
std::string MemorySvg(const Plan& plan);

// Of each call: how many bytes of the arena are alive, and "parameters", "forward" or "backward".
std::vector<int64_t> LiveBytes(const Plan& plan);
std::string PhaseOf(const Plan& plan, int call);

}  // namespace bindery
