// Labelled grey images, of IDX files or drawn: the data that are neither text nor of train/data/open.h.
#pragma once

#include <string>

#include "symbol/model.h"
#include "tools/cli/data.h"
#include "train/data/image_set.h"

namespace bindery::cli {

// A model by name for such samples, with as many classes, or numbers, as the data have; where its weights do not fit
// that, but its own number, with its own.
Model LoadForData(const ModelOptions& model, const Shape& sample, int64_t answers);
// As MakeTrainingData has it.
TrainingData MakeImageData(const DataOptions& options, const ModelOptions& model, uint64_t seed);
// What trained models are tested with, in the form that `trained` takes, which errors call `name`.
ImageSet ImagesToTest(const DataOptions& options, const Model& trained, const std::string& name);

}  // namespace bindery::cli
