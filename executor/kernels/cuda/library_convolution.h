// Convolutions by cuDNN (engine/cuda/cudnn_api.h), of plain floats of one type, where it can be had: what it takes,
// what of it is beyond own kernels' terms, and its plans.
//
// An engine is chosen when a kernel is bound, for that GPU: the first of those that cuDNN's heuristics name whose notes
// say nothing against it, so that it gives the same answers in every run, and keeps the digits. Where there is none,
// own kernels do it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "executor/kernels/cuda/launch.h"
#include "executor/kernels/cuda/product_args.h"

namespace bindery::cuda {

// y (N, G O, out...) of x (N, G C, in...) and w (G O, C, kernel...), or one of its gradients from the other and y's.
// With two spatial axes, or three; padded on both sides alike.
struct PlainConvolution {
  enum class What : uint8_t { kForward, kGradData, kGradWeight };
  What what = {};
  DType dtype = {};
  bool tf32 = false;  // operands may be rounded to it
  std::vector<int64_t> x = {}, w = {}, y = {};
  std::vector<int64_t> pad = {}, stride = {}, dilate = {};  // of spatial axes
  int64_t workspace_bytes = 0;                              // of scratch, for what may be chosen
  bool adds_addend = false, adds_bias = false;              // to y, before it is rounded: in one graph with it
};

// Nullopt: it is no such convolution, or there is no library.
std::optional<PlainConvolution> PlainConvolutionOf(const ProductArgs& args, const KernelSpec& spec);

// Adds the convolution with bias, addend and activation. False, and nothing is added: own kernels must do it.
bool AddLibraryConvolution(Launches& launches, const PlainConvolution& convolution, const ProductArgs& args);

}  // namespace bindery::cuda
