#include "train/weights/weights.h"

#include <algorithm>

#include "base/error.h"
#include "train/data/tables/npy.h"
#include "train/weights/npz_writer.h"
#include "train/weights/safetensors.h"

namespace bindery {
namespace {

constexpr std::string_view kSafetensors = ".safetensors", kNpz = ".npz";

[[noreturn]] void FailEnding(const std::string& path) {
  Throw<DataError>("\"{}\": files of weights end in .safetensors or .npz", path);
}

}  // namespace

bool IsWeightsFile(std::string_view path) { return path.ends_with(kSafetensors) || path.ends_with(kNpz); }

Weights LoadWeights(const std::string& path, const WeightLimits& limits) {
  if (path.ends_with(kSafetensors)) return LoadSafetensors(path, limits);
  if (!path.ends_with(kNpz)) FailEnding(path);
  return {.tensors = ReadNpz(path, {.tensor_bytes = std::min(limits.tensor_bytes, NpyLimits().tensor_bytes)})};
}

void SaveWeights(const Weights& weights, const std::string& path) {
  if (path.ends_with(kSafetensors)) return SaveSafetensors(weights, path);
  if (!path.ends_with(kNpz)) FailEnding(path);
  SaveNpz(weights.tensors, path);
}

}  // namespace bindery
