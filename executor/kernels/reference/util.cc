#include "executor/kernels/reference/util.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/checked.h"

namespace bindery::reference {
namespace {

constexpr char kFamily[] = "reference";

void Load(DType dtype, const void* from, int64_t n, double* to) {
  Dispatch(dtype, [&]<class T>() {
    const T* typed = static_cast<const T*>(from);
    for (int64_t i = 0; i < n; ++i) to[i] = LoadDouble(typed[i]);
  });
}

// The lowest bits, as far as a double has them.
template <class T>
T LowestBits(double number) {
  return std::fabs(number) < 0x1p63 ? static_cast<T>(static_cast<int64_t>(number)) : StoreDouble<T>(number);
}

void Store(DType dtype, const double* from, int64_t n, void* to, Integers integers) {
  Dispatch(dtype, [&]<class T>() {
    T* typed = static_cast<T*>(to);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (integers == Integers::kWrap) return void(std::transform(from, from + n, typed, LowestBits<T>));
    }
    for (int64_t i = 0; i < n; ++i) typed[i] = StoreDouble<T>(from[i]);
  });
}

// A tensor with a copy in double.
struct Converted {
  int index;
  DType dtype;
  int64_t elements;
  int64_t scratch_offset;  // bytes
};

// What one InDouble kernel converts.
struct Conversions {
  std::vector<Converted> inputs, outputs;
  int64_t scratch_bytes = 0;

  int64_t Reserve(int64_t doubles) {
    const int64_t offset = scratch_bytes;
    scratch_bytes = CheckedAdd(scratch_bytes, RoundUp(CheckedMul(doubles, sizeof(double)), 64));
    return offset;
  }
  void Add(std::vector<Converted>& list, int index, const ValueType& type) {
    const int64_t elements = type.shape.Elements();
    list.push_back({index, type.dtype, elements, Reserve(elements)});
  }
};

Kernel PlainKernel(const KernelSpec& spec) {
  Kernel kernel;
  kernel.implementation = kFamily;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    kernel.input_formats.push_back(IsReferenceState(spec.input_formats[i]) ? spec.input_formats[i] : Format::Plain());
  }
  kernel.output_formats.resize(spec.outputs.size());
  return kernel;
}

Tensors Addresses(const KernelArgs& args) {
  Tensors tensors;
  for (const void* p : args.inputs) tensors.raw_in.push_back(static_cast<const std::byte*>(p));
  for (void* p : args.outputs) tensors.raw_out.push_back(static_cast<std::byte*>(p));
  tensors.step = args.step;
  return tensors;
}

}  // namespace

Kernel InDouble(const KernelSpec& spec, Loop loop, std::vector<Format> output_formats, Integers integers) {
  Kernel kernel = PlainKernel(spec);
  if (!output_formats.empty()) kernel.output_formats = std::move(output_formats);

  auto conversions = std::make_shared<Conversions>();
  for (int i = 0; i < static_cast<int>(spec.inputs.size()); ++i) {
    if (!kernel.input_formats[i].is_plain()) continue;
    conversions->Add(conversions->inputs, i, spec.inputs[i]);
  }
  for (int i = 0; i < static_cast<int>(spec.outputs.size()); ++i) {
    if (!kernel.output_formats[i].is_plain()) continue;
    conversions->Add(conversions->outputs, i, spec.outputs[i]);
  }
  kernel.scratch_bytes = conversions->scratch_bytes;

  // Every input is read before the first output is written.
  for (const InplacePair& pair : spec.op->inplace) {
    const ValueType& input = spec.inputs[pair.input];
    const ValueType& output = spec.outputs[pair.output];
    if (input.shape == output.shape && SizeOf(input.dtype) == SizeOf(output.dtype)) kernel.inplace.push_back(pair);
  }

  kernel.bind = [conversions, integers, loop = std::move(loop)](const KernelArgs& args) -> Call {
    Tensors tensors = Addresses(args);
    tensors.in.resize(args.inputs.size());
    tensors.out.resize(args.outputs.size());
    const auto doubles = [&](int64_t offset) {
      return reinterpret_cast<double*>(static_cast<std::byte*>(args.scratch) + offset);
    };
    for (const Converted& c : conversions->inputs) tensors.in[c.index] = doubles(c.scratch_offset);
    for (const Converted& c : conversions->outputs) tensors.out[c.index] = doubles(c.scratch_offset);
    return [conversions, integers, loop, tensors = std::move(tensors)] {
      for (const Converted& c : conversions->inputs) {
        Load(c.dtype, tensors.raw_in[c.index], c.elements, const_cast<double*>(tensors.in[c.index]));
      }
      for (const Converted& c : conversions->outputs) std::fill_n(tensors.out[c.index], c.elements, 0.0);
      loop(tensors);
      for (const Converted& c : conversions->outputs) {
        if (void* to = tensors.raw_out[c.index]) Store(c.dtype, tensors.out[c.index], c.elements, to, integers);
      }
    };
  };
  return kernel;
}

