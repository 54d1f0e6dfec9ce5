#include "executor/kernels/cpu/layout.h"

#include <vector>

#include "executor/kernels/cpu/dnnl_util.h"

namespace bindery::cpu {

int SimdBlock() {
  static const int block = Allows(dnnl::cpu_isa::avx512_core) ? 16 : 8;
  return block;
}

Format ChannelBlocked(int rank, int block) {
  Format format;
  format.kind = Format::Kind::kStrided;
  format.rank = static_cast<int8_t>(rank);
  for (int i = 0; i < rank; ++i) format.order[i] = static_cast<int8_t>(i);
  format.num_blocks = 1;
  format.block_axis[0] = 1;
  format.block_size[0] = static_cast<int16_t>(block);
  return format;
}

ActivationFormats PreferredActivationFormats(DType dtype, const Shape& data, const Shape& output, int64_t groups) {
  const int rank = data.rank();
  const int64_t in_channels = data[1], out_channels = output[1];
  const Format last = Format::ChannelsLast(rank);
  if (dtype == DType::kBFloat16 && Allows(dnnl::cpu_isa::avx512_core_amx)) return {last, last};
  const int block = SimdBlock();
  const bool depthwise = groups > 1 && groups == in_channels && groups == out_channels;
  const int64_t in = depthwise ? in_channels : in_channels / groups;
  const int64_t out = depthwise ? out_channels : out_channels / groups;
  const Format blocked = ChannelBlocked(rank, block);
  if (out % block == 0 && in % block == 0) return {blocked, blocked};
  if (out % block == 0 && groups == 1 && in <= 3) return {Format::Plain(), blocked};
  return {last, last};
}

std::vector<ActivationFormats> FormatsToTry(DType dtype, const Shape& data, const Shape& output, int64_t groups) {
  const int rank = data.rank();
  const Format last = Format::ChannelsLast(rank), blocked = ChannelBlocked(rank, SimdBlock());
  std::vector<ActivationFormats> formats = {PreferredActivationFormats(dtype, data, output, groups)};
  const auto add = [&](const Format& format) {
    if (formats[0].input != format || formats[0].output != format) formats.push_back({format, format});
  };
  add(last);
  if (data[1] % SimdBlock() == 0 && output[1] % SimdBlock() == 0) add(blocked);
  add(Format::Plain());
  return formats;
}

bool IsPadded(const Format& format, const Shape& shape) {
  return format.kind == Format::Kind::kStrided && PaddedShape(format, shape) != shape;
}

Format Canonical(const Format& format, const Shape& shape) {
  if (format.kind != Format::Kind::kStrided || IsPadded(format, shape)) return format;
  // The axes as they lie in memory, an axis' blocks one by one; extents of 1 left out. Plain order has every axis once,
  // ascending, when neighbouring parts of one axis are joined.
  int last = -1;
  std::array<int64_t, Shape::kMaxRank> block;
  block.fill(1);
  for (int i = 0; i < format.num_blocks; ++i) block[format.block_axis[i]] *= format.block_size[i];
  const auto place = [&](int axis, int64_t extent) {
    if (extent == 1) return true;
    const bool in_order = axis >= last;
    last = axis;
    return in_order;
  };
  for (int i = 0; i < format.rank; ++i) {
    if (!place(format.order[i], shape[format.order[i]] / block[format.order[i]])) return format;
  }
  for (int i = 0; i < format.num_blocks; ++i) {
    if (!place(format.block_axis[i], format.block_size[i])) return format;
  }
  return Format::Plain();
}

bool ViewChannels(const Format& format, const Shape& shape, int axis, ChannelView* view) {
  if (shape.rank() == 0 || format.kind == Format::Kind::kOpaque || IsPadded(format, shape)) return false;
  *view = {};
  view->channels = shape[axis];
  if (format.is_plain()) {
    view->outer = shape.CountTo(axis);
    view->rows = shape.CountFrom(axis + 1);
    if (view->rows == 1) {  // (N, C): rows of channels
      view->planes = false;
      view->rows = view->outer;
      view->outer = 1;
      view->lanes = view->channels;
    }
    return true;
  }
  if (axis != 1) return false;
  view->planes = false;
  const int64_t inner = shape.CountFrom(2);
  if (format == Format::ChannelsLast(shape.rank())) {
    view->rows = shape[0] * inner;
    view->lanes = view->channels;
    return true;
  }
  if (format.num_blocks != 1 || format != ChannelBlocked(shape.rank(), format.block_size[0])) return false;
  view->outer = shape[0];
  view->lanes = format.block_size[0];
  view->groups = view->channels / view->lanes;
  view->rows = inner;
  return true;
}

}  // namespace bindery::cpu
