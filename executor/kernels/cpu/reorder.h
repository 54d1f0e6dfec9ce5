// The fast reorder between formats.
#pragma once

#include <optional>

#include "executor/kernel.h"

namespace bindery {

// nullopt where there is no fast way; the reference reorder takes it.
std::optional<Kernel> MakeFastReorder(DType dtype, const Shape& shape, const Format& from, const Format& to,
                                      int threads);

}  // namespace bindery
