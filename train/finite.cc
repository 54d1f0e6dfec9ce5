#include "train/finite.h"

#include <fmt/format.h>

#include <cmath>

#include "base/dtype.h"

namespace bindery {
namespace {

// -1: none.
int64_t FirstNotFinite(const HostTensor& tensor) {
  if (!IsFloat(tensor.dtype())) return -1;
  return Dispatch(tensor.dtype(), [&]<class T>() -> int64_t {
    const auto* values = static_cast<const T*>(tensor.raw());
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      if (!std::isfinite(LoadDouble(values[i]))) return i;
    }
    return -1;
  });
}

}  // namespace

std::string FirstNotFinite(const HostTensorMap& values) {
  for (const auto& [name, tensor] : values) {
    const int64_t i = FirstNotFinite(tensor);
    if (i >= 0) return fmt::format("\"{}\", element {}, is {}", name, i, tensor.At(i));
  }
  return "";
}

}  // namespace bindery
