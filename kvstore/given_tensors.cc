#include "kvstore/given_tensors.h"

#include "base/error.h"
#include "engine/backend.h"

namespace bindery {

void CheckTensor(const Key& key, const char* role, size_t index, const Tensor& tensor,
                 const std::shared_ptr<Engine>& engine) {
  if (!tensor.defined()) Throw("key {}, {} {}: the tensor is empty", ToString(key), role, index);
  if (tensor.engine() != engine)
    Throw("key {}, {} {}: the tensor belongs to another engine", ToString(key), role, index);
}

void CheckTensors(const Key& key, const char* role, std::span<const Tensor> tensors, const Tensor& stored) {
  if (tensors.empty()) Throw("key {}: the list of {}s is empty", ToString(key), role);
  for (size_t i = 0; i < tensors.size(); ++i) {
    CheckTensor(key, role, i, tensors[i], stored.engine());
    if (tensors[i].shape() != stored.shape() || tensors[i].dtype() != stored.dtype()) {
      Throw<ShapeError>("key {}, {} {}: expected {} of {}, got {} of {}", ToString(key), role, i, stored.shape(),
                        stored.dtype(), tensors[i].shape(), tensors[i].dtype());
    }
  }
}

void CheckRows(const Key& key, const char* role, std::span<const RowTensors> list, const Tensor& stored) {
  if (list.empty()) Throw("key {}: the list of {}s is empty", ToString(key), role);
  const bool has_rows =
      stored.shape().rank() > 0 && (stored.dtype() == DType::kFloat32 || stored.dtype() == DType::kFloat64);
  if (!has_rows)
    Throw<ShapeError>("key {}: {} of {} has no rows of float32 or float64", ToString(key), stored.shape(),
                      stored.dtype());
  for (size_t i = 0; i < list.size(); ++i) {
    const auto& [numbers, rows] = list[i];
    CheckTensor(key, role, i, numbers, stored.engine());
    CheckTensor(key, role, i, rows, stored.engine());
    for (const Tensor* tensor : {&stored, &numbers, &rows}) {
      if (HostAddressable(tensor->device())) continue;
      Throw("key {}, {} {}: rows are of memory that the host addresses, got {}", ToString(key), role, i,
            tensor->device());
    }
    const Shape expected = stored.shape().With(0, numbers.elements());
    if (numbers.dtype() != DType::kInt64 || rows.shape() != expected || rows.dtype() != stored.dtype()) {
      Throw<ShapeError>(
          "key {}, {} {}: expected numbers of int64 and rows {} of {}, got numbers of {} and rows {} of {}",
          ToString(key), role, i, expected, stored.dtype(), numbers.dtype(), rows.shape(), rows.dtype());
    }
  }
}

void CheckNumbers(const Key& key, const Tensor& numbers, int64_t rows) {
  const auto* all = static_cast<const int64_t*>(numbers.data());
  for (int64_t i = 0; i < numbers.elements(); ++i) {
    if (all[i] >= rows) Throw<DataError>("key {}: row {} is not in 0..{}", ToString(key), all[i], rows - 1);
  }
}

}  // namespace bindery