Kernel OnBytes(const KernelSpec& spec, Loop loop, std::vector<InplacePair> inplace) {
  Kernel kernel = PlainKernel(spec);
  kernel.inplace = std::move(inplace);
  kernel.bind = [loop = std::move(loop)](const KernelArgs& args) -> Call {
    return [loop, tensors = Addresses(args)] { loop(tensors); };
  };
  return kernel;
}

MaybeKernel Copy(const KernelSpec& spec) {
  const size_t bytes = static_cast<size_t>(StorageBytes(Format::Plain(), spec.outputs[0].dtype, spec.outputs[0].shape));
  return OnBytes(spec,
                 [bytes](const Tensors& t) {
                   if (bytes > 0 && t.raw_out[0] && t.raw_in[0] != t.raw_out[0])
                     std::memcpy(t.raw_out[0], t.raw_in[0], bytes);
                 },
                 {{0, 0}});
}

Format StateFormat(int64_t bytes) { return Format::Opaque(bytes, kFamily); }

bool IsReferenceState(const Format& format) {
  return format.kind == Format::Kind::kOpaque && std::strcmp(format.family.data(), kFamily) == 0;
}

double Activate(ActivationType type, double x) {
  switch (type) {
    case ActivationType::kNone: return x;
    case ActivationType::kRelu: return std::max(x, 0.0);  // NaN stays NaN
    case ActivationType::kSigmoid: return 1 / (1 + std::exp(-x));
    case ActivationType::kTanh: return std::tanh(x);
    case ActivationType::kSoftRelu: return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    case ActivationType::kSoftSign: return x / (1 + std::fabs(x));
  }
  return x;
}

double ActivateGrad(ActivationType type, double dy, double y) {
  switch (type) {
    case ActivationType::kNone: return dy;
    case ActivationType::kRelu: return y > 0 ? dy : 0;
    case ActivationType::kSigmoid: return dy * y * (1 - y);
    case ActivationType::kTanh: return dy * (1 - y * y);
    case ActivationType::kSoftRelu: return dy * -std::expm1(-y);
    case ActivationType::kSoftSign: return dy * (1 - std::fabs(y)) * (1 - std::fabs(y));
  }
  return dy;
}

Strides PlainStrides(const Shape& shape) { return BroadcastStrides(shape, shape); }

Strides BroadcastStrides(const Shape& shape, const Shape& to) {
  Strides strides{};
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const int to_axis = axis + to.rank() - shape.rank();
    strides[to_axis] = shape[axis] == to[to_axis] ? stride : 0;
    stride *= shape[axis];
  }
  return strides;
}

Strides ReducedStrides(const Shape& shape, uint32_t reduced) {
  Strides strides{};
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (reduced >> axis & 1u) continue;
    strides[axis] = stride;
    stride *= shape[axis];
  }
  return strides;
}

void CopyBox(const Shape& box, int64_t size, const std::byte* source, const Strides& source_strides, std::byte* target,
             const Strides& target_strides) {
  Walk<2>(box, {source_strides, target_strides}, [&](const std::array<int64_t, 2>& at) {
    std::memcpy(target + at[1] * size, source + at[0] * size, static_cast<size_t>(size));
  });
}

}  // namespace bindery::reference
