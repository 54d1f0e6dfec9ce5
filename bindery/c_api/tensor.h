// Tensors behind handles, and what DLPack says of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "bindery/c_api.h"
#include "engine/tensor.h"

struct bindery_tensor {
  bindery::Tensor tensor;
  bool is_read_only = false;
  // What its views point at.
  int64_t extents[bindery::Shape::kMaxRank] = {}, strides[bindery::Shape::kMaxRank] = {};
};

namespace bindery::c_api {

DType DTypeOf(DLDataType dtype);  // throws Error for those that there are not here
DLDataType TypeOf(DType dtype);
Shape ShapeOf(int32_t rank, const int64_t* extents);  // throws Error, ShapeError

// A tensor of the default engine on memory that `keep_alive` owns. Throws Error, ShapeError, DeviceError for what is not
// in host memory and not in C order without gaps.
Tensor Wrap(const DLTensor& memory, std::shared_ptr<const void> keep_alive);
// A handle to it; where the host cannot address it, to a copy.
bindery_tensor* HandleOf(const Tensor& tensor);

}  // namespace bindery::c_api
