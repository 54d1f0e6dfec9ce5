// The functions of NVRTC, NVIDIA's compiler as a library, that are used: a table of typed pointers, as that of cuBLASLt
// (cublaslt_api.h), from a library that is opened when anything is compiled for a GPU first: a network, a metric or an
// operator that is called by itself. Where it is absent, broken or left out, there is no table, and operators are
// launched one by one.
//
// What is used of nvrtc.h is declared here, as it has it since CUDA 11.2, enums as the integers that they are passed
// as: so its header need not be there to build.
//
// Thread safe.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "engine/cuda/library.h"

namespace bindery::cuda {

struct NvrtcProgram;      // _nvrtcProgram
using NvrtcResult = int;  // nvrtcResult
inline constexpr NvrtcResult kNvrtcSuccess = 0, kNvrtcErrorCompilation = 6;

// Names are those of nvrtc.h.
struct NvrtcApi {
  static constexpr AboutLibrary kAbout{.name = "BINDERY_NVRTC",
                                       .file = "libnvrtc.so.13",
                                       .without = "elementwise operators on GPUs are launched one by one: no NVRTC"};
  LibraryFunctions find = {};  // default: all are null
  const char* (*get_error_string)(NvrtcResult result) = find("nvrtcGetErrorString");
  NvrtcResult (*version)(int* major, int* minor) = find("nvrtcVersion");
  NvrtcResult (*create_program)(NvrtcProgram** program, const char* source, const char* name, int num_headers,
                                const char* const* headers,
                                const char* const* header_names) = find("nvrtcCreateProgram");
  NvrtcResult (*destroy_program)(NvrtcProgram** program) = find("nvrtcDestroyProgram");
  NvrtcResult (*compile_program)(NvrtcProgram* program, int num_options,
                                 const char* const* options) = find("nvrtcCompileProgram");
  NvrtcResult (*get_program_log_size)(NvrtcProgram* program,
                                      size_t* bytes) = find("nvrtcGetProgramLogSize");  // with the 0 at its end
  NvrtcResult (*get_program_log)(NvrtcProgram* program, char* log) = find("nvrtcGetProgramLog");
  NvrtcResult (*get_cubin_size)(NvrtcProgram* program, size_t* bytes) = find("nvrtcGetCUBINSize");
  NvrtcResult (*get_cubin)(NvrtcProgram* program, char* cubin) = find("nvrtcGetCUBIN");
};
using NvrtcPtr = std::shared_ptr<const NvrtcApi>;

// As library.h says: opens another of its kind; what is used from now on; what is used.
NvrtcPtr OpenNvrtc(const std::string& library);
void UseNvrtc(NvrtcPtr api);
NvrtcPtr Nvrtc();

}  // namespace bindery::cuda
