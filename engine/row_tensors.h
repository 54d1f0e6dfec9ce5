// Some rows of a table, on a device.
#pragma once

#include "engine/tensor.h"

namespace bindery {

// Of a table whose rows lie along axis 0: `numbers` (n) of int64, in any order, which may repeat, below 0 for none;
// `rows` (n, ...), each as long as a row of the table, of its dtype.
struct RowTensors {
  Tensor numbers, rows;
};

}  // namespace bindery
