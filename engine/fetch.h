// What a device reads of the memory of others.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/step.h"
#include "engine/tensor.h"

namespace bindery {

// The tensors as `to` reads them: those in memory that it shares are themselves; of the others it gets copies, one of
// each tensor, made by the parts that are appended. An accelerator fetches its own; into the host's memory the devices
// that have them put theirs, through staging memory; between two kinds of accelerators both happens. Copies of one call
// that one device makes fail together.
std::vector<Tensor> AppendFetch(const std::shared_ptr<Engine>& engine, const std::string& name,
                                const std::vector<Tensor>& sources, Device to, StepParts* parts);

}  // namespace bindery
