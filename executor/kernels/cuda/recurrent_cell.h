// Formulas of a recurrent layer's cells, of one unit, and where its numbers are.
#pragma once

#include <cmath>

#include "executor/kernels/cuda/recurrent_args.h"
#include "executor/kernels/cuda/values.h"
#include "executor/kernels/native_functions.h"

namespace bindery::cuda {

// The steps of a sample; -1: its length cannot be.
__device__ inline int64_t LengthOf(const RecurrentShape& s, const Source& lengths, int64_t sample) {
  if (!lengths.data) return s.steps;
  const double length = Number(lengths, sample);
  return IsWholeIn(length, 0, static_cast<double>(s.steps)) ? static_cast<int64_t>(length) : -1;
}
template <class Block>
__device__ void ReportLengths(const Block& block, const RecurrentShape& s, const Source& lengths,
                              const FaultRing& faults) {
  if (!lengths.data) return;
  ForAll(block, s.samples, [&](int64_t n) {
    if (LengthOf(s, lengths, n) < 0) Report(block, faults, n, Number(lengths, n), 0, static_cast<double>(s.steps));
  });
}
// What a step that is not done leaves in memory: nothing, or NaN.
template <class Value>
__device__ Value Undone(int64_t length) {
  return length < 0 ? static_cast<Value>(NAN) : Value{0};
}

// Of a layer.
template <class Value>
struct CellMath {
  const RecurrentShape& s;
  const Source &peephole, &lengths;
  DType saved_as;  // the type of gates in memory
  Value clip = static_cast<Value>(s.clip);

  __device__ int64_t LengthOf(int64_t sample) const { return cuda::LengthOf(s, lengths, sample); }
  // Steps from the length on are rows that nothing is done for.
  __device__ int64_t RowOf(int64_t sample, int64_t step, int64_t length) const {
    const int64_t place = s.reverse && step < length ? length - 1 - step : step;
    return place * s.next_step + sample * s.next_sample;
  }
  __device__ Value Clipped(Value x) const { return s.clip <= 0 ? x : x < -clip ? -clip : x > clip ? clip : x; }
  __device__ Value SigmoidOf(Value x) const { return native::sigmoid(Clipped(x)); }
  __device__ Value TanhOf(Value x) const { return std::tanh(Clipped(x)); }
  __device__ Value Rounded(Value gate) const {
    alignas(Value) unsigned char memory[sizeof(Value)];
    PutWrapped(memory, saved_as, 0, gate);
    return Get<Value>(memory, saved_as, 0);
  }
  // A gate's gradient; none where it is as far as clipping lets it go, as it was saved.
  __device__ Value Within(Value gradient, Value gate, Value low, Value high) const {
    return s.clip > 0 && (gate <= Rounded(low) || gate >= Rounded(high)) ? Value{0} : gradient;  // NaN passes
  }
  __device__ Value OfSigmoid(Value gradient, Value gate) const {
    return Within(gradient * gate * (1 - gate), gate, native::sigmoid(-clip), native::sigmoid(clip));
  }
  __device__ Value OfTanh(Value gradient, Value gate) const {
    return Within(gradient * (1 - gate * gate), gate, std::tanh(-clip), std::tanh(clip));
  }
  __device__ Value Peephole(int k, int64_t unit, Value cell) const {
    return peephole.data ? Element<Value>(peephole, s.peephole_place[k] * s.hidden + unit) * cell : Value{0};
  }

  // A step of a unit: its state, from that before and, of an LSTM, the cell, which it changes. x(k): what data are for
  // gate k; product(k): what weights make of the state before for it, of a GRU's third gate with its bias, and of what
  // the reset gate leaves of the state if that comes before the product. `saved`: what the gradient wants to know.
  template <class X, class Product>
  __device__ Value Step(int64_t unit, const X& x, const Product& product, Value before, Value* c,
                        Value (&saved)[4]) const {
    const auto gate = [&](int k) { return x(k) + product(k); };
    if (s.lstm) {
      saved[0] = SigmoidOf(gate(0) + Peephole(0, unit, *c));
      saved[1] = s.coupled ? 1 - saved[0] : SigmoidOf(gate(1) + Peephole(1, unit, *c));
      saved[2] = TanhOf(gate(2));
      *c = saved[1] * *c + saved[0] * saved[2];
      saved[3] = SigmoidOf(gate(3) + Peephole(2, unit, *c));
      return saved[3] * std::tanh(*c);
    }
    if (s.gru) {
      const Value of_state = product(2);
      saved[0] = SigmoidOf(gate(0));
      saved[1] = SigmoidOf(gate(1));
      saved[2] = TanhOf(x(2) + (s.reset_after ? saved[0] : Value{1}) * of_state);
      saved[3] = s.reset_after ? of_state : saved[0] * before;
      return (1 - saved[1]) * saved[2] + saved[1] * before;
    }
    const Value sum = Clipped(gate(0));
    return s.tanh ? std::tanh(sum) : sum < 0 ? Value{0} : sum;  // NaN passes
  }

