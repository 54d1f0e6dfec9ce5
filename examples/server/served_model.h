// A model as a server sees it: what it takes and gives, sample by sample.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bindery/bindery.h"

namespace bindery::server {

struct ValueSpec {
  std::string name;
  Shape sample;  // without the batch axis, which is axis 0
  DType dtype = DType::kFloat32;
};

struct ServedModel {
  Model model;
  std::vector<ValueSpec> inputs, outputs;
  // Of a model of tables, which is asked about rows as they are in a file: which features are words, and become
  // columns; how they are scaled, and what then takes the place of what is missing, a NaN.
  std::vector<ColumnCategories> categories = {};
  ColumnScaling columns = {};
  std::optional<float> missing = {};

  bool IsOfTable() const { return columns.scale != ColumnScale::kNone || missing || !categories.empty(); }
  // What is to be asked for an input: float64 of a table, as it is rounded once it is scaled, and of words their
  // numbers among the categories.
  ValueSpec Asked(const ValueSpec& input) const;
  // Those of an element of what is asked; nullptr: it is a number.
  const ColumnCategories* CategoriesOf(int64_t element) const;
  int64_t SampleElements() const;  // of all inputs together
  std::vector<DataDesc> Describe(int64_t batch) const;
  // What was asked as the model takes it. Throws DataError for numbers that cannot be scaled.
  HostTensorMap Prepare(HostTensorMap asked) const;
};

// Any model file, by its name's ending; of a checkpoint (.ckpt), the model in it; of a folder, its newest checkpoint.
// `weights`: another such file, whose values take the place of the model's; "" for none. Throws what loading throws, and
// DataError for weights without a value that the model wants.
Model LoadWithWeights(const std::string& path, const std::string& weights);

// What has no value is an input, but for labels. The shape of its sample is the declared one, or that of
// `sample_shapes`, by name. Throws ModelError unless all inputs and outputs have the batch at axis 0, and samples of
// known shapes.
ServedModel Describe(Model model, const std::map<std::string, Shape>& sample_shapes);

}  // namespace bindery::server
