#include "executor/kernels/cpu/dnnl_util.h"

#include <dnnl_debug.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

#include "engine/cpu/pages.h"
#include "engine/isa.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/plan/operations.h"

namespace bindery::cpu {
namespace {

using dnnl::memory;

constexpr std::string_view kPrefix = "dnnl ";  // of an implementation, for the plan

// It crashes where it gets none. 64 MiB, and what glibc's malloc may reserve for the heap of another thread in between.
constexpr int64_t kLeastAddressSpace = int64_t{64 + 128} << 20;

// Where outer block and inner block of each axis lie, in elements, for a format that pads to whole blocks.
std::optional<dnnl::memory::desc> BlockedDesc(const Format& format, memory::data_type type, const Shape& shape) {
  memory::dims strides(shape.rank());
  std::array<int64_t, Shape::kMaxRank> block;
  block.fill(1);
  int64_t inner = 1;
  for (int i = 0; i < format.num_blocks; ++i) {
    block[format.block_axis[i]] *= format.block_size[i];
    inner *= format.block_size[i];
  }
  const Shape padded = PaddedShape(format, shape);
  for (int i = format.rank - 1; i >= 0; --i) {
    const int axis = format.order[i];
    strides[axis] = inner;
    inner *= std::max<int64_t>(padded[axis] / block[axis], 1);
  }
  // oneDNN refuses outer strides as "overlapping" while it does not know of the blocks: they are put in afterwards.
  memory::dims dense(shape.rank(), 1);
  for (int i = shape.rank() - 1; i > 0; --i) dense[i - 1] = dense[i] * std::max<int64_t>(shape[i], 1);
  memory::desc desc(Dims(shape), type, dense);
  auto& blocking = desc.data.format_desc.blocking;
  for (int axis = 0; axis < shape.rank(); ++axis) blocking.strides[axis] = strides[axis];
  blocking.inner_nblks = format.num_blocks;
  for (int i = 0; i < format.num_blocks; ++i) {
    blocking.inner_idxs[i] = format.block_axis[i];
    blocking.inner_blks[i] = format.block_size[i];
  }
  for (int axis = 0; axis < shape.rank(); ++axis) desc.data.padded_dims[axis] = padded[axis];
  return desc;
}

bool IsPlainBlocking(const dnnl_memory_desc_t& md) {
  if (md.format_kind != dnnl_blocked || md.offset0 != 0 || md.extra.flags != dnnl_memory_extra_flag_none) return false;
  return std::all_of(md.padded_offsets, md.padded_offsets + md.ndims, [](dnnl_dim_t offset) { return offset == 0; });
}

// The axes from outermost to innermost by stride; an axis of extent 1 stands inside its equals. Checked by whoever
// calls.
std::vector<int> OrderOf(const dnnl_memory_desc_t& md, const std::vector<int64_t>& outer) {
  std::vector<int> order(md.ndims);
  for (int i = 0; i < md.ndims; ++i) order[i] = i;
  const auto* strides = md.format_desc.blocking.strides;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return strides[a] != strides[b] ? strides[a] > strides[b] : outer[a] > outer[b];
  });
  return order;
}

struct Execution {
  dnnl::primitive primitive;
  dnnl::stream stream;
  std::vector<memory> memories;
  std::vector<dnnl_exec_arg_t> arguments;
  std::string who;

  void Run() const {
    const dnnl_status_t status =
        dnnl_primitive_execute(primitive.get(), stream.get(), static_cast<int>(arguments.size()), arguments.data());
    if (status != dnnl_success) [[unlikely]] {
      Throw<DeviceError>("{}: oneDNN failed with status {} ({})", who, static_cast<int>(status),
                         dnnl_status2str(status));
    }
  }
};

}  // namespace

bool Allows(dnnl::cpu_isa isa) {
  static const int allowed = [] {
    // Later oneDNN would not listen: the first of its primitives, and the question below, settle the matter.
    const std::optional<Isa> limit = IsaLimit();
    if (limit == Isa::kBaseline) dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41);
    if (limit == Isa::kAvx2) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
    if (limit == Isa::kAvx512) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);  // AMX is more
    return static_cast<int>(dnnl::get_effective_cpu_isa());
  }();
  const int wanted = static_cast<int>(isa);
  return (allowed & wanted) == wanted;
}

