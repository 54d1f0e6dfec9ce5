// Weights: named tensors without a graph, in files of other systems, by the name's ending:
//
//   .safetensors   all element types that it has and we have; metadata; any size
//   .npz           NumPy's archive, stored; bfloat16 as ml_dtypes saves it; below 4 GiB
//
//   const Weights weights = LoadWeights("resnet.safetensors");
//   const Model model = ModelOf(net, MapNames(weights, {"backbone\\.(.*)=\\1", "head\\..*="}), "resnet.safetensors");
//
// Sources: safetensors, "Format" in its README (huggingface.co/docs/safetensors); npz, train/data/tables/npy.h.
//
// A file from an untrusted source gives tensors or a DataError that names file and tensor; nothing is allocated that the
// file cannot fill.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/host_tensor.h"
#include "symbol/model.h"

namespace bindery {

struct Weights {
  HostTensorMap tensors = {};
  std::map<std::string, std::string> metadata = {};  // .safetensors has one; .npz has none
};

struct WeightLimits {
  int64_t tensor_bytes = int64_t{64} << 30;  // of all tensors together; of an .npz at most 4 GiB
  int64_t header_bytes = 100'000'000;        // of .safetensors, as its own reader has it
};

// Does the name end in one of the endings above?
bool IsWeightsFile(std::string_view path);
// Throws DataError.
Weights LoadWeights(const std::string& path, const WeightLimits& limits = {});
// Atomically. Throws DataError; for names that the file cannot hold, and .npz beyond its 4 GiB, too. Metadata are left
// out of an .npz.
void SaveWeights(const Weights& weights, const std::string& path);

// Renames tensors by rules "EXPRESSION=NAME": the first rule whose regular expression (ECMAScript's) matches a whole name
// gives it another, in which \1 ... \9 are what stood in its brackets; no name leaves the tensor out. What no rule
// matches stays as it is. Throws Error for a rule that is none; CheckpointError for a rule that matches nothing, and for
// two tensors that get one name.
Weights MapNames(Weights weights, const std::vector<std::string>& rules);

// Those of the names that fit one of the patterns, as a shell has them, with commas between: "conv*,fc1_weight". In the
// order of the names. Throws Error, with the nearest name, for a pattern that none fits.
//
//   Trainer tuned(model, {.fixed_params = ChooseNames(model.symbol.ListArguments(), "conv*,bn*")});
std::vector<std::string> ChooseNames(const std::vector<std::string>& names, const std::string& patterns);

// The symbol with these as parameters and auxiliary states, whichever it calls so, and the metadata. Not all need to be
// there. Throws CheckpointError that lists the tensors that are not in the symbol. `source` is how errors call them.
Model ModelOf(const Symbol& symbol, Weights weights, const std::string& source);
// Throws CheckpointError that lists the values whose shape is not what the symbol says, as far as it does.
void CheckShapes(const Model& model, const std::string& source);
// Parameters, auxiliary states and metadata of a model.
Weights WeightsOf(Model model);

}  // namespace bindery
