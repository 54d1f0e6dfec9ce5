// Recurrent layers. By one kernel: a block goes through the steps of a sample, its threads are the units. Or by one for
// each step, of all samples' units, between which a library makes the products by weights (recurrent.cc).
#pragma once

#include "executor/kernels/cuda/recurrent_cell.h"

namespace bindery::cuda {

template <class Value, class Team>
__device__ void Forward(const Team& team, const RecurrentArgs& args, int64_t n) {
  const RecurrentShape& s = args.shape;
  const CellMath<Value> m{s, args.peephole, args.lengths, args.saved.dtype};
  const int64_t hidden = s.hidden, length = m.LengthOf(n);
  Value* const h = static_cast<Value*>(args.scratch) + n * 4 * hidden;
  Value *const c = h + hidden, *const next = c + hidden, *const left = next + hidden;
  const auto weighted = [&](int64_t gate, int64_t unit, const Value* of) {
    const int64_t first = (s.place[gate] * hidden + unit) * hidden;
    return SumOf<Value>(ThreadTeam(), hidden,
                        [&](int64_t k) { return Element<Value>(args.weight, first + k) * of[k]; });
  };
  const Value undone = Undone<Value>(length);
  team.ForEach(hidden, [&](int64_t i) {
    h[i] = args.state.data && length >= 0 ? Element<Value>(args.state, n * hidden + i) : undone;
    c[i] = args.cell.data && length >= 0 ? Element<Value>(args.cell, n * hidden + i) : undone;
  });
  for (int64_t step = 0; step < s.steps; ++step) {
    const SampleStep<Value> at{args, m.RowOf(n, step, length)};
    if (step >= length) {
      team.ForEach(hidden, [&](int64_t i) { at.PutUndone(i, undone); });
      continue;
    }
    if (m.resets_before()) {
      team.ForEach(hidden, [&](int64_t i) { left[i] = m.SigmoidOf(at.X(0, i) + weighted(0, i, h)) * h[i]; });
    }
    team.ForEach(hidden, [&](int64_t i) {
      PutIfRead(args.previous, at.row * hidden + i, h[i]);
      if (s.lstm) PutIfRead(args.previous_cell, at.row * hidden + i, c[i]);
      Value saved[4] = {};
      next[i] = m.Step(
          i, [&](int k) { return at.X(k, i); },
          [&](int k) {
            if (!s.gru || k < 2) return weighted(k, i, h);
            return weighted(k, i, m.resets_before() ? left : h) + at.Bias(i);
          },
          h[i], &c[i], saved);
      at.Save(i, saved);
      PutIfRead(args.y, at.row * hidden + i, next[i]);
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
  const CellMath<Value> m{s, args.peephole, args.lengths, args.saved.dtype};
  const int64_t hidden = s.hidden, gates = s.gates * hidden, length = m.LengthOf(n);
  Value* const dh = static_cast<Value*>(args.scratch) + n * (3 * hidden + gates);
  Value *const dc = dh + hidden, *const d_left = dc + hidden, *const d = d_left + hidden;
  const auto through = [&](int64_t first, int64_t last, int64_t i) {  // weights of these gates
    const Value* const of = d + first * hidden;
    return SumOf<Value>(ThreadTeam(), (last - first) * hidden, [&](int64_t k) {
      return of[k] * Element<Value>(args.weight, (first * hidden + k) * hidden + i);
    });
  };
  const Value undone = Undone<Value>(length);
  team.ForEach(hidden, [&](int64_t i) {
    dh[i] = length >= 0 ? Element<Value>(args.d_last, n * hidden + i) : undone;
    dc[i] = args.d_last_cell.data && length >= 0 ? Element<Value>(args.d_last_cell, n * hidden + i) : undone;
  });
  for (int64_t step = s.steps; step-- > 0;) {
    const SampleStepGrad<Value> at{args, m.RowOf(n, step, length), d};
    if (step >= length) {
      team.ForEach(hidden, [&](int64_t i) { at.SetUndone(i, undone); });
      continue;
    }
    team.ForEach(hidden, [&](int64_t i) {
      dh[i] += at.Dy(i);
      m.StepGrad(at, i, &dh[i], &dc[i]);
    });
    if (m.resets_before()) {
      team.ForEach(hidden, [&](int64_t i) { d_left[i] = through(2, 3, i); });
      team.ForEach(hidden, [&](int64_t i) { m.ResetGrad(at, i, d_left[i], &dh[i]); });
    }
    team.ForEach(hidden, [&](int64_t i) { dh[i] += through(0, m.resets_before() ? 2 : s.gates, i); });
  }
  team.ForEach(hidden, [&](int64_t i) {
    PutIfRead(args.d_state, n * hidden + i, dh[i]);
    PutIfRead(args.d_cell, n * hidden + i, dc[i]);
  });
}

template <class Block>
__device__ void Run(const Block& block, const RecurrentArgs& args) {
  ReportLengths(block, args.shape, args.lengths, args.faults);
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

// f(n, i, at) of each unit i of each sample n, with `at` its place among those of all.
template <class Block, class F>
__device__ void ForUnits(const Block& block, const RecurrentShape& s, const F& f) {
  ForAll(block, s.samples * s.hidden, [&](int64_t at) { f(at / s.hidden, at % s.hidden, at); });
}

template <class Block>
__device__ void Run(const Block& block, const RecurrentStepArgs& step) {
  const RecurrentArgs& args = step.layer;
  const RecurrentShape& s = args.shape;
  if (step.phase == RecurrentPhase::kBegin) ReportLengths(block, s, args.lengths, step.faults);
  ForFloats(args.data.dtype, [&]<class Value>() {
    const CellMath<Value> m{s, args.peephole, args.lengths, args.saved.dtype};
    Value *const h = static_cast<Value*>(step.h), *const c = static_cast<Value*>(step.c);
    ForUnits(block, s, [&](int64_t n, int64_t i, int64_t at) {
      const int64_t length = m.LengthOf(n);
      const Value undone = Undone<Value>(length);
      if (step.phase == RecurrentPhase::kBegin) {
        h[at] = args.state.data && length >= 0 ? Element<Value>(args.state, at) : undone;
        c[at] = args.cell.data && length >= 0 ? Element<Value>(args.cell, at) : undone;
        return;
      }
      const SampleStep<Value> sample{args, m.RowOf(n, step.step, length)};
      const Value* const products = static_cast<const Value*>(step.products) + n * s.gates * s.hidden;
      const auto product = [&](int k) { return products[s.place[k] * s.hidden + i]; };
      if (step.phase == RecurrentPhase::kReset) {
        static_cast<Value*>(step.left)[at] = m.SigmoidOf(sample.X(0, i) + product(0)) * h[at];
        return;
      }
      if (step.step >= length) {
        sample.PutUndone(i, undone);
      } else {
        PutIfRead(args.previous, sample.row * s.hidden + i, h[at]);
        if (s.lstm) PutIfRead(args.previous_cell, sample.row * s.hidden + i, c[at]);
        Value saved[4] = {};
        h[at] = m.Step(
            i, [&](int k) { return sample.X(k, i); },
            [&](int k) { return s.gru && k == 2 ? product(k) + sample.Bias(i) : product(k); }, h[at], &c[at], saved);
        sample.Save(i, saved);
        PutIfRead(args.y, sample.row * s.hidden + i, h[at]);
      }
      if (step.step < s.steps - 1) return;
      PutIfRead(args.last, at, h[at]);
      PutIfRead(args.last_cell, at, c[at]);
    });
  });
}

template <class Block>
__device__ void Run(const Block& block, const RecurrentStepGradArgs& step) {
  const RecurrentGradArgs& args = step.layer;
  const RecurrentShape& s = args.shape;
  ForFloats(args.dy.dtype, [&]<class Value>() {
    const CellMath<Value> m{s, args.peephole, args.lengths, args.saved.dtype};
    Value *const dh = static_cast<Value*>(step.dh), *const dc = static_cast<Value*>(step.dc);
    const Value* const through = static_cast<const Value*>(step.through);
    ForUnits(block, s, [&](int64_t n, int64_t i, int64_t at) {
      const int64_t length = m.LengthOf(n);
      const Value undone = Undone<Value>(length);
      if (step.phase == RecurrentPhase::kBegin) {
        dh[at] = length >= 0 ? Element<Value>(args.d_last, at) : undone;
        dc[at] = args.d_last_cell.data && length >= 0 ? Element<Value>(args.d_last_cell, at) : undone;
        return;
      }
      Value* const d = static_cast<Value*>(step.d) + n * s.gates * s.hidden;
      const SampleStepGrad<Value> sample{args, m.RowOf(n, step.step, length), d};
      if (step.phase == RecurrentPhase::kReset) {
        if (step.step < length) m.ResetGrad(sample, i, through[at], &dh[at]);
        return;
      }
      // Of the step behind, if the sample had it.
      if (step.step + 1 < length) dh[at] += through[at];
      if (step.phase == RecurrentPhase::kEnd) {
        PutIfRead(args.d_state, at, dh[at]);
        PutIfRead(args.d_cell, at, dc[at]);
      } else if (step.step < length) {
        dh[at] += sample.Dy(i);
        m.StepGrad(sample, i, &dh[at], &dc[at]);
      } else {
        sample.SetUndone(i, undone);
      }
    });
  });
}

}  // namespace bindery::cuda