const dnnl::engine& Engine() {
  if (const int64_t left = AvailableAddressSpace(); left < kLeastAddressSpace) {
    Throw<DeviceError>(
        "oneDNN needs {} MiB of address space to make kernels, {} MiB are left: that of the process is limited (ulimit "
        "-v)",
        kLeastAddressSpace >> 20, left >> 20);
  }
  static const dnnl::engine engine = [] {
    Allows(dnnl::cpu_isa::sse41);  // before anything else
    // Its own Gemm, which others use when they run, is made by its first call: now, while there is room.
    const float one = 1;
    float sum = 0;
    dnnl_sgemm('N', 'N', 1, 1, 1, 1, &one, 1, &one, 1, 0, &sum, 1);
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

std::optional<memory::data_type> ToDnnl(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return memory::data_type::f32;
    case DType::kBFloat16: return memory::data_type::bf16;
    case DType::kFloat16: return memory::data_type::f16;
    case DType::kInt8: return memory::data_type::s8;
    case DType::kUInt8: return memory::data_type::u8;
    case DType::kInt32: return memory::data_type::s32;
    default: return std::nullopt;
  }
}

memory::dims Dims(const Shape& shape) {
  if (shape.rank() == 0) return {1};
  return {shape.begin(), shape.end()};
}

memory::desc AnyDesc(const Shape& shape, memory::data_type type) {
  return {Dims(shape), type, memory::format_tag::any};
}

bool IsOfDnnl(const KernelSpec& spec) {
  return AllFloat(spec) || (AllOf(spec, DType::kBFloat16) && Allows(dnnl::cpu_isa::avx512_core_bf16));
}

memory::data_type DnnlTypeOf(const KernelSpec& spec) { return *ToDnnl(spec.inputs[0].dtype); }

bool FitsDnnl(const KernelSpec& spec) {
  const auto fits = [](const ValueType& value) {
    return std::ranges::all_of(value.shape, [](int64_t extent) { return extent <= INT32_MAX; });
  };
  return std::ranges::all_of(spec.inputs, fits) && std::ranges::all_of(spec.outputs, fits);
}

bool IsSlow(const char* implementation) { return std::strncmp(implementation, "ref", 3) == 0; }
bool IsSlow(const Kernel& kernel) {
  return kernel.implementation.starts_with(kPrefix) && IsSlow(kernel.implementation.c_str() + kPrefix.size());
}

std::optional<memory::desc> ToDesc(const Format& format, DType dtype, const Shape& shape) {
  const auto type = ToDnnl(dtype);
  if (!type || format.kind == Format::Kind::kOpaque) return std::nullopt;
  if (format.kind == Format::Kind::kStrided && shape.rank() > 0) return BlockedDesc(format, *type, shape);
  const memory::dims dims = Dims(shape);
  memory::dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(dims[i], 1);
  }
  return memory::desc(dims, *type, strides);
}

std::optional<Format> FromDesc(const memory::desc& desc, const Shape& shape) {
  const dnnl_memory_desc_t& md = desc.data;
  if (shape.rank() == 0) return Format::Plain();
  if (!IsPlainBlocking(md) || md.ndims != shape.rank() || md.format_desc.blocking.inner_nblks > 4) return std::nullopt;
  const auto& blocking = md.format_desc.blocking;
  Format format;
  format.kind = Format::Kind::kStrided;
  format.rank = static_cast<int8_t>(md.ndims);
  format.num_blocks = static_cast<int8_t>(blocking.inner_nblks);
  std::vector<int64_t> outer(md.padded_dims, md.padded_dims + md.ndims);
  for (int i = 0; i < blocking.inner_nblks; ++i) {
    format.block_axis[i] = static_cast<int8_t>(blocking.inner_idxs[i]);
    format.block_size[i] = static_cast<int16_t>(blocking.inner_blks[i]);
    outer[blocking.inner_idxs[i]] /= blocking.inner_blks[i];
  }
  const std::vector<int> order = OrderOf(md, outer);
  for (int i = 0; i < md.ndims; ++i) format.order[i] = static_cast<int8_t>(order[i]);
  const Shape padded = PaddedShape(format, shape);
  for (int axis = 0; axis < md.ndims; ++axis) {
    if (md.dims[axis] != shape[axis] || md.padded_dims[axis] != padded[axis]) return std::nullopt;
  }
  const auto check = ToDesc(format, DType::kFloat32, shape);
  for (int axis = 0; axis < md.ndims; ++axis) {
    if (outer[axis] > 1 && check->data.format_desc.blocking.strides[axis] != blocking.strides[axis])
      return std::nullopt;
  }
  return Canonical(format, shape);
}

