// What GPUs read of each other's memory, brought to all of them at once by NCCL, where it is found (clique.h).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/step.h"
#include "engine/tensor.h"

namespace bindery {

// `read`: tensors by the device that is to read them. Those that a GPU reads of another GPU are replaced by copies in
// its memory, all of which one part makes that is appended: they fail together. Nothing is done where no two GPUs are
// among them, or NCCL is not to be had for these: then they are fetched (engine/fetch.h).
void AppendExchange(const std::shared_ptr<Engine>& engine, const std::string& name,
                    std::map<Device, std::vector<Tensor>>* read, StepParts* parts);

}  // namespace bindery
