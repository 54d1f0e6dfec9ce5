// The gradients of recurrent layers, as they are computed forward (recurrent.cc), from the last step to the first.
// Those of weights are one product for all steps, which is another operator's.
#include <cmath>

#include "engine/kernels/flat.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/recurrent_layer.h"
#include "executor/kernels/cpu/through_float.h"

namespace bindery::cpu {
namespace {

using recurrent::kTile, recurrent::Layer, recurrent::WithScratch;

template <class Real>
struct Backward : Layer<Real> {
  using Layer<Real>::form, Layer<Real>::attrs, Layer<Real>::loops;
  using GateEnds = typename LoopsOf<Real>::GateEnds;
  GateEnds sigmoids, tanhs, relus;

  Backward(const KernelSpec& spec, DType saved)
      : Layer<Real>(spec, spec.outputs[0].shape, 5), sigmoids(EndsOf("sigmoid", saved)), tanhs(EndsOf("tanh", saved)),
        relus(EndsOf("relu", saved)) {}

  // By the same functions as forward, so the same bits.
  GateEnds EndsOf(const char* function, DType saved) const {
    if (attrs.clip == 0) return {NAN, NAN};
    Real ends[] = {-this->clip, this->clip}, rounded[2];
    loops.activation[native::ActivationFunctions::Find(function)](ends, ends, 2);
    flat::Cast(kDTypeOf<Real>, ends, saved, rounded, 2);
    flat::Cast(saved, rounded, kDTypeOf<Real>, ends, 2);
    return {ends[0], ends[1]};
  }

  // The weights as they are, block by block of columns: the panels of kTile columns, of depth G H.
  int64_t panel() const { return form.gates * form.hidden * kTile; }
  int64_t shared() const { return CheckedMul(this->blocks(), panel()); }
  // The gradients of the data's and of the products' gates; of state and cell, in tiles; a tile.
  int64_t own() const {
    return CheckedMul(
        CheckedAdd(CheckedMul(form.hidden, 2 * form.gates), CheckedAdd(CheckedMul(this->padded(), 2), kTile)), kTile);
  }

  void Pack(const Real* weight, Real* panels) const {
    const int64_t rows = form.gates * form.hidden, width = this->panel_width(), count = this->padded() / width * rows;
    ParallelFor(count, kGrain, kSerialElements / width, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t column = std::min(i / rows * width, form.hidden), n = std::min(form.hidden - column, width);
        std::copy_n(weight + i % rows * form.hidden + column, n, panels + i * width);
        std::fill_n(panels + i * width + n, width - n, Real{0});
      }
    });
  }

