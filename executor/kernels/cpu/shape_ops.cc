#include "symbol/ops/shape_ops.h"

#include "base/host_tensor.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/elementwise.h"

namespace bindery::cpu {
namespace {

MaybeKernel MakeConstant(const KernelSpec& spec) {
  const auto value = ConstantOf(spec);
  Kernel kernel = PlainKernel(spec, "copy");
  kernel.bind = [value](const KernelArgs& args) -> Call {
    return [value, y = args.outputs[0]] { ParallelCopy(y, value->raw(), value->bytes()); };
  };
  return kernel;
}

constexpr KernelEntry kEntries[] = {
    {"Identity", ViewKernel},       {"BlockGrad", ViewKernel},
    {"MakeLoss", ViewKernel},       {"LinearRegressionOutput", ViewKernel},
    {"Flatten", ViewKernel},        {"Reshape", ViewKernel},
    {"SumOverDevices", ViewKernel},  // of one device
    {"Constant", MakeConstant},     {"Scalar", MakeConstant},
};

}  // namespace

KernelRows ShapeKernels() { return kEntries; }

}  // namespace bindery::cpu
