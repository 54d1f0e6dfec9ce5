// Pooling by oneDNN, in the format in which the data come. A maximum's state is oneDNN's workspace; its name carries the
// format it was made for ("dnnl:aBcd8b"), so that the gradient makes the same primitive again.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "engine/team.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/makers.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/pooling.h"

namespace bindery::cpu {
namespace {

using dnnl::memory;

constexpr const char* kFamily = "dnnl:";

Format StateFormat(int64_t bytes, const Format& format) { return Format::Opaque(bytes, (kFamily + ToString(format)).c_str()); }

// The format that StateFormat put into the name; nullopt for states of other kernels.
std::optional<Format> FormatOfState(const Format& state, int rank) {
  if (state.kind != Format::Kind::kOpaque || std::strncmp(state.family.data(), kFamily, std::strlen(kFamily)) != 0) return std::nullopt;
  const std::string name = state.family.data() + std::strlen(kFamily);
  for (const Format& format : {Format::Plain(), Format::ChannelsLast(rank), ChannelBlocked(rank, 8), ChannelBlocked(rank, 16)}) {
    if (ToString(format) == name) return format;
  }
  return std::nullopt;
}

struct Problem {
  Shape data, output;
  dnnl::algorithm algorithm;
  memory::dims kernel, strides, pad_begin, pad_end;
  bool is_max;
  bool supported = true;
  double flops;

  Problem(const PoolingAttrs& attrs, const Shape& data_shape, const Shape& output_shape)
      : data(data_shape), output(output_shape), is_max(attrs.type == PoolType::kMax) {
    algorithm = is_max                   ? dnnl::algorithm::pooling_max
                : attrs.count_include_pad ? dnnl::algorithm::pooling_avg_include_padding
                                          : dnnl::algorithm::pooling_avg_exclude_padding;
    flops = static_cast<double>(output.Elements());
    int axis = 2;
    for (const PoolWindow& w : PoolWindows(attrs, data)) {
      // `full` may reach beyond the padding; there an average's window is cut, which oneDNN does not do.
      const int64_t reach = (w.output - 1) * w.stride + w.kernel - data[axis++] - w.pad_begin;
      if (reach > w.pad_end && !is_max && attrs.count_include_pad) supported = false;
      kernel.push_back(w.kernel);
      strides.push_back(w.stride);
      pad_begin.push_back(w.pad_begin);
      pad_end.push_back(std::max(reach, w.pad_end));
      flops *= static_cast<double>(w.kernel);
    }
  }

  using Desc = dnnl::pooling_forward::primitive_desc;
  Desc Forward(const Format& format, bool training) const {
    const auto x = ToDesc(format, DType::kFloat32, data), y = ToDesc(format, DType::kFloat32, output);
    const auto kind = training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    return Desc({kind, algorithm, *x, *y, strides, kernel, pad_begin, pad_end}, UserScratchpad(), Engine(), true);
  }
};

bool IsKnown(const Format& format, const Shape& shape) {
  ChannelView view;
  return ViewChannels(format, shape, 1, &view);
}

}  // namespace

// data -> y [, state if max]
MaybeKernel MakePooling(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::kFloat32) return std::nullopt;
  const Problem p(spec.attributes<PoolingAttrs>(), spec.inputs[0].shape, spec.outputs[0].shape);
  if (!p.supported) return std::nullopt;
  const int rank = p.data.rank();
  const bool wants_state = p.is_max && spec.output_used[1];
  std::vector<Format> formats;
  if (IsKnown(spec.input_formats[0], p.data)) formats.push_back(spec.input_formats[0]);
  formats.push_back(p.data[1] % SimdBlock() == 0 ? ChannelBlocked(rank, SimdBlock()) : Format::ChannelsLast(rank));
  formats.push_back(Format::Plain());

