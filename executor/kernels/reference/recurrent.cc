#include "symbol/ops/recurrent.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Layer {
  RecurrentAttrs attrs;
  RecurrentForm form;
  int lengths = -1;  // an input
  DType saved;
  bool is_lstm, is_gru;

  Layer(const KernelSpec& spec, const Shape& data, int lengths_slot)
      : attrs(spec.attributes<RecurrentAttrs>()), form(FormOf(attrs, data)),
        lengths(spec.op->inputs.Place(spec.attrs, lengths_slot)), saved(spec.inputs[0].dtype),
        is_lstm(attrs.cell == RecurrentCell::kLstm), is_gru(attrs.cell == RecurrentCell::kGru) {}

  int64_t LengthOf(const Tensors& t, int64_t sample) const {
    if (lengths < 0) return form.steps;
    const double length = t.in[lengths][sample];
    if (!(length >= 0 && length <= static_cast<double>(form.steps) && length == std::floor(length))) {
      Throw<DataError>("a length of {} is not in 0..{}", length, form.steps);
    }
    return static_cast<int64_t>(length);
  }
  int64_t Row(int64_t sample, int64_t step, int64_t length) const {
    return (attrs.reverse ? length - 1 - step : step) * form.next_step + sample * form.next_sample;
  }
  double Clipped(double x) const { return attrs.clip > 0 ? std::clamp(x, -attrs.clip, attrs.clip) : x; }
  // A gate's gradient, nothing where it is as far as clipping lets it go: f(clip) or f(-clip), as they were saved.
  double Within(double gradient, double gate, double low, double high) const {
    const auto rounded = [&](double end) { return HostTensor::Full(saved, {}, end).At(0); };
    return attrs.clip > 0 && (gate <= rounded(low) || gate >= rounded(high)) ? 0 : gradient;
  }
  double OfSigmoid(double gradient, double gate) const {
    return Within(gradient * gate * (1 - gate), gate, Sigmoid(-attrs.clip), Sigmoid(attrs.clip));
  }
  double OfTanh(double gradient, double gate) const {
    return Within(gradient * (1 - gate * gate), gate, std::tanh(-attrs.clip), std::tanh(attrs.clip));
  }
  double Weighted(const double* weight, int64_t gate, int64_t unit, const double* h) const {
    double sum = 0;
    for (int64_t k = 0; k < form.hidden; ++k) sum += weight[(gate * form.hidden + unit) * form.hidden + k] * h[k];
    return sum;
  }
  double Peephole(const double* peephole, int k, int64_t unit, double cell) const {
    return peephole ? peephole[form.peephole[k] * form.hidden + unit] * cell : 0;
  }
};

