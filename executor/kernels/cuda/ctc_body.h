// Connectionist temporal classification: Graves et al. 2006, section 4.
#pragma once

#include <cmath>
#include <limits>

#include "executor/kernels/cuda/ctc_args.h"
#include "executor/kernels/cuda/values.h"

namespace bindery::cuda {

// A sample's states, and what is known of them.
struct CTCSample {
  const CTCArgs& args;
  int64_t sample;
  double* log_sums;  // (steps)
  double* sums;      // (steps or 2, states)
  double* left;      // (2, states); with a gradient
  int32_t *classes, *firsts, *first_of_class, *counts;

  __device__ CTCSample(const CTCArgs& a, int64_t n) : args(a), sample(n) {
    const bool gradient = a.dy.data;
    log_sums = a.sums + n * a.sums_of_sample(gradient);
    sums = log_sums + a.steps;
    left = sums + a.steps * a.max_states();
    classes = a.states + n * a.states_of_sample();
    firsts = classes + a.max_states();
    first_of_class = firsts + a.max_states();
    counts = first_of_class + a.classes;
  }
  __device__ int64_t states() const { return counts[0]; }
  __device__ int64_t steps() const { return counts[1]; }
  __device__ int64_t At(int64_t step, int64_t k) const { return (step * args.samples + sample) * args.classes + k; }
  __device__ double Log(int64_t step, int64_t k) const { return Number(args.data, At(step, k)) - log_sums[step]; }

  // By one thread: which states and steps there are. None, if the data says what cannot be.
  template <class Block>
  __device__ void Read(const Block& block) const {
    counts[0] = 1;
    counts[1] = 0;
    classes[0] = static_cast<int32_t>(args.blank);
    int64_t steps = args.steps, labels = args.labels;
    if (!Length(block, args.data_lengths, &steps) || !Length(block, args.label_lengths, &labels)) return;
    const double last = static_cast<double>(args.classes - 1), blank = static_cast<double>(args.blank);
    for (int64_t i = 0; i < labels; ++i) {
      const int64_t at = sample * args.labels + i;
      const double label = Number(args.label, at);
      if (!args.label_lengths.data && (label < 0 || label == blank)) break;
      if (!IsWholeIn(label, 0, last) || label == blank) {
        return Report(block, args.faults, at, label, blank == 0 ? 1 : 0, blank == last ? last - 1 : last);
      }
      classes[counts[0]++] = static_cast<int32_t>(label);
      classes[counts[0]++] = static_cast<int32_t>(args.blank);
    }
    counts[1] = static_cast<int32_t>(steps);
  }
  template <class Block>
  __device__ bool Length(const Block& block, const Source& lengths, int64_t* length) const {
    if (!lengths.data) return true;
    const double number = Number(lengths, sample), most = static_cast<double>(*length);
    const bool good = IsWholeIn(number, 0, most);
    if (!good) Report(block, args.faults, sample, number, 0, most);
    *length = good ? static_cast<int64_t>(number) : 0;
    return good;
  }
};

__device__ inline double LogAdd(double a, double b) {
  const double most = a > b ? a : b;
  if (most == -std::numeric_limits<double>::infinity()) return a + b;  // which may be NaN
  return most + std::log1p(std::exp(-std::fabs(a - b)));
}

// The sums over all paths from the first step to a state of each step; `from_end`: from the last, of states and steps
// that are counted from the end. `kept` steps of them stay; use(step, state, sum) for all of them.
template <class Team, class F>
__device__ void Reach(const Team& team, const CTCSample& s, double* sums, int64_t kept, bool from_end, const F& use) {
  const int64_t states = s.states(), steps = s.steps(), row = s.args.max_states();
  const auto class_of = [&](int64_t state) { return s.classes[from_end ? states - 1 - state : state]; };
  for (int64_t step = 0; step < steps; ++step) {
    double* const now = sums + step % kept * row;
    const double* const before = sums + (step + kept - 1) % kept * row;
    team.ForEach(states, [&](int64_t state) {
      double sum = -std::numeric_limits<double>::infinity();
      if (step == 0 && state < 2) sum = 0;
      for (int64_t back = 0; step > 0 && back <= (state < 2 ? state : 2); ++back) {
        if (back == 2 && (state % 2 == 0 || class_of(state) == class_of(state - 2))) continue;
        sum = LogAdd(sum, before[state - back]);
      }
      now[state] = sum + s.Log(from_end ? steps - 1 - step : step, class_of(state));
      use(step, state, now[state]);
    });
  }
}

template <class Block>
__device__ void Run(const Block& block, const CTCArgs& args) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const BlockTeam<Block> team{block};
  const bool gradient = args.dy.data;
  const int64_t kept = gradient ? args.steps : 2, row = args.max_states();
  for (int64_t n = block.index(); n < args.samples; n += block.count()) {
    const CTCSample s(args, n);
    team.Once([&] { s.Read(block); });
    const int64_t steps = s.steps(), states = s.states();
    team.ForEach(steps, [&](int64_t step) {
      double max = -kInfinity, sum = 0;
      for (int64_t k = 0; k < args.classes; ++k) {
        const double x = Number(args.data, s.At(step, k));
        max = x > max || x != x ? x : max;
      }
      for (int64_t k = 0; k < args.classes; ++k) sum += std::exp(Number(args.data, s.At(step, k)) - max);
      s.log_sums[step] = max + std::log(sum);
    });
    Reach(team, s, s.sums, kept, false, [](int64_t, int64_t, double) {});
    double total = states == 1 ? 0 : -kInfinity;
    if (steps > 0) {
      const double* const last = s.sums + (steps - 1) % kept * row;
      total = states == 1 ? last[0] : LogAdd(last[states - 1], last[states - 2]);
    }
    const bool none = total == -kInfinity && args.zero_infinity;
    if (!gradient) {
      team.Once([&] { Put(args.out.data, args.out.dtype, n, none ? 0 : -total); });
      continue;
    }
    // What the paths through a state have of the total, at each step; both sums have the state's own factor.
    Reach(team, s, s.left, 2, true, [&](int64_t steps_left, int64_t states_left, double left) {
      const int64_t step = steps - 1 - steps_left, state = states - 1 - states_left;
      const double log = s.Log(step, s.classes[state]);
      double& part = s.sums[step * row + state];
      part = log == -kInfinity ? 0 : std::exp(part + left - log - total);
    });
    team.ForEach(args.classes, [&](int64_t k) { s.first_of_class[k] = -1; });
    team.Once([&] {
      for (int64_t state = 0; state < states; ++state) {
        int32_t& first = s.first_of_class[s.classes[state]];
        if (first < 0) first = static_cast<int32_t>(state);
        s.firsts[state] = first;
      }
    });
    // All parts of a class in the place of its first state.
    team.ForEach(steps, [&](int64_t step) {
      double* const parts = s.sums + step * row;
      for (int64_t state = 0; state < states; ++state) {
        if (s.firsts[state] != state) parts[s.firsts[state]] += parts[state];
      }
    });
    const double dy = Number(args.dy, n);
    team.ForEach(args.steps * args.classes, [&](int64_t i) {
      const int64_t step = i / args.classes, k = i - step * args.classes, first = s.first_of_class[k];
      double dx = 0;
      if (step < steps && !none) dx = dy * (std::exp(s.Log(step, k)) - (first < 0 ? 0 : s.sums[step * row + first]));
      Put(args.out.data, args.out.dtype, s.At(step, k), dx);
    });
  }
}

}  // namespace bindery::cuda
