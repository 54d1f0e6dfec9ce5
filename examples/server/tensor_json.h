// Tensors as nested arrays of numbers: [[1, 2], [3, 4]] has the shape (2, 2).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/host_tensor.h"

namespace bindery::server {

// Throws DataError, which names the input, for what is no number, for rows of unequal length, and for more axes than
// tensors have.
HostTensor TensorFromJson(const nlohmann::json& json, DType dtype, const std::string& name);

// Numbers as short as they can be to be read back as they were; null for those that are not finite.
void AppendJson(const HostTensor& tensor, std::string* text);

}  // namespace bindery::server
