// Products with weights in panels, by loops of our own.
#pragma once

#include <cstdint>

#include "executor/kernel.h"
#include "symbol/ops/activation.h"

namespace bindery::cpu {

// y (m, n) = activation(x (m, k) w^T + bias), w (n, k): of inputs 0, 1 and `bias` (-1: none), float32.
struct PanelProduct {
  int64_t m, n, k;
  int bias = -1;
  ActivationType activation = ActivationType::kNone;

  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

// What w lies in: panels of two vectors of outputs, (n / columns, k, columns), padded with zeros.
Format PanelFormat();

// nullopt for other types. Sums are taken in order of k, whatever m is.
MaybeKernel MultiplyPanels(const KernelSpec& spec, const PanelProduct& product);

}  // namespace bindery::cpu
