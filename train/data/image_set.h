// Labelled grey images, as the readers and the drawn digits give them.
#pragma once

#include "base/host_tensor.h"

namespace bindery {

struct ImageSet {
  HostTensor images;  // float32 (N, 1, rows, columns), 0 (background) to 1
  HostTensor labels;  // float32 (N)
};

}  // namespace bindery