// data, weight [, bias] [, peephole] [, initial state] [, initial cell] [, lengths]
MaybeKernel MakeRecurrent(const KernelSpec& spec) {
  const Layer l(spec, spec.inputs[0].shape, 6);
  const std::vector<int> in = PlacesIn(spec.op->inputs, spec.attrs), out = PlacesIn(spec.op->outputs, spec.attrs);
  const int64_t hidden = l.form.hidden;
  return InDouble(spec, [=](const Tensors& t) {
    const auto input = [&](int slot) { return in[slot] < 0 ? nullptr : t.in[in[slot]]; };
    const auto output = [&](int slot) { return out[slot] < 0 ? nullptr : t.out[out[slot]]; };
    const double *weight = input(1), *bias = input(2), *peephole = input(3);
    std::vector<double> states(4 * hidden);
    double *h = states.data(), *c = h + hidden, *next = c + hidden, *reset = next + hidden;
    for (int64_t n = 0; n < l.form.samples; ++n) {
      const int64_t length = l.LengthOf(t, n);
      for (int64_t i = 0; i < hidden; ++i) {
        h[i] = input(4) ? input(4)[n * hidden + i] : 0;
        c[i] = input(5) ? input(5)[n * hidden + i] : 0;
      }
      for (int64_t step = 0; step < length; ++step) {
        const int64_t row = l.Row(n, step, length);
        const double* x = input(0) + row * l.form.gates * hidden;
        const auto gate = [&](int k, int64_t i, const double* state) {
          return x[l.form.place[k] * hidden + i] + l.Weighted(weight, l.form.place[k], i, state);
        };
        for (int64_t i = 0; i < hidden && l.is_gru; ++i) reset[i] = Sigmoid(l.Clipped(gate(0, i, h))) * h[i];
        for (int64_t i = 0; i < hidden; ++i) {
          output(3)[row * hidden + i] = h[i];
          double saved[4] = {};
          if (l.is_lstm) {
            output(5)[row * hidden + i] = c[i];
            saved[0] = Sigmoid(l.Clipped(gate(0, i, h) + l.Peephole(peephole, 0, i, c[i])));
            saved[1] = Sigmoid(l.Clipped(gate(1, i, h) + l.Peephole(peephole, 1, i, c[i])));
            if (l.attrs.coupled) saved[1] = 1 - saved[0];
            saved[2] = std::tanh(l.Clipped(gate(2, i, h)));
            c[i] = saved[1] * c[i] + saved[0] * saved[2];
            saved[3] = Sigmoid(l.Clipped(gate(3, i, h) + l.Peephole(peephole, 2, i, c[i])));
            next[i] = saved[3] * std::tanh(c[i]);
          } else if (l.is_gru) {
            saved[0] = Sigmoid(l.Clipped(gate(0, i, h)));
            saved[1] = Sigmoid(l.Clipped(gate(1, i, h)));
            const double product = l.Weighted(weight, 2, i, l.attrs.reset_after ? h : reset) + (bias ? bias[i] : 0);
            saved[2] = std::tanh(l.Clipped(x[2 * hidden + i] + (l.attrs.reset_after ? saved[0] : 1) * product));
            saved[3] = l.attrs.reset_after ? product : reset[i];
            next[i] = (1 - saved[1]) * saved[2] + saved[1] * h[i];
          } else {
            const double sum = l.Clipped(gate(0, i, h));
            next[i] = l.attrs.cell == RecurrentCell::kTanh ? std::tanh(sum) : std::max(sum, 0.0);
          }
          for (int k = 0; k < 4 && output(4); ++k) {
            output(4)[(row * 4 + l.form.place[k]) * hidden + i] = saved[k];
          }
          output(0)[row * hidden + i] = next[i];
        }
        std::copy_n(next, hidden, h);
      }
      std::copy_n(h, hidden, output(1) + n * hidden);
      if (l.is_lstm) std::copy_n(c, hidden, output(2) + n * hidden);
    }
  });
}

