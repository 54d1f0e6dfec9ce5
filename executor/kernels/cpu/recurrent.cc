// Recurrent layers: threads take samples, which have nothing to do with each other, and go through all steps without
// waiting for one another; or, where there are too few samples for all threads, they take hidden units. A step is a
// product of the states of up to 64 samples and the weights, in panels (recurrent_panels.h), and one vector loop over
// hidden units for all gates. Not a bit depends on who does what.
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/recurrent_layer.h"

namespace bindery::cpu {
namespace {

using recurrent::kTile, recurrent::Layer, recurrent::WeightPanels, recurrent::WithScratch;

template <class Real>
struct Forward : Layer<Real> {
  using Layer<Real>::form, Layer<Real>::attrs, Layer<Real>::loops;

  explicit Forward(const KernelSpec& spec) : Layer<Real>(spec, spec.inputs[0].shape, 6) {}

  WeightPanels<Real> weights() const { return {form.gates, form.hidden}; }
  // Two states, the cell, r * h, a tile of each gate (of all blocks, where r and z of all come first).
  int64_t tiles() const { return form.gates * (this->resets_before() ? this->blocks() : 1); }
  int64_t own() const {
    return CheckedMul(CheckedMul(CheckedAdd(CheckedMul(this->blocks(), 4), tiles()), kTile), kTile);
  }

  struct Memory {
    Real *state, *next, *cell, *reset, *tiles;  // states (samples, padded())
  };

  // Hidden units of one block, whole panels of them: its `first` ones, `n` of them.
  struct Units {
    int64_t block, first, n;
    int64_t unit() const { return block * kTile + first; }
  };

  Real* Tile(Real* tiles, int64_t gate, int64_t block, int64_t row) const {
    return tiles + ((this->resets_before() ? gate * this->blocks() + block : gate) * kTile + row) * kTile;
  }

  // The gates' products with states h, tile by tile; the bias goes into the last gate's.
  void Multiply(const Real* panels, const Real* h, const Units& units, int64_t samples, int64_t first_gate,
                int64_t gates, const Real* bias, Real* tiles) const {
    for (int64_t gate = first_gate; gate < first_gate + gates; ++gate) {
      Real* const tile = Tile(tiles, gate, units.block, 0) + units.first;
      const bool biased = bias && gate == form.gates - 1;
      const int64_t padding = CeilDiv(units.n, this->panel_width()) * this->panel_width() - units.n;
      for (int64_t row = 0; row < samples && biased; ++row) {
        std::fill_n(std::copy_n(bias + units.unit(), units.n, tile + row * kTile), padding, Real{0});
      }
      const WeightPanels<Real> all = weights();
      const Real* const own = panels + (gate * all.blocks() + units.block) * all.of_block() + units.first * form.hidden;
      this->MultiplyByPanels(h, this->padded(), own, form.hidden, form.hidden, samples, units.n, biased, tile);
    }
  }
  template <size_t kCount>
  std::array<const Real*, kCount> Products(Real* tiles, int64_t row, const Units& units) const {
    std::array<const Real*, kCount> of;
    for (size_t k = 0; k < kCount; ++k) of[k] = Tile(tiles, form.place[k], units.block, row) + units.first;
    return of;
  }

  // One step of one sample for some units.
  void Step(const Arguments& args, const Memory& m, int64_t row, int64_t at, const Units& units, Real* tiles) const {
    const int64_t unit = units.unit(), n = units.n, place = row * this->padded() + unit;
    const Real* x = this->In(args, 0) + at * form.gates * form.hidden;
    Real* saved = this->Out(args, 4);
    if (saved) saved += at * 4 * form.hidden;
    if (this->is_lstm()) {
      loops.lstm({.x = this->template Gates<4>(x, unit),
                  .product = Products<4>(tiles, row, units),
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
                 .product = Products<3>(tiles, row, units),
                 .before = m.state + place,
                 .clip = this->clip,
                 .gates_are_ready = !attrs.reset_after,
                 .saved = this->template Gates<4>(saved, unit),
                 .output = m.next + place},
                n);
    } else {
      Real* y = m.next + place;
      loops.template BinaryOf<native::fn::Add>()(x + unit, tiles + row * kTile + units.first, y, n);
      for (int64_t i = 0; i < n && attrs.clip > 0; ++i) y[i] = std::clamp(y[i], -this->clip, this->clip);
      loops.activation[attrs.cell == RecurrentCell::kTanh ? native::ActivationFunctions::Find("tanh")
                                                          : native::ActivationFunctions::Find("relu")](y, y, n);
    }
  }

  // r and z, in their tiles, and r * h of one sample for some units.
  void ResetBefore(const Arguments& args, const Memory& m, int64_t row, int64_t at, const Units& units,
                   Real* tiles) const {
    const int64_t unit = units.unit(), n = units.n, place = row * this->padded() + unit;
    const auto x = this->template Gates<3>(this->In(args, 0) + at * form.gates * form.hidden, unit);
    for (int k = 0; k < 2; ++k) {
      Real* gate = Tile(tiles, form.place[k], units.block, row) + units.first;
      loops.template BinaryOf<native::fn::Add>()(x[k], gate, gate, n);
      for (int64_t i = 0; i < n && attrs.clip > 0; ++i) gate[i] = std::clamp(gate[i], -this->clip, this->clip);
      loops.activation[native::ActivationFunctions::Find("sigmoid")](gate, gate, n);
    }
    loops.template BinaryOf<native::fn::Mul>()(Tile(tiles, form.place[0], units.block, row) + units.first,
                                               m.state + place, m.reset + place, n);
  }

