#include "symbol/ops/window.h"

#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/common.h"

namespace bindery::rule {

void CheckKernel(const std::vector<int64_t>& kernel) {
  if (kernel.empty() || kernel.size() > kMaxSpatial) {
    Throw<ModelError>("kernel must have 1 to {} extents, got {}", kMaxSpatial, ToString(kernel));
  }
  CheckPerAxis("kernel", kernel, kernel.size(), 1);
}

void CheckPerAxis(const char* field, const std::vector<int64_t>& list, size_t spatial, int64_t least) {
  if (list.empty()) return;
  if (list.size() != spatial) {
    Throw<ModelError>("{} must have {} numbers, one per extent of the kernel, got {}", field, spatial, ToString(list));
  }
  for (int64_t value : list) {
    if (value < least) Throw<ModelError>("{} must be at least {} everywhere, got {}", field, least, ToString(list));
    if (value > kMaxWindow) {
      Throw<ModelError>("{} must be at most {} everywhere, got {}", field, kMaxWindow, ToString(list));
    }
  }
}

int64_t PaddedExtent(int64_t extent, int64_t pad_begin, int64_t pad_end) {
  return CheckedAdd(extent, CheckedAdd(pad_begin, pad_end, "the padding"), "the padded input");
}

const char* DataAxes(int rank) {
  switch (rank) {
    case 3: return "(N, C, W)";
    case 4: return "(N, C, H, W)";
    case 5: return "(N, C, D, H, W)";
    default: return "(N, C, ...)";
  }
}

void ExpectNotEmpty(const Shape& data) {
  for (int axis = 1; axis < data.rank(); ++axis) {
    if (data[axis] == 0) Throw<ShapeError>("data {} has no elements along axis {}", data, axis);
  }
}

void BatchedAtFirstAxis(BatchAxisContext& c) {
  NotBatched(c);
  if (c.input_axes[0] == 0) c.output_axes[0] = 0;
}

}  // namespace bindery::rule
