// Products with weights in panels, by loops of our own.
#pragma once

#include <cstdint>

#include "executor/kernel.h"
#include "symbol/ops/activation.h"

namespace bindery::cpu {

// y (m, n) = activation(x (m, k) w^T + bias), w (n, k): of inputs 0, 1 and `bias` (-1: none), float32; m, n, k >= 1.
struct PanelProduct {
  int64_t m, n, k;
  int bias = -1;
  ActivationType activation = ActivationType::kNone;
};

// What w lies in: panels of two vectors of outputs, (n / columns, k, columns), padded with zeros.
Format PanelFormat();

// Is it faster so than by oneDNN, as measured below AVX-512? Of so few weights, with what fills up panels, that
// oneDNN's packing of them in each call counts; and of enough outputs to fill half of a panel.
bool SuitsPanels(int64_t n, int64_t k);

// nullopt for other types. Sums are taken in order of k, whatever m is.
MaybeKernel MultiplyPanels(const KernelSpec& spec, const PanelProduct& product);

}  // namespace bindery::cpu