  // for_units(f): f(units, tiles) for all units, of which all are done when it returns.
  template <class ForUnits>
  void Run(const Arguments& args, const Real* panels, int64_t first, int64_t samples, Memory m,
           const ForUnits& for_units) const {
    const int64_t hidden = form.hidden, padded = this->padded();
    std::fill_n(m.state, 4 * kTile * padded, Real{0});  // and the others
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
    // Units of a row of states.
    const auto keep = [&](int slot, const Real* states, int64_t row, int64_t at, const Units& units) {
      if (Real* out = this->Out(args, slot)) {
        std::copy_n(states + row * padded + units.unit(), units.n, out + at * hidden + units.unit());
      }
    };
    for (int64_t step = 0; step < longest; ++step) {
      const auto at = [&](int64_t row) { return this->Row(first + row, step, lengths[row]); };
      if (resets_before) {
        for_units([&](const Units& units, Real* tiles) {
          Multiply(panels, m.state, units, samples, 0, 2, nullptr, tiles);
          for (int64_t row = 0; row < samples; ++row) {
            if (step < lengths[row]) ResetBefore(args, m, row, at(row), units, tiles);
          }
        });
      }
      for_units([&](const Units& units, Real* tiles) {
        if (resets_before) {
          Multiply(panels, m.reset, units, samples, 2, 1, nullptr, tiles);
        } else {
          Multiply(panels, m.state, units, samples, 0, form.gates, this->In(args, 2), tiles);
        }
        for (int64_t row = 0; row < samples; ++row) {
          if (step < lengths[row]) {
            keep(3, m.state, row, at(row), units);
            keep(5, m.cell, row, at(row), units);
            Step(args, m, row, at(row), units, tiles);
            keep(0, m.next, row, at(row), units);
          } else {  // it is at its end
            const int64_t place = row * padded + units.unit();
            std::copy_n(m.state + place, units.n, m.next + place);
          }
        }
      });
      std::swap(m.state, m.next);
    }
    for (int64_t row = 0; row < samples; ++row) {
      for (int64_t block = 0; block < this->blocks(); ++block) {
        keep(1, m.state, row, first + row, {block, 0, this->width(block)});
        keep(2, m.cell, row, first + row, {block, 0, this->width(block)});
      }
    }
  }

  Memory MemoryIn(Real* scratch) const {
    const int64_t states = kTile * this->padded();
    return {scratch, scratch + states, scratch + 2 * states, scratch + 3 * states, scratch + 4 * states};
  }

  // Each thread goes through all steps of its samples, for which it reads all weights.
  void RunBySamples(const Arguments& args, const Real* panels, Real* scratch) const {
    this->ForSamples([&](int64_t first, int64_t samples, int thread) {
      const Memory m = MemoryIn(scratch + thread * own());
      Run(args, panels, first, samples, m, [&](const auto& f) {
        for (int64_t block = 0; block < this->blocks(); ++block) f(Units{block, 0, this->width(block)}, m.tiles);
      });
    });
  }
  // Each thread has some units, and reads their weights alone; threads wait for each other at each step.
  void RunByUnits(const Arguments& args, const Real* panels, Real* scratch) const {
    const int64_t width = this->panel_width(), of_block = kTile / width;
    for (int64_t first = 0; first < form.samples; first += kTile) {
      const Memory m = MemoryIn(scratch);
      Run(args, panels, first, std::min(kTile, form.samples - first), m, [&](const auto& f) {
        ParallelFor(CeilDiv(form.hidden, width), 1, 0, [&](int64_t begin, int64_t end, int thread) {
          // Those of the first half of a step are read in the second one, by whoever has them there.
          Real* const tiles = this->resets_before() ? m.tiles : MemoryIn(scratch + thread * own()).tiles;
          for (int64_t panel = begin; panel < end; ++panel) {
            f(Units{panel / of_block, panel % of_block * width, std::min(width, form.hidden - panel * width)}, tiles);
          }
        });
      });
    }
  }
};

template <class Real>
MaybeKernel MakeRecurrent(const KernelSpec& spec) {
  const Forward<Real> layer(spec);
  const WeightPanels<Real> weights = layer.weights();
  const auto weight = static_cast<size_t>(layer.ins[1]);
  const bool is_packed = spec.IsKept(weight) && spec.input_formats[weight].kind == Format::Kind::kPlain;
  const int64_t shared = is_packed ? 0 : weights.elements();
  Kernel kernel = WithScratch<Real>(spec, "fused", shared, layer.own());
  if (is_packed) kernel.input_formats[weight] = weights.format();
  return WithLoop(std::move(kernel), [=](const Arguments& args) {
    Real* const scratch = static_cast<Real*>(args.scratch);
    if (!is_packed) weights.Pack(layer.In(args, 1), scratch);
    const Real* const panels = is_packed ? layer.In(args, 1) : scratch;
    layer.ClearUndone(
        args, {{0, layer.form.hidden}, {3, layer.form.hidden}, {4, 4 * layer.form.hidden}, {5, layer.form.hidden}});
    layer.IsByUnits() ? layer.RunByUnits(args, panels, scratch + shared)
                      : layer.RunBySamples(args, panels, scratch + shared);
  });
}

constexpr KernelEntry kEntries[] = {
    {"Recurrent", OfReals<MakeRecurrent<float>, MakeRecurrent<double>>},
};

}  // namespace

KernelRows RecurrentKernels() { return kEntries; }

}  // namespace bindery::cpu
