// Joining along an axis and cutting along one: both copy runs of bytes between a whole and its parts.
#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/shape_ops.h"

namespace bindery::cpu {
namespace {

// The whole is `outer` rows of so many bytes; in each, every part has one run of them. Those that are somebody's make
// up `moved` bytes of a row.
struct Runs {
  struct Run {
    int value;
    int64_t bytes, offset;
  };
  int64_t outer = 1, row = 0, moved = 0;
  std::vector<Run> runs = {};
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

// What is joined, or cut: the parts of output 0, or of input 0, along an axis. Each is the input or output of its
// number; negative: nobody's.
struct Parts {
  bool joined;
  std::vector<Shape> shapes = {};
  std::vector<int> values = {};
};

// The rows are what lies outside the axis in memory. Parts have the whole's rank, but for plain ones without the axis.
Runs RunsOf(const Format& format, const Shape& whole, int axis, DType dtype, const Parts& parts) {
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
  for (size_t i = 0; i < parts.shapes.size(); ++i) {
    const int64_t bytes = parts.shapes[i].Elements() * SizeOf(dtype) / runs.outer;
    if (parts.values[i] >= 0) {
      runs.runs.push_back({parts.values[i], bytes, runs.row});
      runs.moved += bytes;
    }
    runs.row += bytes;
  }
  return runs;
}

Kernel CopyParts(const KernelSpec& spec, int axis, const Parts& parts) {
  const ValueType& whole = parts.joined ? spec.outputs[0] : spec.inputs[0];
  Format format;
  for (const Format& candidate : spec.input_formats) {
    if (format = SharedFormat(candidate, whole.shape, parts.shapes); !format.is_plain()) break;
  }
  Kernel kernel = PlainKernel(spec, "copy");
  kernel.input_formats.assign(spec.inputs.size(), format);
  kernel.output_formats.assign(spec.outputs.size(), format);
  return WithLoop(std::move(kernel), [joined = parts.joined, runs = RunsOf(format, whole.shape, axis, whole.dtype,
                                                                           parts)](const Arguments& args) {
    ParallelFor(runs.outer * runs.moved, 64, 4 * kSerialElements, [&](int64_t begin, int64_t end, int) {
      int64_t row = begin / runs.moved, first = begin % runs.moved;  // in the run that comes
      for (; begin < end; ++row) {
        for (const Runs::Run& run : runs.runs) {
          const int64_t bytes = std::min(run.bytes - first, end - begin);
          if (bytes <= 0) {
            first = std::max<int64_t>(first - run.bytes, 0);
            continue;
          }
          const int64_t at_whole = row * runs.row + run.offset + first, at_part = row * run.bytes + first;
          const char* from = joined ? args.in<char>(run.value) + at_part : args.in<char>(0) + at_whole;
          char* to = joined ? args.out<char>(0) + at_whole : args.out<char>(run.value) + at_part;
          std::memcpy(to, from, static_cast<size_t>(bytes));
          begin += bytes;
          first = 0;
        }
      }
    });
  });
}

// arg0, arg1, ... -> output
MaybeKernel MakeConcat(const KernelSpec& spec) {
  Parts parts{.joined = true};
  for (const ValueType& input : spec.inputs) {
    parts.values.push_back(static_cast<int>(parts.shapes.size()));
    parts.shapes.push_back(input.shape);
  }
  return CopyParts(spec, spec.outputs[0].shape.Axis(static_cast<int>(spec.attributes<ConcatAttrs>().axis)), parts);
}

// data -> output0, output1, ...
MaybeKernel MakeSliceChannel(const KernelSpec& spec) {
  Parts parts{.joined = false};
  for (const ValueType& output : spec.outputs) {
    const size_t i = parts.shapes.size();
    parts.values.push_back(spec.output_used[i] ? static_cast<int>(i) : -1);
    parts.shapes.push_back(output.shape);
  }
  return CopyParts(spec, spec.inputs[0].shape.Axis(static_cast<int>(spec.attributes<SliceChannelAttrs>().axis)), parts);
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