// dy, d state [, d cell], weight [, peephole] [, lengths], previous, saved [, previous cell]
MaybeKernel MakeRecurrentGrad(const KernelSpec& spec) {
  const Layer l(spec, spec.outputs[0].shape, 5);
  const std::vector<int> in = PlacesIn(spec.op->inputs, spec.attrs), out = PlacesIn(spec.op->outputs, spec.attrs);
  const int64_t hidden = l.form.hidden, gates = l.form.gates * hidden;
  return InDouble(spec, [=](const Tensors& t) {
    const auto input = [&](int slot) { return in[slot] < 0 ? nullptr : t.in[in[slot]]; };
    const auto output = [&](int slot) { return out[slot] < 0 ? nullptr : t.out[out[slot]]; };
    const double *weight = input(3), *peephole = input(4);
    std::vector<double> grads(4 * hidden + gates);
    double *dh = grads.data(), *dc = dh + hidden, *before = dc + hidden, *d_reset = before + hidden;
    double* d = d_reset + hidden;  // of the products, gate by gate
    for (int64_t n = 0; n < l.form.samples; ++n) {
      const int64_t length = l.LengthOf(t, n);
      for (int64_t i = 0; i < hidden; ++i) {
        dh[i] = input(1)[n * hidden + i];
        dc[i] = l.is_lstm ? input(2)[n * hidden + i] : 0;
      }
      for (int64_t step = length; step-- > 0;) {
        const int64_t row = l.Row(n, step, length);
        const double* previous = input(6) + row * hidden;
        double* dx = output(0) + row * gates;
        const auto saved = [&](int k, int64_t i) {
          return input(7)[(row * l.form.saved + (l.form.saved == 1 ? 0 : l.form.place[k])) * hidden + i];
        };
        const auto set = [&](int k, int64_t i, double of_data, double of_product) {
          dx[l.form.place[k] * hidden + i] = of_data;
          d[l.form.place[k] * hidden + i] = of_product;
        };
        const auto through = [&](int64_t first, int64_t last, int64_t i) {  // weights of these gates
          double sum = 0;
          for (int64_t k = first * hidden; k < last * hidden; ++k) sum += d[k] * weight[k * hidden + i];
          return sum;
        };
        for (int64_t i = 0; i < hidden; ++i) {
          dh[i] += input(0)[row * hidden + i];
          before[i] = 0;
          if (l.is_lstm) {
            const double c = input(8)[row * hidden + i], in_gate = saved(0, i), f = saved(1, i), g = saved(2, i);
            const double bent = std::tanh(f * c + in_gate * g), o = saved(3, i);
            const double d_out = l.OfSigmoid(dh[i] * bent, o);
            const double cell = dc[i] + dh[i] * o * (1 - bent * bent) + l.Peephole(peephole, 2, i, d_out);
            const double d_in = l.OfSigmoid(l.attrs.coupled ? cell * (g - c) : cell * g, in_gate);
            const double d_forget = l.attrs.coupled ? 0 : l.OfSigmoid(cell * c, f);
            const double d_state = l.OfTanh(cell * in_gate, g);
            set(0, i, d_in, d_in);
            set(1, i, d_forget, d_forget);
            set(2, i, d_state, d_state);
            set(3, i, d_out, d_out);
            dc[i] = cell * f + l.Peephole(peephole, 0, i, d_in) + l.Peephole(peephole, 1, i, d_forget);
          } else if (l.is_gru) {
            const double r = saved(0, i), z = saved(1, i), candidate = saved(2, i);
            const double d_candidate = l.OfTanh(dh[i] * (1 - z), candidate);
            const double d_update = l.OfSigmoid(dh[i] * (previous[i] - candidate), z);
            const double d_gate = l.attrs.reset_after ? l.OfSigmoid(d_candidate * saved(3, i), r) : 0;
            set(0, i, d_gate, d_gate);
            set(1, i, d_update, d_update);
            set(2, i, d_candidate, l.attrs.reset_after ? d_candidate * r : d_candidate);
            before[i] = dh[i] * z;
          } else {
            const double y = saved(0, i);
            const double of_relu = l.Within(y > 0 ? dh[i] : 0, y, -l.attrs.clip, l.attrs.clip);
            const double own = l.attrs.cell == RecurrentCell::kTanh ? l.OfTanh(dh[i], y) : of_relu;
            set(0, i, own, own);
          }
        }
        const bool resets_before = l.is_gru && !l.attrs.reset_after;
        for (int64_t i = 0; i < hidden && resets_before; ++i) d_reset[i] = through(2, 3, i);
        for (int64_t i = 0; i < hidden && resets_before; ++i) {
          const double r = saved(0, i), own = l.OfSigmoid(d_reset[i] * previous[i], r);
          set(0, i, own, own);
          before[i] += d_reset[i] * r;
        }
        for (int64_t i = 0; i < hidden; ++i) {
          dh[i] = before[i] + through(0, resets_before ? 2 : l.form.gates, i);
        }
        if (output(3)) std::copy_n(d, gates, output(3) + row * gates);
      }
      std::copy_n(dh, hidden, output(1) + n * hidden);
      if (l.is_lstm) std::copy_n(dc, hidden, output(2) + n * hidden);
    }
  });
}

constexpr KernelEntry kEntries[] = {
    {"Recurrent", MakeRecurrent},
    {"RecurrentGrad", MakeRecurrentGrad},
};

}  // namespace

KernelRows RecurrentKernels() { return kEntries; }

}  // namespace bindery::reference