std::optional<Format> FromGroupedDesc(const memory::desc& desc, const Shape& shape) {
  const dnnl_memory_desc_t& md = desc.data;
  if (!IsPlainBlocking(md) || md.ndims != shape.rank() + 1) return std::nullopt;
  const auto& blocking = md.format_desc.blocking;
  // Axis 0 (groups) and 1 (outputs of a group) become one axis: possible if only one of them is blocked and the outputs
  // are not padded within their group, and the groups stand directly outside the outputs.
  const int64_t groups = md.dims[0], per_group = md.dims[1];
  const bool depthwise = per_group == 1 && md.padded_dims[1] == 1;
  if (!depthwise && (md.padded_dims[0] != groups || md.padded_dims[1] != per_group)) return std::nullopt;
  dnnl_memory_desc_t joined = md;
  joined.ndims = md.ndims - 1;
  int64_t block_of_outputs = 1;
  for (int i = 0; i < blocking.inner_nblks; ++i) {
    const auto axis = blocking.inner_idxs[i];
    if (axis == (depthwise ? 1 : 0)) return std::nullopt;
    if (axis <= 1) block_of_outputs *= blocking.inner_blks[i];
    joined.format_desc.blocking.inner_idxs[i] = axis == 0 ? 0 : axis - 1;
  }
  auto& strides = joined.format_desc.blocking.strides;
  if (!depthwise && groups > 1 && blocking.strides[0] != per_group / block_of_outputs * blocking.strides[1])
    return std::nullopt;
  const auto stride_of_outputs = depthwise ? blocking.strides[0] : blocking.strides[1];
  for (int i = 1; i < joined.ndims; ++i) {
    joined.dims[i] = md.dims[i + 1];
    joined.padded_dims[i] = md.padded_dims[i + 1];
    strides[i] = blocking.strides[i + 1];
  }
  joined.dims[0] = groups * per_group;
  joined.padded_dims[0] = depthwise ? md.padded_dims[0] : groups * per_group;
  strides[0] = stride_of_outputs;
  return FromDesc(memory::desc(joined), shape);
}

Kernel WithDnnl(Kernel kernel, std::string who, const dnnl::primitive& primitive, const char* info,
                const memory::desc& scratch, std::vector<DnnlArgument> arguments) {
  for (const DnnlArgument& argument : arguments) {
    auto& formats = argument.role == DnnlArgument::kInput ? kernel.input_formats : kernel.output_formats;
    formats[argument.index] = argument.format;
  }
  kernel.implementation = std::string(kPrefix) + info;
  kernel.scratch_bytes = static_cast<int64_t>(scratch.get_size());
  if (kernel.scratch_bytes > 0) arguments.push_back({DNNL_ARG_SCRATCHPAD, scratch, DnnlArgument::kScratch});
  kernel.bind = [primitive, who = std::move(who), arguments = std::move(arguments)](const KernelArgs& args) -> Call {
    auto execution = std::make_shared<Execution>(Execution{primitive, dnnl::stream(Engine()), {}, {}, who});
    for (const DnnlArgument& argument : arguments) {
      void* const address = argument.role == DnnlArgument::kInput    ? args.inputs[argument.index]
                            : argument.role == DnnlArgument::kOutput ? args.outputs[argument.index]
                                                                     : args.scratch;
      execution->memories.emplace_back(argument.desc, Engine(), address);
      execution->arguments.push_back({argument.argument, execution->memories.back().get()});
    }
    return [execution = std::shared_ptr<const Execution>(std::move(execution))] { execution->Run(); };
  };
  return kernel;
}

dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

int ThreadsForWork(const KernelSpec& spec, double flops) { return flops < kSharedOperations ? 1 : spec.threads; }

}  // namespace bindery::cpu
