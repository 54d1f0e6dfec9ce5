// NumPy's files: .npy, one array; .npz, a zip archive of them, stored or deflated. Of all our element types, in either
// byte order and in C or Fortran order; bfloat16 as ml_dtypes saves it, as void elements of two bytes.
// Source: numpy/lib/format.py, versions 1.0 to 3.0 of the format; zip: APPNOTE.TXT 6.3.
//
// A file from an untrusted source gives arrays or an error that names file and array; nothing is allocated that the
// file cannot fill, arrays of Python objects are refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/host_tensor.h"

namespace bindery {

struct NpyLimits {
  int64_t file_bytes = int64_t{4} << 30;
  int64_t tensor_bytes = int64_t{4} << 30;  // of all arrays of a file together
};

// Throw DataError.
HostTensor ReadNpy(const std::string& path, const NpyLimits& limits = {});
HostTensor ParseNpy(std::string_view bytes, const std::string& name, const NpyLimits& limits = {});
// Version 1.0 of the format, in C order. Throws DataError.
void SaveNpy(const HostTensor& array, const std::string& path);
std::string NpyHeader(const HostTensor& array);  // what stands before the elements

// By their names, without ".npy".
HostTensorMap ReadNpz(const std::string& path, const NpyLimits& limits = {});
HostTensorMap ParseNpz(std::string_view bytes, const std::string& name, const NpyLimits& limits = {});

}  // namespace bindery
