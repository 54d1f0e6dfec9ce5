// .npy: an array; .npz: a zip archive of these, stored. Source: numpy/lib/format.py, version 1.0 of the format;
// APPNOTE.TXT 6.3.
#pragma once

#include <string>

#include "base/host_tensor.h"

namespace bindery {

// Throw DataError.
void SaveNpy(const HostTensor& array, const std::string& path);  // one array, by itself
void SaveNpz(const HostTensorMap& arrays, const std::string& path);

}  // namespace bindery
