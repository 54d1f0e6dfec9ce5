#include "executor/kernels/cuda/move.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "executor/kernel_table.h"

namespace bindery::cuda {
namespace {

// Fewer are no neighbours to speak of.
constexpr int64_t kFewestTransposed = 16;

// Nullopt: not each side has an axis of its own whose elements follow each other, or they are few.
std::optional<TransposeArgs> TransposeOf(const MoveArgs& move) {
  const int last = move.grid.rank - 1;
  if (last < 1 || move.to.of[last] != 1 || move.from.of[last] == 1 || move.from.of[last] == 0) return std::nullopt;
  int row = 0;
  while (row < last && move.from.of[row] != 1) ++row;
  TransposeArgs args{.unit = move.unit,
                     .rows = move.grid.extents[row],
                     .columns = move.grid.extents[last],
                     .in_stride = move.from.of[last],
                     .out_stride = move.to.of[row],
                     .grid = move.grid,
                     .in = move.in,
                     .out = move.out,
                     .from = move.from,
                     .to = move.to};
  if (row == last || std::min(args.rows, args.columns) < kFewestTransposed) return std::nullopt;
  for (const int axis : {row, last}) args.grid.extents[axis] = 1;
  args.grid.n = move.grid.n / (args.rows * args.columns);
  JoinAxes(&args.grid, {&args.from, &args.to});
  return args;
}

}  // namespace

void AddMove(Launches& launches, const void* in, void* out, int64_t size, MoveArgs args) {
  if (!out || args.grid.n == 0) return;
  JoinAxes(&args.grid, {&args.from, &args.to});
  args.in = in;
  args.out = out;
  args.unit = static_cast<int32_t>(size);
  if (const auto transpose = TransposeOf(args)) return launches.AddBlocks(*transpose, transpose->tiles());
  const int last = args.grid.rank - 1;
  const auto is_even = [&] {
    uint64_t bits = std::bit_cast<uint64_t>(in) / static_cast<uint64_t>(args.unit) |
                    std::bit_cast<uint64_t>(out) / static_cast<uint64_t>(args.unit) |
                    static_cast<uint64_t>(args.grid.extents[last]);
    for (int axis = 0; axis < last; ++axis) bits |= static_cast<uint64_t>(args.from.of[axis] | args.to.of[axis]);
    return bits % 2 == 0;
  };
  while (last >= 0 && args.unit < 16 && args.from.of[last] == 1 && args.to.of[last] == 1 && is_even()) {
    args.unit *= 2;
    args.grid.extents[last] /= 2;
    args.grid.n /= 2;
    for (int axis = 0; axis < last; ++axis) {
      args.from.of[axis] /= 2;
      args.to.of[axis] /= 2;
    }
  }
  launches.Add(args, args.grid.n);
}

// Between orders of axes; blocks are CPUs' alone.
MaybeKernel MakeReorder(DType dtype, const Shape& shape, const Format& from, const Format& to, int) {
  if (to.kind == Format::Kind::kOpaque || from.num_blocks > 0 || to.num_blocks > 0) return std::nullopt;
  const auto strides_of = [&](const Format& format) {
    if (format.is_plain()) return PlainStrides(shape);
    Strides strides;
    int64_t stride = 1;
    for (int i = format.rank - 1; i >= 0; --i) {
      strides.of[format.order[static_cast<size_t>(i)]] = stride;
      stride *= shape[format.order[static_cast<size_t>(i)]];
    }
    return strides;
  };
  const MoveArgs args{.grid = GridOf(shape), .from = strides_of(from), .to = strides_of(to)};
  Kernel kernel{.implementation = "own", .input_formats = {from}, .output_formats = {to}};
  kernel.bind = [args, dtype](const KernelArgs& addresses) {
    Launches launches(addresses, "Reorder");
    AddMove(launches, addresses.inputs[0], addresses.outputs[0], SizeOf(dtype), args);
    return std::move(launches).Finish();
  };
  return kernel;
}

}  // namespace bindery::cuda
