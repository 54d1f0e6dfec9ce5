// What a model takes, as inspect and time describe it: also where it is no one input called "data".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "executor/batch.h"
#include "symbol/infer.h"
#include "symbol/model.h"

namespace bindery::cli {

// The inputs of a model, those of its arguments that are neither labels nor have values. Empty where it has no values:
// then nothing tells.
std::vector<std::string> ListInputs(const Model& model);

// With the extents of a batch: "data" by `shape`, or as the model says, with `batch_size` samples. A model without
// "data" has its inputs as it declares them, or was trained with them, and extents that are left open, -1; `shape` is
// of its only one. Throws UsageError where "data" has no shape, or several may be meant by `shape`; ModelError for no
// inputs.
std::vector<DataDesc> DescribeInputs(const Model& model, std::span<const int64_t> shape, int64_t batch_size);

ShapeMap ShapesOf(const std::vector<DataDesc>& inputs);

// Throws UsageError, with a list of them, unless all extents are known: for what computes.
void CheckShapesKnown(const std::vector<DataDesc>& inputs);

}  // namespace bindery::cli
