// Recurrent layers, plainly: a block goes through the steps of a sample, its threads are the units.
#pragma once

#include <cmath>

#include "executor/kernels/cuda/recurrent_args.h"
#include "executor/kernels/cuda/values.h"
#include "executor/kernels/native_functions.h"

namespace bindery::cuda {

// Formulas of a cell's numbers, and where they are.
template <class Value>
struct CellMath {
  const RecurrentShape& s;
  const Source &weight, &peephole, &lengths;
  Value clip = static_cast<Value>(s.clip);

  __device__ int64_t LengthOf(int64_t sample) const {
    if (!lengths.data) return s.steps;
    const double length = Number(lengths, sample), most = static_cast<double>(s.steps);
    return static_cast<int64_t>(length > 0 ? length < most ? length : most : 0);
  }
  // Steps from the length on are rows that nothing is done for.
  __device__ int64_t RowOf(int64_t sample, int64_t step, int64_t length) const {
    const int64_t place = s.reverse && step < length ? length - 1 - step : step;
    return place * s.next_step + sample * s.next_sample;
  }
  __device__ Value Clipped(Value x) const { return s.clip <= 0 ? x : x < -clip ? -clip : x > clip ? clip : x; }
  __device__ Value SigmoidOf(Value x) const { return native::sigmoid(Clipped(x)); }
  __device__ Value TanhOf(Value x) const { return std::tanh(Clipped(x)); }
  // A gate's gradient; none where it is as far as clipping lets it go.
  __device__ Value Within(Value gradient, Value gate, Value low, Value high) const {
    return s.clip > 0 && !(gate > low && gate < high) ? Value{0} : gradient;
  }
  __device__ Value OfSigmoid(Value gradient, Value gate) const {
    return Within(gradient * gate * (1 - gate), gate, native::sigmoid(-clip), native::sigmoid(clip));
  }
  __device__ Value OfTanh(Value gradient, Value gate) const {
    return Within(gradient * (1 - gate * gate), gate, std::tanh(-clip), std::tanh(clip));
  }
  __device__ Value Weighted(int64_t gate, int64_t unit, const Value* h) const {
    Value sum = 0;
    const int64_t first = (gate * s.hidden + unit) * s.hidden;
    for (int64_t k = 0; k < s.hidden; ++k) sum += Element<Value>(weight, first + k) * h[k];
    return sum;
  }
  __device__ Value Peephole(int k, int64_t unit) const {
    return peephole.data ? Element<Value>(peephole, s.peephole_place[k] * s.hidden + unit) : Value{0};
  }
};

template <class Value>
__device__ void PutIfRead(const Target& target, int64_t i, Value value) {
  if (target.data) PutWrapped(target.data, target.dtype, i, value);
}

template <class Value, class Team>
__device__ void Forward(const Team& team, const RecurrentArgs& args, int64_t n) {
  const RecurrentShape& s = args.shape;
  const CellMath<Value> m{s, args.weight, args.peephole, args.lengths};
  const int64_t hidden = s.hidden, length = m.LengthOf(n);
  Value* const h = static_cast<Value*>(args.scratch) + n * 4 * hidden;
  Value *const c = h + hidden, *const next = c + hidden, *const reset = next + hidden;
  team.ForEach(hidden, [&](int64_t i) {
    h[i] = args.state.data ? Element<Value>(args.state, n * hidden + i) : Value{0};
    c[i] = args.cell.data ? Element<Value>(args.cell, n * hidden + i) : Value{0};
  });
  for (int64_t step = 0; step < s.steps; ++step) {
    const int64_t row = m.RowOf(n, step, length);
    const auto save = [&](int64_t i, const Value(&saved)[4]) {
      for (int k = 0; k < 4 && args.saved.data; ++k)
        PutIfRead(args.saved, (row * 4 + s.place[k]) * hidden + i, saved[k]);
    };
    if (step >= length) {
      team.ForEach(hidden, [&](int64_t i) {
        for (const Target* target : {&args.y, &args.previous, &args.previous_cell}) {
          PutIfRead(*target, row * hidden + i, Value{0});
        }
        save(i, {});
      });
      continue;
    }
    const auto x = [&](int64_t gate, int64_t i) {
      return Element<Value>(args.data, (row * s.gates + gate) * hidden + i);
    };
    const auto gate = [&](int k, int64_t i) { return x(s.place[k], i) + m.Weighted(s.place[k], i, h); };
    if (s.gru) team.ForEach(hidden, [&](int64_t i) { reset[i] = m.SigmoidOf(gate(0, i)) * h[i]; });
    team.ForEach(hidden, [&](int64_t i) {
      PutIfRead(args.previous, row * hidden + i, h[i]);
      Value saved[4] = {};
      if (s.lstm) {
        PutIfRead(args.previous_cell, row * hidden + i, c[i]);
        saved[0] = m.SigmoidOf(gate(0, i) + m.Peephole(0, i) * c[i]);
        saved[1] = s.coupled ? 1 - saved[0] : m.SigmoidOf(gate(1, i) + m.Peephole(1, i) * c[i]);
        saved[2] = m.TanhOf(gate(2, i));
        c[i] = saved[1] * c[i] + saved[0] * saved[2];
        saved[3] = m.SigmoidOf(gate(3, i) + m.Peephole(2, i) * c[i]);
        next[i] = saved[3] * std::tanh(c[i]);
      } else if (s.gru) {
        saved[0] = m.SigmoidOf(gate(0, i));
        saved[1] = m.SigmoidOf(gate(1, i));
        Value product = m.Weighted(2, i, s.reset_after ? h : reset);
        if (args.bias.data) product += Element<Value>(args.bias, i);
        saved[2] = m.TanhOf(x(2, i) + (s.reset_after ? saved[0] : Value{1}) * product);
        saved[3] = s.reset_after ? product : reset[i];
        next[i] = (1 - saved[1]) * saved[2] + saved[1] * h[i];
      } else {
        const Value sum = m.Clipped(gate(0, i));
        next[i] = s.tanh ? std::tanh(sum) : sum > 0 ? sum : Value{0};
      }
      save(i, saved);
      PutIfRead(args.y, row * hidden + i, next[i]);
    });
    team.ForEach(hidden, [&](int64_t i) { h[i] = next[i]; });
  }
  team.ForEach(hidden, [&](int64_t i) {
    PutIfRead(args.last, n * hidden + i, h[i]);
    PutIfRead(args.last_cell, n * hidden + i, c[i]);
  });
}

template <class Value, class Team>
__device__ void Backward(const Team& team, const RecurrentGradArgs& args, int64_t n) {
  const RecurrentShape& s = args.shape;
  const CellMath<Value> m{s, args.weight, args.peephole, args.lengths};
  const int64_t hidden = s.hidden, gates = s.gates * hidden, length = m.LengthOf(n);
  Value* const dh = static_cast<Value*>(args.scratch) + n * (4 * hidden + gates);
  Value *const dc = dh + hidden, *const before = dc + hidden, *const d_reset = before + hidden;
  Value* const d = d_reset + hidden;  // of the products, gate by gate
  team.ForEach(hidden, [&](int64_t i) {
    dh[i] = Element<Value>(args.d_last, n * hidden + i);
    dc[i] = args.d_last_cell.data ? Element<Value>(args.d_last_cell, n * hidden + i) : Value{0};
  });
  for (int64_t step = s.steps; step-- > 0;) {
    const int64_t row = m.RowOf(n, step, length);
    if (step >= length) {
      team.ForEach(gates, [&](int64_t i) {
        PutIfRead(args.dx, row * gates + i, Value{0});
        PutIfRead(args.d_product, row * gates + i, Value{0});
      });
      continue;
    }
    const auto previous = [&](int64_t i) { return Element<Value>(args.previous, row * hidden + i); };
    const auto saved = [&](int k, int64_t i) {
      return Element<Value>(args.saved, (row * s.saved + (s.saved == 1 ? 0 : s.place[k])) * hidden + i);
    };
    const auto set = [&](int k, int64_t i, Value of_data, Value of_product) {
      const int64_t at = s.place[k] * hidden + i;
      PutIfRead(args.dx, row * gates + at, of_data);
      PutIfRead(args.d_product, row * gates + at, of_product);
      d[at] = of_product;
    };
    const auto through = [&](int64_t first, int64_t last, int64_t i) {  // weights of these gates
      Value sum = 0;
      for (int64_t k = first * hidden; k < last * hidden; ++k)
        sum += d[k] * Element<Value>(args.weight, k * hidden + i);
      return sum;
    };
    team.ForEach(hidden, [&](int64_t i) {
      dh[i] += Element<Value>(args.dy, row * hidden + i);
      before[i] = 0;
      if (s.lstm) {
        const Value c = Element<Value>(args.previous_cell, row * hidden + i);
        const Value in = saved(0, i), f = saved(1, i), g = saved(2, i), o = saved(3, i);
        const Value bent = std::tanh(f * c + in * g), d_out = m.OfSigmoid(dh[i] * bent, o);
        const Value cell = dc[i] + dh[i] * o * (1 - bent * bent) + d_out * m.Peephole(2, i);
        const Value d_in = m.OfSigmoid(s.coupled ? cell * (g - c) : cell * g, in);
        const Value d_forget = s.coupled ? Value{0} : m.OfSigmoid(cell * c, f), d_state = m.OfTanh(cell * in, g);
        set(0, i, d_in, d_in);
        set(1, i, d_forget, d_forget);
        set(2, i, d_state, d_state);
        set(3, i, d_out, d_out);
        dc[i] = cell * f + d_in * m.Peephole(0, i) + d_forget * m.Peephole(1, i);
      } else if (s.gru) {
        const Value r = saved(0, i), z = saved(1, i), candidate = saved(2, i);
        const Value d_candidate = m.OfTanh(dh[i] * (1 - z), candidate);
        const Value d_update = m.OfSigmoid(dh[i] * (previous(i) - candidate), z);
        const Value d_gate = s.reset_after ? m.OfSigmoid(d_candidate * saved(3, i), r) : Value{0};
        set(0, i, d_gate, d_gate);
        set(1, i, d_update, d_update);
        set(2, i, d_candidate, s.reset_after ? d_candidate * r : d_candidate);
        before[i] = dh[i] * z;
      } else {
        const Value y = saved(0, i);
        const Value own = s.tanh ? m.OfTanh(dh[i], y) : m.Within(y > 0 ? dh[i] : Value{0}, y, -m.clip, m.clip);
        set(0, i, own, own);
      }
    });
    const bool resets_before = s.gru && !s.reset_after;
    if (resets_before) {
      team.ForEach(hidden, [&](int64_t i) { d_reset[i] = through(2, 3, i); });
      team.ForEach(hidden, [&](int64_t i) {
        const Value r = saved(0, i), own = m.OfSigmoid(d_reset[i] * previous(i), r);
        set(0, i, own, own);
        before[i] += d_reset[i] * r;
      });
    }
    team.ForEach(hidden, [&](int64_t i) { dh[i] = before[i] + through(0, resets_before ? 2 : s.gates, i); });
  }
  team.ForEach(hidden, [&](int64_t i) {
    PutIfRead(args.d_state, n * hidden + i, dh[i]);
    PutIfRead(args.d_cell, n * hidden + i, dc[i]);
  });
}

template <class Block>
__device__ void Run(const Block& block, const RecurrentArgs& args) {
  ForFloats(args.data.dtype, [&]<class Value>() {
    ForRows(block, {args.shape.samples, 1}, [&](const auto& team, int64_t n) { Forward<Value>(team, args, n); });
  });
}
template <class Block>
__device__ void Run(const Block& block, const RecurrentGradArgs& args) {
  ForFloats(args.dy.dtype, [&]<class Value>() {
    ForRows(block, {args.shape.samples, 1}, [&](const auto& team, int64_t n) { Backward<Value>(team, args, n); });
  });
}

}  // namespace bindery::cuda
