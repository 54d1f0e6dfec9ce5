// Element by element: the rows of executor/kernels/functions.h, and what is like them.
#include "symbol/ops/elementwise.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "engine/backend.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cuda/elementwise_args.h"
#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/native_functions.h"
#include "executor/kernels/rules.h"
#include "symbol/ops/activation.h"
#include "symbol/ops/curve.h"

namespace bindery::cuda {
namespace {

// f of the first `inputs` inputs, stretched to the output.
Kernel Map(const KernelSpec& spec, MapArgs args, int inputs) {
  const Shape& shape = spec.outputs[0].shape;
  args.inputs = inputs;
  args.compute = spec.inputs[0].dtype;
  args.grid = GridOf(shape);
  for (int k = 0; k < inputs; ++k) {
    const ValueType& input = spec.inputs[static_cast<size_t>(k)];
    args.strides[k] = StretchedStrides(input.shape, shape);
    args.mixed |= input.dtype != args.compute;
  }
  JoinAxes(&args.grid, {&args.strides[0], &args.strides[1], &args.strides[2]});
  args.flat = args.grid.rank <= 1;
  Kernel kernel = OwnKernel(spec, [args](Launches& launches) mutable {
    for (int k = 0; k < args.inputs; ++k) args.in[k] = launches.in(static_cast<size_t>(k));
    args.out = launches.out(0);
    launches.Add(args, args.grid.n);
  });
  kernel.inplace = PairsOfOneSize(spec);
  return kernel;
}

// The flags of the function at a place of a list.
template <class... F>
unsigned FlagsOf(std::type_identity<FunctionList<F...>>, size_t place) {
  constexpr unsigned kFlags[] = {F::kFlags...};
  return kFlags[place];
}

template <class List, Family kFamily, int kInputs>
MaybeKernel AtPlace(const KernelSpec& spec, size_t place) {
  const unsigned flags = FlagsOf(std::type_identity<List>(), place);
  const DType dtype = spec.inputs[0].dtype;
  if ((flags & kFloatsOnly) && !IsFloat(dtype)) return std::nullopt;
  if ((flags & kIntegersOnly) && (IsFloat(dtype) || dtype == DType::kBool)) return std::nullopt;
  MapArgs args{.family = kFamily, .function = static_cast<int32_t>(place)};
  args.saturates = (flags & kSaturates) != 0;
  return Map(spec, args, kInputs);
}

template <class List, Family kFamily, int kInputs>
MaybeKernel OfList(const KernelSpec& spec) {
  return AtPlace<List, kFamily, kInputs>(spec, List::Find(spec.op->name));
}

template <class List, Family kFamily, int kInputs>
MaybeKernel MakeActivation(const KernelSpec& spec) {
  return AtPlace<List, kFamily, kInputs>(spec, static_cast<size_t>(spec.attributes<ActivationAttrs>().type) - 1);
}

MaybeKernel MakeCurve(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<CurveAttrs>();
  const bool gradient = spec.inputs.size() == 2;
  return Map(spec,
             {.family = gradient ? Family::kCurveGrad : Family::kCurve,
              .function = static_cast<int32_t>(attrs.type),
              .a = attrs.alpha,
              .b = attrs.beta},
             gradient ? 2 : 1);
}

MaybeKernel MakeCast(const KernelSpec& spec) { return Map(spec, {.family = Family::kCast, .saturates = 1}, 1); }
MaybeKernel MakeAddReluGrad(const KernelSpec& spec) { return Map(spec, {.family = Family::kAddReluGrad}, 3); }

// (data, label: not read) -> 1 / (1 + e^-data)
MaybeKernel MakeLogisticRegressionOutput(const KernelSpec& spec) {
  return Map(spec, {.family = Family::kActivation, .function = static_cast<int32_t>(ActivationType::kSigmoid) - 1}, 1);
}

// (output, label) -> f(output - label) grad_scale / (elements per sample); a label has the output's elements, in any
// shape.
template <Family kFamily>
MaybeKernel MakeRegressionGrad(const KernelSpec& spec) {
  const ValueType& output = spec.inputs[0];
  const int64_t n = output.shape.Elements();
  const int64_t samples = output.shape.rank() == 0 ? 1 : output.shape[std::max(output.batch_axis, 0)];
  const double per_sample = n == 0 ? 1 : static_cast<double>(n / samples);
  KernelSpec flat = spec;
  for (ValueType* type : {&flat.inputs[0], &flat.inputs[1], &flat.outputs[0]}) type->shape = {n};
  Kernel kernel =
      Map(flat, {.family = kFamily, .a = spec.attributes<LinearRegressionOutputAttrs>().grad_scale / per_sample}, 2);
  kernel.inplace = {};
  return kernel;
}

MaybeKernel MakeWhere(const KernelSpec& spec) {
  const Shape& shape = spec.outputs[0].shape;
  WhereArgs args{.unit = static_cast<int32_t>(SizeOf(spec.outputs[0].dtype)), .grid = GridOf(shape)};
  for (int k = 0; k < 3; ++k) {
    args.strides[k] = StretchedStrides(spec.inputs[static_cast<size_t>(k)].shape, shape);
  }
  JoinAxes(&args.grid, {&args.strides[0], &args.strides[1], &args.strides[2]});
  return OwnKernel(spec, [args](Launches& launches) mutable {
    args.condition = launches.in(0).data;
    args.in[0] = launches.in(1).data;
    args.in[1] = launches.in(2).data;
    args.out = launches.out(0).data;
    launches.Add(args, args.grid.n);
  });
}

// (dy, mask) -> dy mask / (1 - p)
MaybeKernel MakeDropoutGrad(const KernelSpec& spec) {
  const double factor = DropsNothing(spec) ? 1 : 1 / (1 - spec.attributes<DropoutAttrs>().p);
  return Map(spec, {.family = Family::kMasked, .a = factor}, 2);
}

MaybeKernel MakeAddN(const KernelSpec& spec) {
  const ValueType& out = spec.outputs[0];
  Kernel kernel =
      OwnKernel(spec, [dtype = out.dtype, n = out.shape.Elements(), count = spec.inputs.size()](Launches& launches) {
        std::vector<const void*> in;
        for (size_t i = 0; i < count; ++i) in.push_back(launches.in(i).data);
        launches.Add([=, to = launches.out(0).data](CudaStream& stream) {
          Backend::Of(DeviceKind::kCuda).flat().Sum(stream, dtype, in, to, n);
        });
      });
  kernel.inplace = PairsOfOneSize(spec);
  return kernel;
}

// A row for each function of a list.
template <class... F>
constexpr auto ListRows(std::type_identity<FunctionList<F...>>, KernelMaker make) {
  return std::array<KernelEntry, sizeof...(F)>{KernelEntry{F::kName, make}...};
}
template <class List, Family kFamily, int kInputs>
constexpr auto RowsOfList() {
  return ListRows(std::type_identity<List>(), OfList<List, kFamily, kInputs>);
}
constexpr auto kUnary = RowsOfList<native::UnaryFunctions, Family::kUnary, 1>();
constexpr auto kPredicates = RowsOfList<native::Predicates, Family::kPredicate, 1>();
constexpr auto kBinary = RowsOfList<native::BinaryFunctions, Family::kBinary, 2>();
constexpr auto kRelations = RowsOfList<native::Relations, Family::kRelation, 2>();

constexpr KernelEntry kEntries[] = {
    {"Activation", MakeActivation<native::ActivationFunctions, Family::kActivation, 1>},
    {"ActivationGrad", MakeActivation<native::ActivationGradFunctions, Family::kActivationGrad, 2>},
    {"Curve", OfFloats<MakeCurve>},
    {"CurveGrad", OfFloats<MakeCurve>},
    {"Cast", MakeCast},
    {"AddReluGrad", MakeAddReluGrad},
    {"LogisticRegressionOutput", OfFloats<MakeLogisticRegressionOutput>},
    {"LinearRegressionOutputGrad", OfFloats<MakeRegressionGrad<Family::kDifference>>},
    {"MAERegressionOutputGrad", OfFloats<MakeRegressionGrad<Family::kDifferenceSign>>},
    {"DropoutGrad", OfFloats<MakeDropoutGrad>},
    {"Where", MakeWhere},
    {"AddN", MakeAddN},
};

}  // namespace

KernelRows UnaryKernels() { return kUnary; }
KernelRows PredicateKernels() { return kPredicates; }
KernelRows BinaryKernels() { return kBinary; }
KernelRows RelationKernels() { return kRelations; }
KernelRows ElementwiseKernels() { return kEntries; }

}  // namespace bindery::cuda
