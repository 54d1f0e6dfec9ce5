#include "executor/kernels/cpu/panel_product.h"

#include <algorithm>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernels/cpu/activation_pass.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/operations.h"

namespace bindery::cpu {
namespace {

// What stays near: so many rows of x in the second cache, so much of a panel's depth in the first.
constexpr int64_t kRows = 192, kDepth = 256;
constexpr int64_t kMostColumns = 32;  // of a panel, in any vectors

int64_t PanelColumns() { return 2 * BestLoops().lanes; }

class Loop {
 public:
  Loop(const PanelProduct& product, int threads)
      : p_(product), activation_(product.activation), columns_(PanelColumns()), panels_(CeilDiv(p_.n, columns_)),
        by_rows_(p_.m >= 2 * kBlock * threads || CeilDiv(p_.m, kBlock) >= panels_) {}

  // By rows, of which a thread may have written its own part, or by panels, where there are too few rows.
  void operator()(const Arguments& args) const {
    if (by_rows_) {
      ParallelFor(p_.m, kBlock, 0, [&](int64_t begin, int64_t end, int) { Multiply(args, begin, end, 0, panels_); });
    } else {
      ParallelFor(panels_, 1, 0, [&](int64_t begin, int64_t end, int) { Multiply(args, 0, p_.m, begin, end); });
    }
  }

 private:
  static constexpr int64_t kBlock = 6;  // rows that are computed at once

  void Multiply(const Arguments& args, int64_t row, int64_t last_row, int64_t panel, int64_t last_panel) const {
    if (panel == last_panel) return;
    for (; row < last_row; row += kRows) {
      MultiplyRows(args, row, std::min(kRows, last_row - row), panel, last_panel);
    }
  }

  // Part by part of the depth, of which a panel stays near while all rows go by.
  void MultiplyRows(const Arguments& args, int64_t row, int64_t rows, int64_t first, int64_t last) const {
    alignas(64) float edge[kRows * kMostColumns], edge_bias[kMostColumns];  // of the last panel, if it is broken
    const float* const bias = p_.bias < 0 ? nullptr : args.in(p_.bias);
    float* const y = args.out(0) + row * p_.n;
    for (int64_t at = 0; at < p_.k; at += kDepth) {
      for (int64_t panel = first; panel < last; ++panel) {
        const int64_t column = panel * columns_;
        const bool whole = column + columns_ <= p_.n;
        const float* begin = bias ? bias + column : nullptr;
        if (bias && !whole && at == 0) {
          std::fill(std::copy(begin, bias + p_.n, edge_bias), edge_bias + columns_, 0.0F);
          begin = edge_bias;
        }
        float* const to = whole ? y + column : edge;
        const int64_t y_row = whole ? p_.n : columns_;
        BestLoops().multiply_strip({.a = args.in(0) + row * p_.k + at,
                                    .a_row = p_.k,
                                    .b = args.in(1) + (panel * p_.k + at) * columns_,
                                    .y = to,
                                    .y_row = y_row,
                                    .rows = rows,
                                    .depth = std::min(kDepth, p_.k - at),
                                    .vectors = 2,
                                    .begin = at > 0 ? to : begin,
                                    .begin_row = at > 0 ? y_row : 0});
      }
    }
    const int64_t begin = first * columns_, end = std::min(last * columns_, p_.n);
    for (int64_t i = 0; i < rows; ++i) {
      if (end == p_.n && end % columns_ != 0) {
        const int64_t width = end % columns_;
        std::copy_n(edge + i * columns_, width, y + (i + 1) * p_.n - width);
      }
      if (activation_.loop) activation_.Serial(y + i * p_.n + begin, end - begin);
    }
  }

  PanelProduct p_;
  ActivationPass<float> activation_;
  int64_t columns_, panels_;
  bool by_rows_;
};

}  // namespace

Format PanelFormat() {
  Format format{.kind = Format::Kind::kStrided, .order = {0, 1}, .rank = 2, .num_blocks = 1};
  format.block_size[0] = static_cast<int16_t>(PanelColumns());
  return format;
}

bool SuitsPanels(int64_t n, int64_t k) {
  constexpr int64_t kMostWeights = 1024 * 1024;
  const int64_t columns = PanelColumns();
  return 2 * n >= columns && CeilDiv(n, columns) * columns * k <= kMostWeights;
}

MaybeKernel MultiplyPanels(const KernelSpec& spec, const PanelProduct& p) {
  if (!AllFloat(spec)) return std::nullopt;
  Kernel kernel = PlainKernel(spec, "panels");
  kernel.threads = ThreadsForWork(spec, OperationsOfSums(spec.outputs[0].shape, spec.inputs[1].shape));
  kernel.input_formats[1] = Canonical(PanelFormat(), spec.inputs[1].shape);
  const Loop loop(p, kernel.threads);
  return WithLoop(std::move(kernel), loop);
}

}  // namespace bindery::cpu
