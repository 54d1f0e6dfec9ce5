// The functions of cuBLASLt, NVIDIA's library of products of matrices, that are used: a table of typed pointers, as that
// of the driver (runtime_api.h), from a library that is opened when the first product is made for a GPU. Where it is
// absent, broken or left out, there is no table, and whoever wanted it has kernels of his own.
//
// Thread safe.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <string>

#include "engine/cuda/library.h"

namespace bindery::cuda {

class Gpu;

// Names and types are those of cublasLt.h.
struct CublasLtApi {
  static constexpr AboutLibrary kAbout{.name = "BINDERY_CUBLASLT",
                                       .file = "libcublasLt.so.13",
                                       .without = "products on GPUs are by own kernels: no cuBLASLt"};
  LibraryFunctions find = {};  // default: all are null
  decltype(&::cublasLtCreate) create = find("cublasLtCreate");
  decltype(&::cublasLtGetStatusName) get_status_name = find("cublasLtGetStatusName");
  decltype(&::cublasLtMatmulDescCreate) matmul_desc_create = find("cublasLtMatmulDescCreate");
  decltype(&::cublasLtMatmulDescDestroy) matmul_desc_destroy = find("cublasLtMatmulDescDestroy");
  decltype(&::cublasLtMatmulDescSetAttribute) matmul_desc_set_attribute = find("cublasLtMatmulDescSetAttribute");
  decltype(&::cublasLtMatrixLayoutCreate) matrix_layout_create = find("cublasLtMatrixLayoutCreate");
  decltype(&::cublasLtMatrixLayoutDestroy) matrix_layout_destroy = find("cublasLtMatrixLayoutDestroy");
  decltype(&::cublasLtMatrixLayoutSetAttribute) matrix_layout_set_attribute = find("cublasLtMatrixLayoutSetAttribute");
  decltype(&::cublasLtMatmulPreferenceCreate) matmul_preference_create = find("cublasLtMatmulPreferenceCreate");
  decltype(&::cublasLtMatmulPreferenceDestroy) matmul_preference_destroy = find("cublasLtMatmulPreferenceDestroy");
  decltype(&::cublasLtMatmulPreferenceSetAttribute) matmul_preference_set_attribute =
      find("cublasLtMatmulPreferenceSetAttribute");
  decltype(&::cublasLtMatmulAlgoGetHeuristic) matmul_algo_get_heuristic = find("cublasLtMatmulAlgoGetHeuristic");
  decltype(&::cublasLtMatmul) matmul = find("cublasLtMatmul");
};
using CublasLtPtr = std::shared_ptr<const CublasLtApi>;

// As library.h says: opens another of its kind; what is used from now on; what is used.
CublasLtPtr OpenCublasLt(const std::string& library);
void UseCublasLt(CublasLtPtr api);
CublasLtPtr CublasLt();

// Of the GPU, made by the first call and never destroyed, as GPUs are not. Null, and a line was logged, if it cannot be
// made.
cublasLtHandle_t HandleOf(const CublasLtApi& api, Gpu& gpu);

// May products of float32 round their operands to TF32, of 11 bits? By default they may not, unless the environment has
// BINDERY_TF32=yes. Read when a program is compiled; throws Error if the environment says neither yes nor no.
bool Tf32IsUsed();
void UseTf32(bool use);

}  // namespace bindery::cuda
