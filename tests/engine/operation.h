// Operations of engines as tests write them: what runs takes no context.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace bindery {

inline Operation Op(std::string name, Device device, std::vector<VarPtr> reads, std::vector<VarPtr> writes,
                    std::vector<VarPtr> updates, std::function<void()> run) {
  return {std::move(name),    device,
          std::move(reads),   std::move(writes),
          std::move(updates), [run = std::move(run)](const OpContext&) { run(); }};
}

}  // namespace bindery
