#include "symbol/ops/shape_ops.h"

#include <cstring>

#include "base/host_tensor.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/copy.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/elementwise.h"

namespace bindery::cpu {
namespace {

// data -> output, axis i of which is axis axes[i] of data: a reorder of the same bytes seen with permuted strides.
MaybeKernel MakeTranspose(const KernelSpec& spec) {
  const Shape& out = spec.outputs[0].shape;
  const Shape& in = spec.inputs[0].shape;
  const int rank = in.rank();
  if (rank == 0 || SizeOf(spec.inputs[0].dtype) != 4) return std::nullopt;
  std::vector<int64_t> axes = spec.attributes<TransposeAttrs>().axes;
  if (axes.empty()) {
    for (int i = rank; i-- > 0;) axes.push_back(i);
  }
  dnnl::memory::dims strides(rank);
  for (int i = 0; i < rank; ++i) strides[i] = in.CountFrom(in.Axis(static_cast<int>(axes[i])) + 1);
  const dnnl::memory::desc source(Dims(out), dnnl::memory::data_type::f32, strides);
  const auto target = ToDesc(Format::Plain(), DType::kFloat32, out);
  Kernel kernel = PlainKernel(spec, "");
  kernel.threads = out.Elements() <= kSerialElements ? 1 : spec.threads;
  const TeamScope team(kernel.threads);
  const dnnl::reorder::primitive_desc desc(Engine(), source, Engine(), *target, UserScratchpad(), true);
  if (!desc) return std::nullopt;
  const DnnlStep step(
      dnnl::reorder(desc), desc, WhoOf(spec),
      {{DNNL_ARG_FROM, source, DnnlArgument::kInput, 0}, {DNNL_ARG_TO, *target, DnnlArgument::kOutput, 0}});
  kernel.implementation = std::string("dnnl ") + desc.impl_info_str();
  kernel.scratch_bytes = step.scratch_bytes();
  kernel.bind = [step](const KernelArgs& args) { return step.Bind(args); };
  return kernel;
}

MaybeKernel MakeConstant(const KernelSpec& spec) {
  const auto value = ConstantOf(spec);
  Kernel kernel = PlainKernel(spec, "copy");
  kernel.bind = [value](const KernelArgs& args) -> Call {
    return [value, y = args.outputs[0]] { ParallelCopy(y, value->raw(), value->bytes()); };
  };
  return kernel;
}

// Of one device.
MaybeKernel MakeMergeStatistics(const KernelSpec& spec) {
  return spec.inputs[0].shape == spec.outputs[0].shape ? ViewKernel(spec) : std::nullopt;
}

constexpr KernelEntry kEntries[] = {
    {"Identity", ViewKernel},       {"BlockGrad", ViewKernel},
    {"MakeLoss", ViewKernel},       {"LinearRegressionOutput", ViewKernel},
    {"Flatten", ViewKernel},        {"Reshape", ViewKernel},
    {"SumOverDevices", ViewKernel}, {"MergeStatistics", MakeMergeStatistics},
    {"Transpose", MakeTranspose},   {"Constant", MakeConstant},
    {"Scalar", MakeConstant},
};

}  // namespace

KernelRows ShapeKernels() { return kEntries; }

}  // namespace bindery::cpu
