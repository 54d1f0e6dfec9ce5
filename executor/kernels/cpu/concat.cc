// Joining along an axis and cutting along one: both copy runs of bytes between a whole and its parts.
#include <cstring>
#include <vector>

#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/shape_ops.h"

namespace bindery::cpu {
namespace {

// The whole is `outer` rows; in each, every part has one run of bytes, in order.
struct Runs {
  int64_t outer = 1, row = 0;
  std::vector<int64_t> bytes, offset;
};

// A format that whole and parts share, without padding in any of them, else plain.
Format SharedFormat(const Format& wanted, const Shape& whole, const std::vector<Shape>& parts) {
  if (wanted.kind != Format::Kind::kStrided || wanted.rank != whole.rank() || IsPadded(wanted, whole))
    return Format::Plain();
  for (const Shape& part : parts) {
    if (part.rank() != whole.rank() || IsPadded(wanted, part)) return Format::Plain();
  }
  return wanted;
}

// The rows are what lies outside the axis in memory. Parts have the whole's rank, but for plain ones without the axis.
Runs RunsOf(const Format& format, const Shape& whole, int axis, DType dtype, const std::vector<Shape>& parts) {
  Runs runs;
  if (format.is_plain()) {
    runs.outer = whole.CountTo(axis);
  } else {
    for (int i = 0; format.order[i] != axis; ++i) {
      int64_t block = 1;
      for (int b = 0; b < format.num_blocks; ++b)
        block *= format.block_axis[b] == format.order[i] ? format.block_size[b] : 1;
      runs.outer *= whole[format.order[i]] / block;
    }
  }
  for (const Shape& part : parts) {
    runs.offset.push_back(runs.row);
    runs.bytes.push_back(part.Elements() * SizeOf(dtype) / runs.outer);
    runs.row += runs.bytes.back();
  }
  return runs;
}

// What is joined, or cut: the parts of output 0, or of input 0, along an axis. Each is the input or output of its number;
// negative: nobody's.
struct Parts {
  bool joined;
  std::vector<Shape> shapes = {};
  std::vector<int> values = {};
};

Kernel CopyParts(const KernelSpec& spec, int axis, const Parts& parts) {
  const ValueType& whole = parts.joined ? spec.outputs[0] : spec.inputs[0];
  Format format;
  for (const Format& candidate : spec.input_formats) {
    if (format = SharedFormat(candidate, whole.shape, parts.shapes); !format.is_plain()) break;
  }
  Kernel kernel = PlainKernel(spec, "copy");
  kernel.input_formats.assign(spec.inputs.size(), format);
  kernel.output_formats.assign(spec.outputs.size(), format);
  return WithLoop(std::move(kernel),
                  [parts, runs = RunsOf(format, whole.shape, axis, whole.dtype, parts.shapes)](const Arguments& args) {
                    const int64_t count = static_cast<int64_t>(parts.values.size()), units = runs.outer * count;
                    const int64_t serial_below = runs.outer * runs.row <= 4 * kSerialElements ? units : 0;
                    ParallelFor(units, 1, serial_below, [&](int64_t begin, int64_t end, int) {
                      for (int64_t unit = begin; unit < end; ++unit) {
                        const int64_t row = unit / count, part = unit % count;
                        const int value = parts.values[part];
                        if (value < 0 || (!parts.joined && !args.outputs[value])) continue;
                        const int64_t at_whole = row * runs.row + runs.offset[part], at_part = row * runs.bytes[part];
                        const auto bytes = static_cast<size_t>(runs.bytes[part]);
                        if (parts.joined) {
                          std::memcpy(args.out<char>(0) + at_whole, args.in<char>(value) + at_part, bytes);
                        } else {
                          std::memcpy(args.out<char>(value) + at_part, args.in<char>(0) + at_whole, bytes);
                        }
                      }
                    });
                  });
}

Parts PartsOf(bool joined, const std::vector<ValueType>& values) {
  Parts parts{joined};
  for (const ValueType& value : values) {
    parts.values.push_back(static_cast<int>(parts.shapes.size()));
    parts.shapes.push_back(value.shape);
  }
  return parts;
}

// arg0, arg1, ... -> output
MaybeKernel MakeConcat(const KernelSpec& spec) {
  const int axis = spec.outputs[0].shape.Axis(static_cast<int>(spec.attributes<ConcatAttrs>().axis));
  return CopyParts(spec, axis, PartsOf(true, spec.inputs));
}

// data -> output0, output1, ...
MaybeKernel MakeSliceChannel(const KernelSpec& spec) {
  const int axis = spec.inputs[0].shape.Axis(static_cast<int>(spec.attributes<SliceChannelAttrs>().axis));
  return CopyParts(spec, axis, PartsOf(false, spec.outputs));
}

constexpr KernelEntry kEntries[] = {
    {"Concat", MakeConcat},
    {"SliceChannel", MakeSliceChannel},
};

}  // namespace

Kernel PartKernel(const KernelSpec& spec, int axis, int64_t begin) {
  const Shape &whole = spec.inputs[0].shape, &part = spec.outputs[0].shape;
  // What comes before is a part, too, and so is what is left: in a blocked format each must hold whole blocks.
  const Shape before = whole.With(axis, begin), after = whole.With(axis, whole[axis] - begin - part[axis]);
  return CopyParts(spec, axis, {false, {before, part, after}, {-1, 0, -1}});
}

KernelRows ConcatKernels() { return kEntries; }

}  // namespace bindery::cpu
