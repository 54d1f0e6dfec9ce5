// Attention.
#include "symbol/ops/attention.h"

#include <algorithm>
#include <optional>

#include "base/checked.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cuda/attention_args.h"
#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/cuda/library_attention.h"

namespace bindery::cuda {
namespace {

// `first`: where the queries are among the inputs.
AttentionShape ShapeOf(const KernelSpec& spec, const AttentionAttrs& attrs, size_t first) {
  const AttentionForm f =
      FormOf(attrs, spec.inputs[first].shape, spec.inputs[first + 1].shape, spec.inputs[first + 2].shape);
  const auto lay = [](const AttentionForm::Strides& s) { return AttentionShape::Lay{s.sample, s.head, s.row}; };
  AttentionShape shape{.heads = f.heads,
                       .kv_heads = f.kv_heads,
                       .queries = f.queries,
                       .keys = f.keys,
                       .depth = f.depth,
                       .width = f.width,
                       .query = lay(f.query),
                       .key = lay(f.key),
                       .value = lay(f.value),
                       .output = lay(f.output),
                       .scale = f.scale,
                       .softcap = attrs.softcap};
  if (attrs.masked) std::ranges::copy(MaskStrides(spec.inputs[first + 3].shape), shape.mask_strides);
  // As SeenKeys has it.
  constexpr int64_t kFar = int64_t{1} << 40;
  const int64_t right = attrs.causal ? 0 : attrs.right_window;
  shape.first = attrs.left_window < 0 ? -kFar : attrs.offset - attrs.left_window;
  shape.last = right < 0 ? kFar : attrs.offset + right + 1;
  return shape;
}

// (query, key, value [, mask]) -> output, maximum, log_sum
MaybeKernel MakeAttention(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<AttentionAttrs>();
  const DType dtype = spec.inputs[0].dtype;
  AttentionArgs args{.shape = ShapeOf(spec, attrs, 0)};
  const int64_t rows = spec.outputs[1].shape.Elements();
  args.rows = RowsOf(rows, args.shape.keys + args.shape.width);
  const std::optional<PlainAttention> plain = PlainAttentionOf(args.shape, spec.inputs[0].shape[0], dtype);
  const auto add = [args, plain, dtype](Launches& launches) mutable {
    launches.Read({&args.query, &args.key, &args.value, &args.shape.mask});
    launches.Write({&args.out, &args.maximum, &args.log_sum});
    if (plain && AddLibraryAttention(launches, *plain, args)) return;
    args.products = args.parts = {launches.scratch(), ValueOf(dtype)};
    launches.AddRows(args);
  };
  Kernel kernel = OwnKernel(spec, add, plain ? "cublaslt" : "own");
  kernel.scratch_bytes = std::max(CheckedMul(CheckedMul(rows, args.shape.keys), SizeOf(ValueOf(dtype))),
                                  plain ? ScratchBytes(*plain, 1) : 0);
  return kernel;
}

// (dy, query, key, value [, mask], output, maximum, log_sum) -> dq, dk, dv [, d scores]
MaybeKernel MakeAttentionGrad(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<AttentionGradAttrs>();
  const DType dtype = spec.inputs[0].dtype;
  AttentionGradArgs args{.shape = ShapeOf(spec, attrs, 1)};
  const AttentionShape& s = args.shape;
  const int64_t queries = spec.inputs.back().shape.Elements(), samples = spec.inputs[0].shape[0];
  const int64_t bytes = CheckedMul(CheckedMul(queries, s.keys), SizeOf(ValueOf(dtype)));
  args.rows = RowsOf(queries, s.keys + s.width);
  const Rows keys = RowsOf(samples * s.kv_heads * s.keys, s.depth + s.width);
  const std::optional<PlainAttention> plain = PlainAttentionOf(s, samples, dtype);
  const auto add = [=](Launches& launches) mutable {
    launches.Read(
        {&args.dy, &args.query, &args.key, &args.value, &args.shape.mask, &args.output, &args.maximum, &args.log_sum});
    launches.Write({&args.dq, &args.dk, &args.dv, &args.dmask});
    if (plain && AddLibraryAttention(launches, *plain, args)) return;
    args.parts = {launches.scratch(), ValueOf(dtype)};
    args.slopes = {launches.scratch(bytes), ValueOf(dtype)};
    launches.AddRows(args);
    args.of_keys = 1;
    args.rows = keys;
    launches.AddRows(args);
  };
  Kernel kernel = OwnKernel(spec, add, plain ? "cublaslt" : "own");
  kernel.scratch_bytes = std::max(CheckedMul(2, bytes), plain ? ScratchBytes(*plain, 2) : 0);
  return kernel;
}

constexpr KernelEntry kEntries[] = {
    {"Attention", OfFloats<MakeAttention>},
    {"AttentionGrad", OfFloats<MakeAttentionGrad>},
};

}  // namespace

KernelRows AttentionKernels() { return kEntries; }

}  // namespace bindery::cuda
