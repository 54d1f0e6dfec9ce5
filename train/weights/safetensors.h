// .safetensors: 8 bytes, the length of a header; the header, JSON: {"name": {"dtype": "F32", "shape": [2, 3],
// "data_offsets": [begin, end]}, ..., "__metadata__": {"name": "text"}}; and the tensors' bytes, in C order and little
// endian, to which the offsets are relative. They follow each other without gaps and to the file's end.
// Private to train/weights.
#pragma once

#include <string>

#include "train/weights/weights.h"

namespace bindery {

Weights LoadSafetensors(const std::string& path, const WeightLimits& limits);
void SaveSafetensors(const Weights& weights, const std::string& path);

}  // namespace bindery
