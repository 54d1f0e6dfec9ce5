// Between what users and files see (plain) and how a parameter is stored.
#pragma once

#include "base/host_tensor.h"
#include "executor/format.h"

namespace bindery {

// `storage`, StorageElements(format, plain.shape()) elements of plain.dtype(), gets the tensor in the format, padding
// zero.
void ToStorage(const HostTensor& plain, const Format& format, void* storage);
// The tensor of this dtype and shape that `storage` holds.
HostTensor FromStorage(DType dtype, const Shape& shape, const Format& format, const void* storage);

}  // namespace bindery
