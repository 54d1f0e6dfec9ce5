#include "examples/server/tensor_json.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <vector>

#include "base/error.h"

namespace bindery::server {
namespace {

using nlohmann::json;

// The extents along the first elements; others are compared with them.
std::vector<int64_t> ExtentsOf(const json& value, const std::string& name) {
  std::vector<int64_t> extents;
  for (const json* at = &value; at->is_array(); at = &at->front()) {
    if (extents.size() == Shape::kMaxRank) Throw<DataError>("\"{}\" has more than {} axes", name, Shape::kMaxRank);
    extents.push_back(static_cast<int64_t>(at->size()));
    if (at->empty()) break;
  }
  return extents;
}

void Flatten(const json& value, const Shape& shape, int axis, const std::string& name, HostTensor* tensor,
             int64_t* next) {
  if (axis == shape.rank()) {
    if (!value.is_number()) Throw<DataError>("\"{}\": expected a number, got {}", name, value.type_name());
    tensor->Set((*next)++, value.get<double>());
    return;
  }
  if (!value.is_array() || static_cast<int64_t>(value.size()) != shape[axis]) {
    Throw<DataError>("\"{}\": rows of unequal length: expected an array of {}, got {}", name, shape[axis],
                     value.is_array() ? fmt::format("one of {}", value.size()) : value.type_name());
  }
  for (const json& element : value) Flatten(element, shape, axis + 1, name, tensor, next);
}

void Append(const HostTensor& tensor, int axis, int64_t* next, std::string* text) {
  if (axis == tensor.shape().rank()) {
    const double value = tensor.At((*next)++);
    if (!std::isfinite(value)) {
      *text += "null";
    } else if (tensor.dtype() == DType::kFloat64 || !IsFloat(tensor.dtype())) {
      fmt::format_to(std::back_inserter(*text), "{}", value);
    } else {
      fmt::format_to(std::back_inserter(*text), "{}", static_cast<float>(value));
    }
    return;
  }
  *text += '[';
  for (int64_t i = 0; i < tensor.shape()[axis]; ++i) {
    if (i > 0) *text += ',';
    Append(tensor, axis + 1, next, text);
  }
  *text += ']';
}

}  // namespace

HostTensor TensorFromJson(const json& value, DType dtype, const std::string& name) {
  HostTensor tensor(dtype, Shape(std::span<const int64_t>(ExtentsOf(value, name))));
  int64_t next = 0;
  Flatten(value, tensor.shape(), 0, name, &tensor, &next);
  return tensor;
}

void AppendJson(const HostTensor& tensor, std::string* text) {
  int64_t next = 0;
  Append(tensor, 0, &next, text);
}

}  // namespace bindery::server