  // Its gradients, by what `at` (SampleStepGrad) knows of it and is told. `dh`, of the state after the step, becomes that
  // of the state before, but for what comes through the products; `dc`, of an LSTM, that of the cell before. The reset
  // gate of a GRU that resets before the product is left out: ResetGrad.
  template <class At>
  __device__ void StepGrad(const At& at, int64_t unit, Value* dh, Value* dc) const {
    const Value of_state = *dh;
    *dh = 0;
    if (s.lstm) {
      const Value c = at.C(unit), in = at.Saved(0, unit), f = at.Saved(1, unit), g = at.Saved(2, unit);
      const Value o = at.Saved(3, unit), bent = std::tanh(f * c + in * g), d_out = OfSigmoid(of_state * bent, o);
      const Value cell = *dc + of_state * o * (1 - bent * bent) + Peephole(2, unit, d_out);
      const Value d_in = OfSigmoid(s.coupled ? cell * (g - c) : cell * g, in);
      const Value d_forget = s.coupled ? Value{0} : OfSigmoid(cell * c, f), d_state = OfTanh(cell * in, g);
      at.Set(0, unit, d_in, d_in);
      at.Set(1, unit, d_forget, d_forget);
      at.Set(2, unit, d_state, d_state);
      at.Set(3, unit, d_out, d_out);
      *dc = cell * f + Peephole(0, unit, d_in) + Peephole(1, unit, d_forget);
    } else if (s.gru) {
      const Value r = at.Saved(0, unit), z = at.Saved(1, unit), candidate = at.Saved(2, unit);
      const Value d_candidate = OfTanh(of_state * (1 - z), candidate);
      const Value d_update = OfSigmoid(of_state * (at.H(unit) - candidate), z);
      const Value d_gate = s.reset_after ? OfSigmoid(d_candidate * at.Saved(3, unit), r) : Value{0};
      at.Set(0, unit, d_gate, d_gate);
      at.Set(1, unit, d_update, d_update);
      at.Set(2, unit, d_candidate, s.reset_after ? d_candidate * r : d_candidate);
      *dh = of_state * z;
    } else {
      const Value y = at.Saved(0, unit);
      const Value own = s.tanh ? OfTanh(of_state, y) : Within(y > 0 ? of_state : Value{0}, y, -clip, clip);
      at.Set(0, unit, own, own);
    }
  }
  // From the gradient of what the reset gate left of the state.
  template <class At>
  __device__ void ResetGrad(const At& at, int64_t unit, Value d_left, Value* dh) const {
    const Value r = at.Saved(0, unit), own = OfSigmoid(d_left * at.H(unit), r);
    at.Set(0, unit, own, own);
    *dh += d_left * r;
  }
  // Does it have a product of what its reset gate leaves?
  __device__ bool resets_before() const { return s.gru && !s.reset_after; }
};

template <class Value>
__device__ void PutIfRead(const Target& target, int64_t i, Value value) {
  if (target.data) PutWrapped(target.data, target.dtype, i, value);
}

// What a layer's forward step has of a sample, in memory: row `row` of its sequences.
template <class Value>
struct SampleStep {
  const RecurrentArgs& args;
  int64_t row;

  __device__ Value X(int64_t gate, int64_t i) const {
    const RecurrentShape& s = args.shape;
    return Element<Value>(args.data, (row * s.gates + s.place[gate]) * s.hidden + i);
  }
  __device__ Value Bias(int64_t i) const { return args.bias.data ? Element<Value>(args.bias, i) : Value{0}; }
  __device__ void Save(int64_t i, const Value (&saved)[4]) const {
    const RecurrentShape& s = args.shape;
    for (int k = 0; k < 4 && args.saved.data; ++k)
      PutIfRead(args.saved, (row * 4 + s.place[k]) * s.hidden + i, saved[k]);
  }
  // Of a step from the sample's length on.
  __device__ void PutUndone(int64_t i, Value undone) const {
    for (const Target* target : {&args.y, &args.previous, &args.previous_cell}) {
      PutIfRead(*target, row * args.shape.hidden + i, undone);
    }
    Save(i, {undone, undone, undone, undone});
  }
};

// The same of its gradient. `d`: where gradients of products go, gate by gate, for the products through weights.
template <class Value>
struct SampleStepGrad {
  const RecurrentGradArgs& args;
  int64_t row;
  Value* d;

  __device__ Value Dy(int64_t i) const { return Element<Value>(args.dy, row * args.shape.hidden + i); }
  __device__ Value H(int64_t i) const { return Element<Value>(args.previous, row * args.shape.hidden + i); }
  __device__ Value C(int64_t i) const { return Element<Value>(args.previous_cell, row * args.shape.hidden + i); }
  __device__ Value Saved(int k, int64_t i) const {
    const RecurrentShape& s = args.shape;
    return Element<Value>(args.saved, (row * s.saved + (s.saved == 1 ? 0 : s.place[k])) * s.hidden + i);
  }
  __device__ void Set(int k, int64_t i, Value of_data, Value of_product) const {
    const RecurrentShape& s = args.shape;
    const int64_t at = s.place[k] * s.hidden + i;
    PutIfRead(args.dx, row * s.gates * s.hidden + at, of_data);
    PutIfRead(args.d_product, row * s.gates * s.hidden + at, of_product);
    d[at] = of_product;
  }
  // Of a step from the sample's length on.
  __device__ void SetUndone(int64_t i, Value undone) const {
    for (int k = 0; k < args.shape.gates; ++k) Set(k, i, undone, undone);
  }
};

}  // namespace bindery::cuda
