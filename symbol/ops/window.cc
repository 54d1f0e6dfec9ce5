#include "symbol/ops/window.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/rules.h"

namespace bindery::rule {
namespace {

int64_t PerAxis(const std::vector<int64_t>& list, size_t axis, int64_t otherwise) {
  return list.empty() ? otherwise : list[axis];
}

// Without padding and output.
Window Unplaced(const WindowAttrs& attrs, size_t axis) {
  return {.kernel = attrs.kernel[axis],
          .stride = PerAxis(attrs.stride, axis, 1),
          .dilate = attrs.kernel[axis] == 1 ? 1 : PerAxis(attrs.dilate, axis, 1)};
}

void PadAsTold(const WindowAttrs& attrs, size_t axis, Window* window) {
  const bool per_side = attrs.pad.size() > attrs.kernel.size();
  window->pad_begin = PerAxis(attrs.pad, axis, 0);
  window->pad_end = PerAxis(attrs.pad, axis + (per_side ? attrs.kernel.size() : 0), 0);
}

bool IsSame(AutoPad auto_pad) { return auto_pad == AutoPad::kSameUpper || auto_pad == AutoPad::kSameLower; }

}  // namespace

void CheckWindows(const WindowAttrs& attrs) {
  const size_t spatial = attrs.kernel.size();
  if (spatial < 1 || spatial > kMaxSpatial) {
    Throw<ModelError>("kernel must have 1 to {} extents, got {}", kMaxSpatial, ToString(attrs.kernel));
  }
  CheckPerAxis("kernel", attrs.kernel, spatial, 1);
  CheckPerAxis("stride", attrs.stride, spatial, 1);
  CheckPerAxis("dilate", attrs.dilate, spatial, 1);
  CheckPerAxis("pad", attrs.pad, attrs.pad.size() == 2 * spatial ? 2 * spatial : spatial, 0);
  if (attrs.auto_pad != AutoPad::kNone && std::ranges::any_of(attrs.pad, [](int64_t pad) { return pad != 0; })) {
    Throw<ModelError>("pad must be 0 with auto_pad {}, which says what there is, got {}",
                      EnumNames(static_cast<AutoPad*>(nullptr))[static_cast<size_t>(attrs.auto_pad)].name,
                      ToString(attrs.pad));
  }
}

void CheckPerAxis(const char* field, const std::vector<int64_t>& list, size_t count, int64_t least) {
  if (list.empty()) return;
  if (list.size() != count) {
    Throw<ModelError>("{} must have {} numbers, one per extent of the kernel{}, got {}", field, count,
                      std::string_view(field) == "pad" ? ", or twice as many" : "", ToString(list));
  }
  for (int64_t value : list) {
    if (value < least) Throw<ModelError>("{} must be at least {} everywhere, got {}", field, least, ToString(list));
    if (value > kMaxWindow) {
      Throw<ModelError>("{} must be at most {} everywhere, got {}", field, kMaxWindow, ToString(list));
    }
  }
}

Window WindowOf(const WindowAttrs& attrs, int axis, int64_t size) {
  Window window = Unplaced(attrs, static_cast<size_t>(axis));
  if (IsSame(attrs.auto_pad)) {
    window.output = (size - 1) / window.stride + 1;
    // What the last window needs beyond the input; (output - 1) * stride < size cannot overflow.
    const int64_t end = CheckedAdd((window.output - 1) * window.stride, window.extent(), "the window");
    const int64_t needed = std::max<int64_t>(end - size, 0);
    window.pad_begin = attrs.auto_pad == AutoPad::kSameLower ? needed - needed / 2 : needed / 2;
    window.pad_end = needed - window.pad_begin;
    return window;
  }
  PadAsTold(attrs, static_cast<size_t>(axis), &window);
  const int64_t padded = CheckedAdd(size, window.pad_begin + window.pad_end, "the padded input");
  if (window.extent() > padded) {
    Throw<ShapeError>("the window of {} along axis {} is larger than the input with padding, {}", window.extent(),
                      axis + 2, padded);
  }
  window.output = (padded - window.extent()) / window.stride + 1;
  if (attrs.ceil_mode && (padded - window.extent()) % window.stride != 0) {
    // One more for the rest, if it starts before the padding at the end; output * stride < padded + stride.
    if (CheckedMul(window.output, window.stride, "the window") < size + window.pad_begin) ++window.output;
  }
  return window;
}

int64_t InputOf(const WindowAttrs& attrs, int axis, int64_t output, int64_t beyond) {
  Window window = Unplaced(attrs, static_cast<size_t>(axis));
  if (IsSame(attrs.auto_pad)) return CheckedMul(output, window.stride, "the input's extent");
  PadAsTold(attrs, static_cast<size_t>(axis), &window);
  const int64_t last = CheckedMul(output - 1, window.stride, "the input's extent");
  const int64_t padded =
      CheckedAdd(last, CheckedAdd(window.extent(), beyond, "the input's extent"), "the input's extent");
  const int64_t size = padded - window.pad_begin - window.pad_end;
  if (size < 1) Throw<ShapeError>("no input gives an output of {} along axis {}", output, axis + 2);
  return size;
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

}  // namespace bindery::rule
