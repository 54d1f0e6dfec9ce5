// Whether the tensors that a store is given for a key fit it. Private to kvstore.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/row_tensors.h"
#include "engine/tensor.h"
#include "kvstore/kvstore.h"

namespace bindery {

// `role`, `index`: what it is called, "value 2". Throws Error for an empty one, and for one of another engine.
void CheckTensor(const Key& key, const char* role, size_t index, const Tensor& tensor,
                 const std::shared_ptr<Engine>& engine);
// One or more, each like the value that is stored: throws Error, ShapeError.
void CheckTensors(const Key& key, const char* role, std::span<const Tensor> tensors, const Tensor& stored);
// One or more, of rows like those of the value that is stored, in memory that the host addresses.
void CheckRows(const Key& key, const char* role, std::span<const RowTensors> list, const Tensor& stored);
// What stands in them, once it is there: throws DataError for a number that is not below `rows`.
void CheckNumbers(const Key& key, const Tensor& numbers, int64_t rows);

}  // namespace bindery
