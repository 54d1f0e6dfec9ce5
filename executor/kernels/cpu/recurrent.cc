// Recurrent layers: threads take samples, which have nothing to do with each other, and go through all steps without
// waiting for one another. A step is a product of the states of up to 64 samples and the weights, which are packed once
// in panels of two vectors of columns, those of 64 hidden units and of their gates one after another, and one vector
// loop over these units for all gates.
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/recurrent_layer.h"

namespace bindery::cpu {
namespace {

using recurrent::kTile, recurrent::Layer, recurrent::Places, recurrent::WithScratch;

template <class Real>
struct Forward : Layer<Real> {
  using Layer<Real>::form, Layer<Real>::attrs, Layer<Real>::loops;

  explicit Forward(const KernelSpec& spec) : Layer<Real>(spec, spec.inputs[0].shape, Places(spec, 7, 6), 6) {}

  // A gate's weights, transposed, gate by gate and block by block: the panels of kTile columns.
  int64_t panel() const { return form.hidden * kTile; }
  int64_t shared() const { return CheckedMul(CheckedMul(form.gates, this->blocks()), panel()); }
  // Two states, the cell, r * h, a tile of each gate (of all blocks, where r and z of all come first).
  int64_t tiles() const { return form.gates * (this->resets_before() ? this->blocks() : 1); }
  int64_t own() const {
    return CheckedMul(CheckedMul(CheckedAdd(CheckedMul(this->blocks(), 4), tiles()), kTile), kTile);
  }

  void Pack(const Real* weight, Real* panels) const {
    const int64_t count = form.gates * this->blocks(), hidden = form.hidden, width = this->panel_width();
    ParallelFor(count, 1, shared() <= kSerialElements ? count : 0, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t gate = i / this->blocks(), block = i % this->blocks(), units = this->width(block);
        const Real* const from = weight + (gate * hidden + block * kTile) * hidden;
        Real* const to = panels + i * panel();
        if (units < kTile) std::fill_n(to, panel(), Real{0});
        for (int64_t unit = 0; unit < units; unit += width) {
          PackColumns(from + unit * hidden, std::min(width, units - unit), to + unit * hidden);
        }
      }
    });
  }
  // The weights of some units, a panel's columns.
  void PackColumns(const Real* from, int64_t units, Real* to) const {
    const int64_t hidden = form.hidden, width = this->panel_width();
    for (int64_t at = 0; at < hidden; at += kTile) {  // what of a panel stays in the nearest cache
      for (int64_t unit = 0; unit < units; ++unit) {
        const Real* const values = from + unit * hidden;
        for (int64_t k = at; k < std::min(at + kTile, hidden); ++k) to[k * width + unit] = values[k];
      }
    }
  }

  struct Memory {
    Real *state, *next, *cell, *reset, *tiles;  // states (samples, padded())
  };

  Real* Tile(Real* tiles, int64_t gate, int64_t block, int64_t row) const {
    return tiles + ((this->resets_before() ? gate * this->blocks() + block : gate) * kTile + row) * kTile;
  }

  // The gates' products with states h, tile by tile; the bias goes into the last gate's.
  void Multiply(const Real* panels, const Real* h, int64_t block, int64_t samples, int64_t first_gate, int64_t gates,
                const Real* bias, Real* tiles) const {
    for (int64_t gate = first_gate; gate < first_gate + gates; ++gate) {
      Real* tile = Tile(tiles, gate, block, 0);
      const bool biased = bias && gate == form.gates - 1;
      for (int64_t row = 0; row < samples && biased; ++row) {
        std::fill_n(std::copy_n(bias + block * kTile, this->width(block), tile + row * kTile),
                    kTile - this->width(block), Real{0});
      }
      this->MultiplyPanels(h, this->padded(), panels + (gate * this->blocks() + block) * panel(), form.hidden,
                           form.hidden, samples, this->width(block), biased, tile);
    }
  }
  template <size_t kCount>
  std::array<const Real*, kCount> Products(const Memory& m, int64_t row, int64_t block) const {
    std::array<const Real*, kCount> of;
    for (size_t k = 0; k < kCount; ++k) of[k] = Tile(m.tiles, form.place[k], block, row);
    return of;
  }

  // One step of one sample for a block of hidden units.
  void Step(const Arguments& args, const Memory& m, int64_t row, int64_t at, int64_t block) const {
    const int64_t unit = block * kTile, n = this->width(block), place = row * this->padded() + unit;
    const Real* x = this->In(args, 0) + at * form.gates * form.hidden;
    Real* saved = this->Out(args, 4);
    if (saved) saved += at * 4 * form.hidden;
    if (this->is_lstm()) {
      loops.lstm({.x = this->template Gates<4>(x, unit),
                  .product = Products<4>(m, row, block),
                  .peephole = this->Peepholes(this->In(args, 3), unit),
                  .cell = m.cell + place,
                  .clip = this->clip,
                  .coupled = attrs.coupled,
                  .saved = this->template Gates<4>(saved, unit),
                  .next_cell = m.cell + place,
                  .output = m.next + place},
                 n);
    } else if (this->is_gru()) {
      loops.gru({.x = this->template Gates<3>(x, unit),
                 .product = Products<3>(m, row, block),
                 .before = m.state + place,
                 .clip = this->clip,
                 .gates_are_ready = !attrs.reset_after,
                 .saved = this->template Gates<4>(saved, unit),
                 .output = m.next + place},
                n);
    } else {
      Real* y = m.next + place;
      loops.template BinaryOf<native::fn::Add>()(x + unit, m.tiles + row * kTile, y, n);
      for (int64_t i = 0; i < n && attrs.clip > 0; ++i) y[i] = std::clamp(y[i], -this->clip, this->clip);
      loops.activation[attrs.cell == RecurrentCell::kTanh ? native::ActivationFunctions::Find("tanh")
                                                          : native::ActivationFunctions::Find("relu")](y, y, n);
    }
  }