  Kernel kernel = PlainKernel(spec, "");
  kernel.threads = ThreadsForWork(spec, p.flops);
  const TeamScope team(kernel.threads);
  Problem::Desc desc;
  Format format;
  for (const Format& candidate : formats) {
    Problem::Desc next = p.Forward(candidate, wants_state);
    if (!next || (desc && IsSlow(next.impl_info_str()))) continue;
    desc = next;
    format = candidate;
    if (!IsSlow(desc.impl_info_str())) break;
  }
  if (!desc) return std::nullopt;

  std::vector<DnnlArgument> arguments = {{DNNL_ARG_SRC, desc.src_desc(), DnnlArgument::kInput, 0},
                                         {DNNL_ARG_DST, desc.dst_desc(), DnnlArgument::kOutput, 0}};
  if (wants_state) arguments.push_back({DNNL_ARG_WORKSPACE, desc.workspace_desc(), DnnlArgument::kOutput, 1});
  const DnnlStep step(dnnl::pooling_forward(desc), desc, WhoOf(spec), std::move(arguments));
  kernel.implementation = std::string("dnnl ") + desc.impl_info_str();
  kernel.input_formats[0] = Canonical(format, p.data);
  kernel.output_formats[0] = Canonical(format, p.output);
  if (p.is_max) kernel.output_formats[1] = StateFormat(wants_state ? static_cast<int64_t>(desc.workspace_desc().get_size()) : 0, format);
  kernel.scratch_bytes = step.scratch_bytes();
  kernel.bind = [step](const KernelArgs& args) { return step.Bind(args); };
  return kernel;
}

// (dy, data: shape only [, state if max]) -> dx
MaybeKernel MakePoolingGrad(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::kFloat32) return std::nullopt;
  const Problem p(spec.attributes<PoolingAttrs>(), spec.inputs[1].shape, spec.inputs[0].shape);
  if (!p.supported) return std::nullopt;
  std::optional<Format> format;
  if (p.is_max) {
    format = FormatOfState(spec.input_formats[2], p.data.rank());
    if (!format) return std::nullopt;
  } else {
    // As the data lie, if they do not lie plain; the output gradient may have no layout of its own (1 x 1).
    const Format& of_data = spec.input_formats[1];
    format = !of_data.is_plain() && IsKnown(of_data, p.data) ? of_data : spec.input_formats[0];
    if (!IsKnown(*format, p.output)) format = Format::Plain();
  }
  Kernel kernel = PlainKernel(spec, "");
  kernel.threads = ThreadsForWork(spec, p.flops);
  const TeamScope team(kernel.threads);
  const auto hint = p.Forward(*format, true);
  if (!hint) return std::nullopt;
  const dnnl::pooling_backward::primitive_desc desc({p.algorithm, hint.src_desc(), hint.dst_desc(), p.strides, p.kernel, p.pad_begin, p.pad_end},
                                                    UserScratchpad(), Engine(), hint, true);
  if (!desc) return std::nullopt;

  std::vector<DnnlArgument> arguments = {{DNNL_ARG_DIFF_DST, desc.diff_dst_desc(), DnnlArgument::kInput, 0},
                                         {DNNL_ARG_DIFF_SRC, desc.diff_src_desc(), DnnlArgument::kOutput, 0}};
  if (p.is_max) arguments.push_back({DNNL_ARG_WORKSPACE, hint.workspace_desc(), DnnlArgument::kInput, 2});
  const DnnlStep step(dnnl::pooling_backward(desc), desc, WhoOf(spec), std::move(arguments));
  kernel.implementation = std::string("dnnl ") + desc.impl_info_str();
  kernel.input_formats[0] = Canonical(*format, p.output);
  kernel.input_formats[1] = spec.input_formats[1];
  if (p.is_max) kernel.input_formats[2] = spec.input_formats[2];
  kernel.output_formats[0] = Canonical(*format, p.data);
  kernel.scratch_bytes = step.scratch_bytes();
  kernel.bind = [step](const KernelArgs& args) { return step.Bind(args); };
  return kernel;
}

}  // namespace bindery::cpu
