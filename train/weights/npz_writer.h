// .npz: a zip archive of .npy files, stored. Source: numpy/lib/format.py, version 1.0 of the format; APPNOTE.TXT 6.3.
// Private to train/weights.
#pragma once

#include <string>

#include "base/host_tensor.h"

namespace bindery {

void SaveNpz(const HostTensorMap& arrays, const std::string& path);

}  // namespace bindery
