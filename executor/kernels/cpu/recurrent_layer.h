// What the kernels of recurrent layers share, forward and backward.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "engine/team.h"
#include "executor/kernels/cpu/recurrent_panels.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/recurrent.h"

namespace bindery::cpu::recurrent {

template <class Real>
struct Layer {
  const LoopsOf<Real>& loops = BestLoops<Real>();
  RecurrentAttrs attrs;
  RecurrentForm form;
  std::vector<int> ins, outs;  // where the slots are
  int lengths_slot;
  DType lengths_dtype = DType::kInt64;
  Real clip;

  Layer(const KernelSpec& spec, const Shape& data, int lengths)
      : attrs(spec.attributes<RecurrentAttrs>()), form(FormOf(attrs, data)), ins(PlacesIn(spec.op->inputs, spec.attrs)),
        outs(PlacesIn(spec.op->outputs, spec.attrs)), lengths_slot(lengths),
        clip(attrs.clip > 0 ? static_cast<Real>(attrs.clip) : std::numeric_limits<Real>::infinity()) {
    if (attrs.lengths) lengths_dtype = spec.inputs[ins[lengths]].dtype;
  }

  bool is_lstm() const { return attrs.cell == RecurrentCell::kLstm; }
  bool is_gru() const { return attrs.cell == RecurrentCell::kGru; }
  bool resets_before() const { return is_gru() && !attrs.reset_after; }
  int64_t blocks() const { return CeilDiv(form.hidden, kTile); }  // of hidden units
  int64_t width(int64_t block) const { return std::min(kTile, form.hidden - block * kTile); }
  int64_t padded() const { return blocks() * kTile; }
  bool IsSmall() const {
    return static_cast<double>(form.samples) * static_cast<double>(form.steps) *
               static_cast<double>(form.hidden * form.hidden * form.gates) <=
           4.0 * kSerialElements;
  }
  // Are there too few samples for all threads? Those that take units wait for each other, so a step must be worth it.
  bool IsByUnits() const {
    constexpr int64_t kLeast = int64_t{1} << 18;  // products of each thread in a step
    const int64_t threads = TeamSize(), panels = CeilDiv(form.hidden, panel_width());
    if (threads == 1 || form.gates * form.hidden * form.hidden * form.samples < kLeast * threads) return false;
    // Panels of the thread that has most.
    return 3 * CeilDiv(panels, threads) * form.samples <= 2 * CeilDiv(form.samples, threads) * panels;
  }
  const Real* In(const Arguments& args, int slot) const { return ins[slot] < 0 ? nullptr : args.in<Real>(ins[slot]); }
  Real* Out(const Arguments& args, int slot) const { return outs[slot] < 0 ? nullptr : args.out<Real>(outs[slot]); }

  int64_t LengthOf(const Arguments& args, int64_t sample) const {
    if (!attrs.lengths) return form.steps;
    const double length = Numbers(lengths_dtype, args.inputs[ins[lengths_slot]])[sample];
    if (!(length >= 0 && length <= static_cast<double>(form.steps) && length == std::floor(length))) {
      Throw<DataError>("sample {} has {} steps, not 0..{}", sample, length, form.steps);
    }
    return static_cast<int64_t>(length);
  }
  // The row of a value of all steps for the step-th one that is done.
  int64_t Row(int64_t sample, int64_t step, int64_t length) const {
    return (attrs.reverse ? length - 1 - step : step) * form.next_step + sample * form.next_sample;
  }
  // Values of all steps are zero where no step is done.
  void ClearUndone(const Arguments& args, std::initializer_list<std::pair<int, int64_t>> outputs) const {
    if (!attrs.lengths) return;
    for (const auto& [slot, extent] : outputs) {
      if (Real* out = Out(args, slot)) {
        const int64_t n = form.steps * form.samples * extent;
        ParallelFor(n, kGrain, kSerialElements,
                    [&](int64_t begin, int64_t end, int) { std::fill(out + begin, out + end, Real{0}); });
      }
    }
  }
  std::array<const Real*, 3> Peepholes(const Real* peephole, int64_t unit) const {
    std::array<const Real*, 3> of{};
    for (int k = 0; k < 3 && peephole; ++k) of[k] = peephole + form.peephole[k] * form.hidden + unit;
    return of;
  }
  template <size_t kCount, class Pointer>
  std::array<Pointer, kCount> Gates(Pointer row, int64_t unit) const {
    std::array<Pointer, kCount> of{};
    for (size_t k = 0; k < kCount && row; ++k) of[k] = row + form.place[k] * form.hidden + unit;
    return of;
  }

  // Weights of kTile columns lie in panels, (rows, panel_width()) each: two vectors that are multiplied at once.
  int64_t panel_width() const { return WeightPanels<Real>::width(); }

  // y (samples, kTile) = a (samples, depth) times as many rows of the panels of kTile columns, of which `columns` are
  // wanted; added to y if `add`. Part by part of the depth, which stays near while all samples go by.
  void MultiplyByPanels(const Real* a, int64_t a_row, const Real* panels, int64_t panel_rows, int64_t depth,
                        int64_t samples, int64_t columns, bool add, Real* y) const {
    constexpr int64_t kDepth = 256;
    const int64_t width = panel_width();
    for (int64_t column = 0; column < columns; column += width, panels += panel_rows * width, y += width) {
      for (int64_t at = 0; at < depth; at += kDepth) {
        loops.multiply_strip({.a = a + at,
                              .a_row = a_row,
                              .b = panels + at * width,
                              .y = y,
                              .y_row = kTile,
                              .rows = samples,
                              .depth = std::min(kDepth, depth - at),
                              .vectors = 2,
                              .begin = add || at > 0 ? y : nullptr,
                              .begin_row = add || at > 0 ? kTile : 0});
      }
    }
  }

  // For up to 64 samples at a time: f(first sample, samples, thread).
  template <class F>
  void ForSamples(const F& f) const {
    ParallelFor(form.samples, 1, IsSmall() ? form.samples : 0, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t first = begin; first < end; first += kTile) f(first, std::min(kTile, end - first), thread);
    });
  }
};

template <class Real>
Kernel WithScratch(const KernelSpec& spec, const char* implementation, int64_t shared, int64_t own) {
  Kernel kernel = PlainKernel(spec, implementation);
  kernel.scratch_bytes = CheckedMul(CheckedAdd(shared, CheckedMul(own, spec.threads)), sizeof(Real));
  return kernel;
}

}  // namespace bindery::cpu::recurrent
