#include "tools/cli/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "base/log.h"
#include "base/names.h"

namespace bindery::cli {
namespace {

constexpr std::string_view kBegin = "BINDERY_";

constexpr EnvironmentVariable kVariables[] = {
    {"BINDERY_CUBLASLT", "no: products on GPUs are by own kernels, not by cuBLASLt."},
    {"BINDERY_CUDA_GRAPHS", "no: what a step puts on a GPU is enqueued piece by piece, not as CUDA graphs."},
    {"BINDERY_CUDNN", "no: convolutions on GPUs are by own kernels, not by cuDNN."},
    {"BINDERY_MAX_ISA", "The highest instruction set for kernels of CPUs: baseline, avx2 or avx512 (without AMX)."},
    {"BINDERY_NCCL", "no: GPUs exchange by copies, not by NCCL."},
    {"BINDERY_NVRTC",
     "no: elementwise operators behind each other are one launch each on GPUs, not one kernel by NVRTC."},
    {"BINDERY_TF32", "yes: libraries may round what they multiply on GPUs to TF32, of 11 bits."},
};

}  // namespace

std::span<const EnvironmentVariable> EnvironmentVariables() { return kVariables; }

void WarnOfUnknownVariables(const std::vector<std::string>& options) {
  std::vector<std::string> known = options;
  for (const EnvironmentVariable& variable : kVariables) known.emplace_back(variable.name);
  std::vector<std::string> ends;  // what all begin with makes none of them near
  for (const std::string& name : known) ends.push_back(name.substr(kBegin.size()));
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    if (!name.starts_with(kBegin) || name.starts_with("BINDERY_TEST_") || std::ranges::count(known, name) > 0) continue;
    const std::string nearest = NearestName(name.substr(kBegin.size()), ends);
    LogLine(LogLevel::kWarning,
            fmt::format("{} in the environment is nothing that is read{}", name,
                        nearest.empty() ? "" : fmt::format("; did you mean {}{}?", kBegin, nearest)));
  }
}

}  // namespace bindery::cli
