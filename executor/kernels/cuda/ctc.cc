// Connectionist temporal classification.
#include "symbol/ops/ctc.h"

#include "base/checked.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cuda/ctc_args.h"
#include "executor/kernels/cuda/launch.h"

namespace bindery::cuda {
namespace {

// ([dy,] data, label [, data_lengths] [, label_lengths]) -> loss, or the gradient of data
template <bool kGradient>
MaybeKernel MakeCTC(const KernelSpec& spec) {
  constexpr size_t kData = kGradient ? 1 : 0;
  const auto& attrs = spec.attributes<CTCLossAttrs>();
  const Shape &data = spec.inputs[kData].shape, &label = spec.inputs[kData + 1].shape;
  CTCArgs args{.steps = data[0],
               .samples = data[1],
               .classes = data[2],
               .labels = label[1],
               .blank = attrs.blank < 0 ? attrs.blank + data[2] : attrs.blank,
               .zero_infinity = attrs.zero_infinity};
  const int64_t sums =
      RoundUp(args.samples * args.sums_of_sample(kGradient) * static_cast<int64_t>(sizeof(double)), 64);
  Kernel kernel = OwnKernel(spec, [args, sums](Launches& launches) mutable {
    if (kGradient) {
      launches.Read({&args.dy, &args.data, &args.label, &args.data_lengths, &args.label_lengths});
    } else {
      launches.Read({&args.data, &args.label, &args.data_lengths, &args.label_lengths});
    }
    args.out = launches.out(0);
    args.sums = reinterpret_cast<double*>(launches.scratch());
    args.states = reinterpret_cast<int32_t*>(launches.scratch(sums));
    args.faults = launches.faults();
    launches.AddBlocks(args, args.samples);
  });
  kernel.scratch_bytes = sums + args.samples * args.states_of_sample() * static_cast<int64_t>(sizeof(int32_t));
  return kernel;
}

constexpr KernelEntry kEntries[] = {{"CTCLoss", MakeCTC<false>}, {"CTCLossGrad", MakeCTC<true>}};

}  // namespace

KernelRows CTCKernels() { return kEntries; }

}  // namespace bindery::cuda
