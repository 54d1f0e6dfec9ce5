// .npz: a zip archive of .npy files (train/data/tables/npy.h), stored. Source: APPNOTE.TXT 6.3.
#pragma once

#include <string>

#include "base/host_tensor.h"

namespace bindery {

// Throws DataError.
void SaveNpz(const HostTensorMap& arrays, const std::string& path);

}  // namespace bindery