  // r and z, in their tiles, and r * h of one sample for a block of hidden units.
  void ResetBefore(const Arguments& args, const Memory& m, int64_t row, int64_t at, int64_t block) const {
    const int64_t unit = block * kTile, n = this->width(block), place = row * this->padded() + unit;
    const auto x = this->template Gates<3>(this->In(args, 0) + at * form.gates * form.hidden, unit);
    for (int k = 0; k < 2; ++k) {
      Real* gate = Tile(m.tiles, form.place[k], block, row);
      loops.template BinaryOf<native::fn::Add>()(x[k], gate, gate, n);
      for (int64_t i = 0; i < n && attrs.clip > 0; ++i) gate[i] = std::clamp(gate[i], -this->clip, this->clip);
      loops.activation[native::ActivationFunctions::Find("sigmoid")](gate, gate, n);
    }
    loops.template BinaryOf<native::fn::Mul>()(Tile(m.tiles, form.place[0], block, row), m.state + place,
                                               m.reset + place, n);
  }

  void Run(const Arguments& args, const Real* panels, int64_t first, int64_t samples, Real* scratch) const {
    const int64_t hidden = form.hidden, padded = this->padded(), states = kTile * padded;
    Memory m{scratch, scratch + states, scratch + 2 * states, scratch + 3 * states, scratch + 4 * states};
    std::fill_n(scratch, 4 * states, Real{0});
    std::array<int64_t, kTile> lengths;
    int64_t longest = 0;
    for (int64_t row = 0; row < samples; ++row) {
      lengths[row] = this->LengthOf(args, first + row);
      longest = std::max(longest, lengths[row]);
      const int64_t from = (first + row) * hidden;
      if (const Real* state = this->In(args, 4)) std::copy_n(state + from, hidden, m.state + row * padded);
      if (const Real* cell = this->In(args, 5)) std::copy_n(cell + from, hidden, m.cell + row * padded);
    }
    const bool resets_before = this->resets_before();
    const auto keep = [&](int slot, const Real* row, int64_t at) {
      if (Real* out = this->Out(args, slot)) std::copy_n(row, hidden, out + at * hidden);
    };
    // f(row, where its step is in values of all steps) for samples that are not at their end
    const auto for_rows = [&](int64_t step, const auto& f) {
      for (int64_t row = 0; row < samples; ++row) {
        if (step < lengths[row]) f(row, this->Row(first + row, step, lengths[row]));
      }
    };
    for (int64_t step = 0; step < longest; ++step) {
      for_rows(step, [&](int64_t row, int64_t at) {
        keep(3, m.state + row * padded, at);
        keep(5, m.cell + row * padded, at);
      });
      for (int64_t block = 0; block < this->blocks() && resets_before; ++block) {
        Multiply(panels, m.state, block, samples, 0, 2, nullptr, m.tiles);
        for_rows(step, [&](int64_t row, int64_t at) { ResetBefore(args, m, row, at, block); });
      }
      for (int64_t block = 0; block < this->blocks(); ++block) {
        if (resets_before) {
          Multiply(panels, m.reset, block, samples, 2, 1, nullptr, m.tiles);
        } else {
          Multiply(panels, m.state, block, samples, 0, form.gates, this->In(args, 2), m.tiles);
        }
        for_rows(step, [&](int64_t row, int64_t at) { Step(args, m, row, at, block); });
      }
      for (int64_t row = 0; row < samples; ++row) {
        if (step < lengths[row]) {
          keep(0, m.next + row * padded, this->Row(first + row, step, lengths[row]));
        } else {
          std::copy_n(m.state + row * padded, hidden, m.next + row * padded);
        }
      }
      std::swap(m.state, m.next);
    }
    for (int64_t row = 0; row < samples; ++row) {
      keep(1, m.state + row * padded, first + row);
      keep(2, m.cell + row * padded, first + row);
    }
  }
};

template <class Real>
MaybeKernel MakeRecurrent(const KernelSpec& spec) {
  const Forward<Real> layer(spec);
  const int64_t shared = layer.shared(), own = layer.own();
  return WithLoop(WithScratch<Real>(spec, "fused", shared, own), [=](const Arguments& args) {
    Real* const panels = static_cast<Real*>(args.scratch);
    layer.Pack(layer.In(args, 1), panels);
    layer.ClearUndone(
        args, {{0, layer.form.hidden}, {3, layer.form.hidden}, {4, 4 * layer.form.hidden}, {5, layer.form.hidden}});
    layer.ForSamples([&](int64_t first, int64_t samples, int thread) {
      layer.Run(args, panels, first, samples, panels + shared + thread * own);
    });
  });
}

constexpr KernelEntry kEntries[] = {
    {"Recurrent", OfReals<MakeRecurrent<float>, MakeRecurrent<double>>},
};

}  // namespace

KernelRows RecurrentKernels() { return kEntries; }

}  // namespace bindery::cpu
