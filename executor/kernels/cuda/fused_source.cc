#include "executor/kernels/cuda/fused_source.h"

#include <fmt/format.h>

#include <iterator>

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
  const std::string place = input.reads == FusedProgram::Reads::kSame  ? "i"
                            : input.reads == FusedProgram::Reads::kOne ? "0"
                                                                       : fmt::format("PlaceOf(args, {}, i)", number);
  return fmt::format("Read<{}>(args, {}, {})", NameOf(input.dtype), number, place);
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
  std::string source = fmt::format(
      R"(#include "executor/kernels/cuda/fused_body.h"

using namespace bindery;
using namespace bindery::cuda;
using namespace bindery::native;
using T = {};

extern "C" __global__ void bindery_fused(const __grid_constant__ FusedArgs args) {{
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.n; i += step) {{
)",
      program.in_double ? "double" : "float");
  size_t value = 0;
  const auto add = [&](const std::string& text) {
    fmt::format_to(std::back_inserter(source), "    const T v{} = {};\n", value++, text);
  };
  for (const FusedProgram::Input& input : program.inputs) add(TextOf(input, value));
  for (const FusedProgram::Step& step : program.steps) add(TextOf(step));
  fmt::format_to(std::back_inserter(source), "    Write<{}>(args, i, v{});\n  }}\n}}\n",
                 NameOf(program.steps.back().dtype), value - 1);
  return source;
}

std::vector<FusedHeader> FusedHeaders() {
  std::vector<FusedHeader> headers(std::begin(kFusedTexts), std::end(kFusedTexts));
  for (const char* const name : kStandard) {
    headers.push_back({name, "#include \"executor/kernels/cuda/nvrtc_std.cuh\"\n"});
  }
  return headers;
}

}  // namespace bindery::cuda
