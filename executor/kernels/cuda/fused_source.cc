#include "executor/kernels/cuda/fused_source.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

#include "executor/kernels/cuda/fused_texts.h"

namespace bindery::cuda {
namespace {

const char* NameOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return "double";
    case DType::kBFloat16: return "bfloat16";
    case DType::kFloat16: return "float16";
    default: return "float";
  }
}

std::string TextOf(const FusedProgram::Input& input, size_t number) {
  using enum FusedProgram::Reads;
  const char* const type = NameOf(input.dtype);
  if (input.reads == kOne) return fmt::format("ReadOne<{}>(args, {})", type, number);
  return fmt::format("{}<{}>(args, {}, i)", input.reads == kSame ? "Read" : "ReadStretched", type, number);
}

std::string TextOf(const FusedProgram::Step& step) {
  if (!step.list) return fmt::format("As<{}>(v{})", NameOf(step.dtype), step.operands[0]);
  const bool is_curve = step.list == std::string_view("CurveFunctions");
  std::string operands = fmt::format("v{}", fmt::join(step.operands, ", v"));
  if (is_curve) operands += fmt::format(", T({:a}), T({:a})", step.a, step.b);
  return fmt::format("As<{}>({}<{}, {}>({}))", NameOf(step.dtype),
                     is_curve && step.operands.size() == 2 ? "TimesSlope" : "Call", step.list, step.place, operands);
}

// In place of these, for NVRTC.
constexpr const char* kStandard[] = {"algorithm", "base/dtype.h", "bit",         "cmath",       "cstddef",
                                     "cstdint",   "limits",       "string_view", "type_traits", "utility"};

}  // namespace

std::string FusedSource(const FusedProgram& program) {
  std::vector<std::string> parameters, operands;
  std::string reads, steps;
  size_t value = 0;
  for (const FusedProgram::Input& input : program.inputs) {
    parameters.push_back(fmt::format("T v{}", value));
    operands.push_back(fmt::format("x{}.v[e]", value));
    reads += fmt::format("    const auto x{} = {};\n", value, TextOf(input, value));
    ++value;
  }
  for (const FusedProgram::Step& step : program.steps) {
    steps += fmt::format("  const T v{} = {};\n", value++, TextOf(step));
  }
  return fmt::format(
      R"(#include "executor/kernels/cuda/fused_body.h"

using namespace bindery;
using namespace bindery::cuda;
using namespace bindery::native;
using T = {};

__device__ T Chain({}) {{
{}  return v{};
}}

extern "C" __global__ void bindery_fused(const __grid_constant__ FusedArgs args) {{
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t pack = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; pack < args.packs(); pack += step) {{
    const int64_t i = pack * FusedArgs::kPack;
{}    Pack<T, FusedArgs::kPack> y;
#pragma unroll
    for (int e = 0; e < FusedArgs::kPack; ++e) y.v[e] = Chain({});
    Write<{}>(args, i, y);
  }}
}}
)",
      program.in_double ? "double" : "float", fmt::join(parameters, ", "), steps, value - 1, reads,
      fmt::join(operands, ", "), NameOf(program.steps.back().dtype));
}

std::vector<FusedHeader> FusedHeaders() {
  std::vector<FusedHeader> headers(std::begin(kFusedTexts), std::end(kFusedTexts));
  for (const char* const name : kStandard) {
    headers.push_back({name, "#include \"executor/kernels/cuda/nvrtc_std.cuh\"\n"});
  }
  return headers;
}

}  // namespace bindery::cuda
