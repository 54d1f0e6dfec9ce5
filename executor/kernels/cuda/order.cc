// The order of elements along an axis, and what is accumulated along one.
#include "symbol/ops/order.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/cuda/order_args.h"
#include "executor/kernels/cuda/sorting.h"
#include "executor/kernels/rules.h"

namespace bindery::cuda {
namespace {

// Up to a power of two.
int64_t PaddedForSorting(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 2))));
}

// Few long rows would be the work of few threads: as many chunks as each has elements.
void SplitRows(ScanArgs* args) {
  constexpr int64_t kLong = 4096, kMany = 16384;
  if (args->axis < kLong || args->rows == 0 || args->rows > kMany) return;
  args->length = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(args->axis))));
  args->chunks = CeilDiv(args->axis, args->length);
}

template <bool kProduct, bool kGrad = false>
MaybeKernel MakeScan(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<ScanAttrs>();
  const AxisView view = ViewAlong(spec.outputs[0].shape, static_cast<int>(attrs.axis));
  if (kGrad && !IsFloat(spec.outputs[0].dtype)) return std::nullopt;
  ScanArgs args{.product = kProduct,
                .exclusive = attrs.exclusive,
                .reverse = attrs.reverse,
                .grad = kGrad,
                .rows = view.outer * view.inner,
                .axis = view.axis,
                .inner = view.inner};
  if (!kGrad) SplitRows(&args);
  Kernel kernel = OwnKernel(spec, [args](Launches& launches) mutable {
    args.in = launches.in(0);
    if (args.grad) args.x = launches.in(1);
    args.out = launches.out(0);
    if (args.grad || args.chunks > 1) args.scratch = launches.scratch();
    if (args.chunks == 1) return launches.Add(args, args.rows);
    for (const ScanStage stage : {ScanStage::kTotals, ScanStage::kBefore, ScanStage::kChunks}) {
      args.stage = stage;
      launches.Add(args, stage == ScanStage::kBefore ? args.rows : args.rows * args.chunks);
    }
  });
  const int64_t of_row = kGrad ? args.axis : args.chunks > 1 ? args.chunks : 0;
  kernel.scratch_bytes = args.rows * of_row * static_cast<int64_t>(sizeof(int64_t));
  return kernel;
}

// All steps of the network.
void AddSteps(Launches& launches, SortArgs args) {
  const int64_t pairs = args.of.rows.count * args.padded / 2;
  const auto add = [&](SortStage stage) {
    args.stage = stage;
    launches.Add(args, pairs);
  };
  add(SortStage::kBegin);
  for (args.size = 2 * SortArgs::kChunk; args.size <= args.padded; args.size *= 2) {
    for (args.stride = args.size / 2; args.stride >= SortArgs::kChunk; args.stride /= 2) add(SortStage::kStep);
    add(SortStage::kChunks);
  }
}

Kernel Sort(const KernelSpec& spec, SortArgs args) {
  Kernel kernel = OwnKernel(spec, [args](Launches& launches) mutable {
    args.of.in = launches.in(0);
    args.of.values = launches.out(0);
    args.of.places = launches.out(1);
    args.places = reinterpret_cast<int32_t*>(launches.scratch());
    AddSteps(launches, args);
    args.stage = SortStage::kEnd;
    launches.Add(args, args.of.rows.count * args.of.k);
  });
  kernel.scratch_bytes = args.of.rows.count * SortBytes(args.of.axis);
  return kernel;
}

MaybeKernel MakeTopK(const KernelSpec& spec) {
  constexpr int64_t kFew = 16, kShort = 64;  // what is soon found one after the other
  const auto& attrs = spec.attributes<TopKAttrs>();
  const AxisView view = ViewAlong(spec.inputs[0].shape, static_cast<int>(attrs.axis));
  TopKArgs args{.rows = RowsOf(view.outer * view.inner, view.axis, view.inner),
                .axis = view.axis,
                .inner = view.inner,
                .k = attrs.k == 0 ? view.axis : attrs.k,
                .largest = attrs.largest};
  if (args.k > kFew && view.axis > kShort && SortBytes(view.axis) > 0) {
    return Sort(spec, {.of = args, .padded = PaddedForSorting(view.axis)});
  }
  return OwnKernel(spec, [args](Launches& launches) mutable {
    args.in = launches.in(0);
    args.values = launches.out(0);
    args.places = launches.out(1);
    launches.AddRows(args);
  });
}

constexpr KernelEntry kEntries[] = {
    {"CumSum", MakeScan<false>},
    {"CumProd", MakeScan<true>},
    {"CumProdGrad", MakeScan<true, true>},
    {"TopK", MakeTopK},
};

}  // namespace

int64_t SortBytes(int64_t n) {
  if (n > std::numeric_limits<int32_t>::max() / 2) return 0;
  return PaddedForSorting(n) * static_cast<int64_t>(sizeof(int32_t));
}

void AddSort(Launches& launches, const Source& values, int64_t n, int32_t* order) {
  const TopKArgs of{.rows = {.count = 1}, .in = values, .axis = n, .k = n, .largest = 0};
  AddSteps(launches, {.of = of, .padded = PaddedForSorting(n), .places = order});
}

KernelRows OrderKernels() { return kEntries; }

}  // namespace bindery::cuda
