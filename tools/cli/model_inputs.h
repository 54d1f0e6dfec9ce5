// What a model takes, as inspect and time describe it: also where it is no one input called "data".
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "executor/batch.h"
#include "symbol/infer.h"
#include "symbol/model.h"

namespace bindery::cli {

// The inputs of a model, those of its arguments that are neither labels nor have values. Empty where it has no values:
// then nothing tells.
std::vector<std::string> ListInputs(const Model& model);

// What --shape says, batch first, by the inputs' names; "": of the only one.
using GivenShapes = std::map<std::string, Shape>;
// "64,1,28,28", or "left=64,4;right=64,2".
void AddShape(CLI::App* app, GivenShapes* shapes);
// The shape of "data", without the batch; no axes, if it is not given.
Shape GivenSample(const GivenShapes& given);

// With the extents of a batch: as given, or as the model declares them, or was trained with them, with `batch_size`
// samples, or as many as those have that are given; and extents that are left open, -1. Throws UsageError where "data"
// alone has no shape, and for names of no inputs; ModelError for no inputs.
std::vector<DataDesc> DescribeInputs(const Model& model, const GivenShapes& given, int64_t batch_size);

ShapeMap ShapesOf(const std::vector<DataDesc>& inputs);

// Throws UsageError, with a list of them, unless all extents are known: for what computes.
void CheckShapesKnown(const std::vector<DataDesc>& inputs);

}  // namespace bindery::cli
