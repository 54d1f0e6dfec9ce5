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

// copy(whole + ..., part + ..., bytes) for every run of every part that is there.
template <class Copy>
void ForRuns(const Runs& runs, char* whole, const std::vector<char*>& parts, const Copy& copy) {
  const int64_t count = static_cast<int64_t>(parts.size()), units = runs.outer * count;
  const auto body = [&](int64_t begin, int64_t end, int) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t row = unit / count;
      const size_t part = static_cast<size_t>(unit % count);
      if (!parts[part]) continue;
      copy(whole + row * runs.row + runs.offset[part], parts[part] + row * runs.bytes[part],
           static_cast<size_t>(runs.bytes[part]));
    }
  };
  ParallelFor(units, 1, runs.outer * runs.row <= 4 * kSerialElements ? units : 0, body);
}

std::vector<char*> Addresses(std::span<void* const> pointers) {
  std::vector<char*> addresses;
  for (void* pointer : pointers) addresses.push_back(static_cast<char*>(pointer));
  return addresses;
}

std::vector<Shape> ShapesOf(const std::vector<ValueType>& values) {
  std::vector<Shape> shapes;
  for (const ValueType& value : values) shapes.push_back(value.shape);
  return shapes;
}

// All inputs are parts of output 0.
Kernel Join(const KernelSpec& spec, int axis) {
  const Shape& whole = spec.outputs[0].shape;
  const std::vector<Shape> parts = ShapesOf(spec.inputs);
  Format format;
  for (const Format& candidate : spec.input_formats) {
    if (format = SharedFormat(candidate, whole, parts); !format.is_plain()) break;
  }
  Kernel kernel = PlainKernel(spec, "copy");
  kernel.input_formats.assign(spec.inputs.size(), format);
  kernel.output_formats[0] = format;
  kernel.bind = [runs = RunsOf(format, whole, axis, spec.outputs[0].dtype, parts)](const KernelArgs& args) -> Call {
    return [runs, whole = static_cast<char*>(args.outputs[0]), parts = Addresses(args.inputs)] {
      ForRuns(runs, whole, parts, [](char* to, const char* from, size_t bytes) { std::memcpy(to, from, bytes); });
    };
  };
  return kernel;
}

// All outputs are parts of input 0.
Kernel Cut(const KernelSpec& spec, int axis) {
  const Shape& whole = spec.inputs[0].shape;
  const std::vector<Shape> parts = ShapesOf(spec.outputs);
  const Format format = SharedFormat(spec.input_formats[0], whole, parts);
  Kernel kernel = PlainKernel(spec, "copy");
  kernel.input_formats[0] = format;
  kernel.output_formats.assign(spec.outputs.size(), format);
  kernel.bind = [runs = RunsOf(format, whole, axis, spec.inputs[0].dtype, parts)](const KernelArgs& args) -> Call {
    return [runs, whole = static_cast<char*>(args.inputs[0]), parts = Addresses(args.outputs)] {
      ForRuns(runs, whole, parts, [](const char* from, char* to, size_t bytes) { std::memcpy(to, from, bytes); });
    };
  };
  return kernel;
}

// arg0, arg1, ... -> output
MaybeKernel MakeConcat(const KernelSpec& spec) {
  return Join(spec, spec.outputs[0].shape.Axis(static_cast<int>(spec.attributes<ConcatAttrs>().axis)));
}

// data -> output0, output1, ...
MaybeKernel MakeSliceChannel(const KernelSpec& spec) {
  return Cut(spec, spec.inputs[0].shape.Axis(static_cast<int>(spec.attributes<SliceChannelAttrs>().axis)));
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
  const std::vector<Shape> parts = {before, part, after};
  const Format format = SharedFormat(spec.input_formats[0], whole, parts);
  Kernel kernel = PlainKernel(spec, "copy");
  kernel.input_formats[0] = kernel.output_formats[0] = format;
  kernel.bind = [runs = RunsOf(format, whole, axis, spec.inputs[0].dtype, parts)](const KernelArgs& args) -> Call {
    return [runs, whole = static_cast<char*>(args.inputs[0]),
            parts = std::vector<char*>{nullptr, static_cast<char*>(args.outputs[0]), nullptr}] {
      ForRuns(runs, whole, parts, [](const char* from, char* to, size_t bytes) { std::memcpy(to, from, bytes); });
    };
  };
  return kernel;
}

KernelRows ConcatKernels() { return kEntries; }

}  // namespace bindery::cpu