  static void ClearEnds(const GateEnds& ends, const Real* gates, Real* gradients, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      if (gates[i] <= ends.low || gates[i] >= ends.high) gradients[i] = 0;
    }
  }

  // Of one step of one sample for a block of hidden units; dx and d_product are rows of gates.
  void Step(const Arguments& args, int64_t at, int64_t block, Real* dh, Real* dc, Real* dx, Real* d_product) const {
    const int64_t unit = block * kTile, n = this->width(block), hidden = form.hidden;
    const Real* saved = this->In(args, 7) + at * form.saved * hidden;
    const Real* previous = this->In(args, 6) + at * hidden + unit;
    if (this->is_lstm()) {
      loops.lstm_grad({.saved = this->template Gates<4>(saved, unit),
                       .peephole = this->Peepholes(this->In(args, 4), unit),
                       .cell = this->In(args, 8) + at * hidden + unit,
                       .dh = dh,
                       .sigmoids = sigmoids,
                       .tanhs = tanhs,
                       .coupled = attrs.coupled,
                       .dx = this->template Gates<4>(dx, unit),
                       .dc = dc},
                      n);
      std::fill_n(dh, n, Real{0});
    } else if (this->is_gru()) {
      loops.gru_grad({.saved = this->template Gates<4>(saved, unit),
                      .before = previous,
                      .sigmoids = sigmoids,
                      .tanhs = tanhs,
                      .dx = this->template Gates<3>(dx, unit),
                      .d_product = attrs.reset_after ? d_product + 2 * hidden + unit : nullptr,
                      .dh = dh},
                     n);
    } else {
      const bool is_tanh = attrs.cell == RecurrentCell::kTanh;
      const size_t function = native::ActivationGradFunctions::Find(is_tanh ? "tanh" : "relu");
      loops.activation_grad[function](dh, saved + unit, dx + unit, n);
      ClearEnds(is_tanh ? tanhs : relus, saved + unit, dx + unit, n);
      std::fill_n(dh, n, Real{0});
    }
  }

  // y (samples, kTile) += rows of gates [first, first + gates) times their weights
  void Multiply(const Real* panels, const Real* rows, int64_t block, int64_t samples, int64_t first, int64_t gates,
                Real* y) const {
    const int64_t hidden = form.hidden;
    this->MultiplyByPanels(rows + first * hidden, form.gates * hidden,
                           panels + block * panel() + first * hidden * this->panel_width(), form.gates * hidden,
                           gates * hidden, samples, this->width(block), /*add=*/true, y);
  }

  void Run(const Arguments& args, const Real* panels, int64_t first, int64_t samples, Real* scratch) const {
    const int64_t hidden = form.hidden, gates = form.gates * hidden, tiles = this->padded() * kTile;
    Real *const dx = scratch, *const d_products = dx + gates * kTile, *const dh = d_products + gates * kTile;
    Real *const dc = dh + tiles, *const reset = dc + tiles;
    const bool apart = this->is_gru() && attrs.reset_after, resets_before = this->resets_before();
    std::fill_n(scratch, own(), Real{0});
    std::array<int64_t, kTile> lengths;
    int64_t longest = 0;
    const auto move = [&](int64_t row, const auto& f) {  // f(a block's part of a tile, of a row of hidden units, count)
      for (int64_t block = 0; block < this->blocks(); ++block) {
        f((block * kTile + row) * kTile, block * kTile, this->width(block));
      }
    };
    // The last step of each sample begins with these: products before it are of other samples.
    const auto begin = [&](int64_t row) {
      const int64_t from = (first + row) * hidden;
      move(row, [&](int64_t tile, int64_t unit, int64_t n) {
        std::copy_n(this->In(args, 1) + from + unit, n, dh + tile);
        if (this->is_lstm()) std::copy_n(this->In(args, 2) + from + unit, n, dc + tile);
      });
    };
    for (int64_t row = 0; row < samples; ++row) {
      lengths[row] = this->LengthOf(args, first + row);
      longest = std::max(longest, lengths[row]);
    }
    for (int64_t step = longest; step-- > 0;) {
      const auto for_rows = [&](const auto& f) {
        for (int64_t row = 0; row < samples; ++row) {
          if (step < lengths[row]) f(row, this->Row(first + row, step, lengths[row]));
        }
      };
      for_rows([&](int64_t row, int64_t at) {
        if (step == lengths[row] - 1) begin(row);
        move(row, [&](int64_t tile, int64_t unit, int64_t n) {
          loops.axpy(this->In(args, 0) + at * hidden + unit, dh + tile, n, 1);
          Step(args, at, unit / kTile, dh + tile, dc + tile, dx + row * gates, d_products + row * gates);
        });
      });
      for (int64_t block = 0; block < this->blocks() && resets_before; ++block) {
        std::fill_n(reset, kTile * kTile, Real{0});
        Multiply(panels, dx, block, samples, 2, 1, reset);
        for_rows([&](int64_t row, int64_t at) { ResetBefore(args, at, row, block, reset, dh, dx); });
      }
      for_rows([&](int64_t row, int64_t at) {
        Real *own = dx + row * gates, *products = d_products + row * gates;
        if (Real* out = this->Out(args, 0)) std::copy_n(own, gates, out + at * gates);
        if (!apart) return;
        std::copy_n(own, 2 * hidden, products);
        if (Real* out = this->Out(args, 3)) std::copy_n(products, gates, out + at * gates);
      });
      for (int64_t block = 0; block < this->blocks(); ++block) {
        Multiply(panels, apart ? d_products : dx, block, samples, 0, resets_before ? 2 : form.gates,
                 dh + block * kTile * kTile);
      }
    }
    for (int64_t row = 0; row < samples; ++row) {
      if (lengths[row] == 0) begin(row);
      move(row, [&](int64_t tile, int64_t unit, int64_t n) {
        if (Real* out = this->Out(args, 1)) std::copy_n(dh + tile, n, out + (first + row) * hidden + unit);
        if (Real* out = this->Out(args, 2)) std::copy_n(dc + tile, n, out + (first + row) * hidden + unit);
      });
    }
  }

  // From the gradient of r * h: that of r's gate, and what it adds to that of h.
  void ResetBefore(const Arguments& args, int64_t at, int64_t row, int64_t block, Real* reset, Real* dh,
                   Real* dx) const {
    const int64_t unit = block * kTile, n = this->width(block), hidden = form.hidden;
    const Real* r = this->In(args, 7) + at * 4 * hidden + form.place[0] * hidden + unit;
    Real *own = reset + row * kTile, *to = dx + row * form.gates * hidden + form.place[0] * hidden + unit;
    loops.template BinaryOf<native::fn::Mul>()(own, this->In(args, 6) + at * hidden + unit, to, n);
    loops.activation_grad[native::ActivationGradFunctions::Find("sigmoid")](to, r, to, n);
    ClearEnds(sigmoids, r, to, n);
    loops.template BinaryOf<native::fn::Mul>()(own, r, own, n);
    loops.axpy(own, dh + (block * kTile + row) * kTile, n, 1);
  }
};

template <class Real, DType kSaved = kDTypeOf<Real>>
MaybeKernel MakeRecurrentGrad(const KernelSpec& spec) {
  const Backward<Real> layer(spec, kSaved);
  const int64_t shared = layer.shared(), own = layer.own();
  return WithLoop(WithScratch<Real>(spec, "fused", shared, own), [=](const Arguments& args) {
    Real* const panels = static_cast<Real*>(args.scratch);
    layer.Pack(layer.In(args, 3), panels);
    const int64_t gates = layer.form.gates * layer.form.hidden;
    layer.ClearUndone(args, {{0, gates}, {3, gates}});
    layer.ForSamples([&](int64_t first, int64_t samples, int thread) {
      layer.Run(args, panels, first, samples, panels + shared + thread * own);
    });
  });
}

MaybeKernel MakeRecurrentGradOfFloats(const KernelSpec& spec) {
  switch (spec.inputs[0].dtype) {
    case DType::kBFloat16: return ThroughFloat(spec, MakeRecurrentGrad<float, DType::kBFloat16>);
    case DType::kFloat16: return ThroughFloat(spec, MakeRecurrentGrad<float, DType::kFloat16>);
    default: return OfReals<MakeRecurrentGrad<float>, MakeRecurrentGrad<double>>(spec);
  }
}

constexpr KernelEntry kEntries[] = {
    {"RecurrentGrad", MakeRecurrentGradOfFloats},
};

}  // namespace

KernelRows RecurrentGradKernels() { return kEntries; }

}  // namespace bindery::cpu
