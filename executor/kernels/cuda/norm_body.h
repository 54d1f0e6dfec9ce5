// Normalisations.
#pragma once

#include <cmath>

#include "executor/kernels/cuda/norm_args.h"
#include "executor/kernels/cuda/values.h"

namespace bindery::cuda {

__device__ inline int64_t ParameterOf(const Groups& groups, int64_t group, int64_t element) {
  if (groups.by_position) return element;
  return group % groups.per_sample * groups.channels + element / groups.inner;
}

template <class Value>
struct Two {
  Value a, b;
  static __device__ Two Sum(const Two& x, const Two& y) { return {x.a + y.a, x.b + y.b}; }
};

// The mean of numbers far from 0 loses the digits that count: what is left of it is `rest`.
template <class Value>
struct Mean {
  Value mean, rest;
};
template <class Value, class Team, class F>
__device__ Mean<Value> MeanOf(const Team& team, int64_t n, const F& x) {
  const Value count = static_cast<Value>(n > 0 ? n : 1);
  const Value near = SumOf<Value>(team, n, x) / count;
  if (near - near != 0) return {near, 0};  // infinite, or no number: nothing is off
  const Value off = SumOf<Value>(team, n, [&](int64_t i) { return x(i) - near; }) / count;
  const Value mean = near + off;
  return {mean, (near - mean) + off};
}

template <class Block>
__device__ void Run(const Block& block, const NormalizeArgs& args) {
  ForFloats(args.x.dtype, [&]<class Value>() {
    const int64_t n = args.groups.channels * args.groups.inner;
    ForRows(block, args.rows, [&](const auto& team, int64_t group) {
      const auto x = [&](int64_t i) { return Element<Value>(args.x, group * n + i); };
      const Value count = static_cast<Value>(n > 0 ? n : 1);
      const Mean<Value> exact = args.center ? MeanOf<Value>(team, n, x) : Mean<Value>{};
      const Value mean = exact.mean, rest = exact.rest;
      const auto centered = [&](int64_t i) { return (x(i) - mean) - rest; };
      Value square = SumOf<Value>(team, n, [&](int64_t i) { return centered(i) * centered(i); });
      if (!args.sum) square /= count;
      const Value inverse = 1 / std::sqrt(square + static_cast<Value>(args.eps));
      team.ForEach(args.y.data ? n : 0, [&](int64_t i) {
        const int64_t p = ParameterOf(args.groups, group, i);
        Value y = centered(i) * inverse;
        if (args.gamma.data) y *= Element<Value>(args.gamma, p);
        if (args.beta.data) y += Element<Value>(args.beta, p);
        PutWrapped(args.y.data, args.y.dtype, group * n + i, y);
      });
      team.Once([&] {
        if (args.mean.data) PutWrapped(args.mean.data, args.mean.dtype, group, mean);
        if (args.inverse.data) PutWrapped(args.inverse.data, args.inverse.dtype, group, inverse);
      });
    });
  });
}

template <class Block>
__device__ void Run(const Block& block, const NormalizeGradArgs& args) {
  ForFloats(args.x.dtype, [&]<class Value>() {
    const int64_t n = args.groups.channels * args.groups.inner;
    ForRows(block, args.rows, [&](const auto& team, int64_t group) {
      const Value mean = Element<Value>(args.mean, group), inverse = Element<Value>(args.inverse, group);
      const auto normalized = [&](int64_t i) { return (Element<Value>(args.x, group * n + i) - mean) * inverse; };
      const auto scaled = [&](int64_t i) {
        const Value dy = Element<Value>(args.dy, group * n + i);
        return args.gamma.data ? dy * Element<Value>(args.gamma, ParameterOf(args.groups, group, i)) : dy;
      };
      using Sums = Two<Value>;
      Sums sums = team.Join(
          n, Sums{},
          [&](Sums* part, int64_t i) {
            *part = Sums::Sum(*part, {scaled(i), scaled(i) * normalized(i)});
          },
          [](const Sums& a, const Sums& b) { return Sums::Sum(a, b); });
      sums.a = args.center ? sums.a / static_cast<Value>(n) : 0;
      if (!args.sum) sums.b /= static_cast<Value>(n);
      team.ForEach(n, [&](int64_t i) {
        PutWrapped(args.dx.data, args.dx.dtype, group * n + i, inverse * (scaled(i) - sums.a - normalized(i) * sums.b));
      });
    });
  });
}

template <class Block>
__device__ void Run(const Block& block, const ParameterGradArgs& args) {
  ForFloats(args.x.dtype, [&]<class Value>() {
    const Groups& g = args.groups;
    ForRows(block, args.rows, [&](const auto& team, int64_t p) {
      using Sums = Two<Value>;
      const Sums sums = team.Join(
          args.terms, Sums{},
          [&](Sums* part, int64_t t) {
            // The t-th element that has this parameter.
            const int64_t group = g.by_position ? t : t / g.inner * g.per_sample + p / g.channels;
            const int64_t element = g.by_position ? p : p % g.channels * g.inner + t % g.inner;
            const int64_t i = group * g.channels * g.inner + element;
            const Value dy = Element<Value>(args.dy, i);
            const Value x =
                (Element<Value>(args.x, i) - Element<Value>(args.mean, group)) * Element<Value>(args.inverse, group);
            *part = Sums::Sum(*part, {dy * x, dy});
          },
          [](const Sums& a, const Sums& b) { return Sums::Sum(a, b); });
      team.Once([&] {
        if (args.dgamma.data) PutWrapped(args.dgamma.data, args.dgamma.dtype, p, sums.a);
        if (args.dbeta.data) PutWrapped(args.dbeta.data, args.dbeta.dtype, p, sums.b);
      });
    });
  });
}

// A mean and squared distances from it, by one pass. Distances are from the first number of a run, which is one of those
// whose mean is looked for: so of n of them at least one part in n + 1 of the squares' sum is left, and runs are short.
template <class Value>
struct Moments {
  Value n, shift, sum, square;  // of x - shift
  __device__ void Add(Value x) {
    if (n == 0) shift = x;
    const Value off = x - shift;
    n += 1;
    sum += off;
    square += off * off;
  }
  // `shift` is at the mean then.
  static __device__ Moments Joined(const Moments& a, const Moments& b) {
    if (a.n == 0) return b;
    if (b.n == 0) return a;
    const Value n = a.n + b.n, off_a = a.sum / a.n, off_b = b.sum / b.n;
    const Value apart = (b.shift - a.shift) + (off_b - off_a), off = off_a + apart * (b.n / n);
    const Value mean = a.shift + off, rest = (a.shift - mean) + off;
    const Value square = (a.square - a.sum * off_a) + (b.square - b.sum * off_b) + apart * apart * (a.n * (b.n / n));
    return {n, mean, rest * n, square + rest * rest * n};
  }
  __device__ Mean<Value> mean() const {
    const Value off = sum / n, mean = shift + off;
    return {mean, (shift - mean) + off};
  }
  __device__ Value squares() const { return square - sum * (sum / n); }
};

// A channel, or a part of it, which is what elements are looked at of.
template <class Value, class Team>
__device__ void OfChannel(const Team& team, const ChannelArgs& args, int64_t row) {
  const int64_t channels = args.channels, inner = args.inner, terms = args.outer * inner;
  const PartOfRow place(args, row, terms);
  const int64_t c = place.row, first = place.first, own = place.own;
  const auto at = [&](int64_t t) {
    const int64_t o = args.per_inner.Of(first + t);
    return (o * channels + c) * inner + (first + t - o * inner);
  };
  const auto x = [&](int64_t t) { return Element<Value>(args.x, at(t)); };
  const auto put = [&](int o, int64_t i, Value value) {
    if (args.out[o].data) PutWrapped(args.out[o].data, args.out[o].dtype, i, value);
  };
  const auto once = [&](const auto& f) {
    if (place.part == 0) team.Once(f);
  };
  const auto join = [&](const auto& nothing, const auto& add, const auto& joined) {
    return JoinParts(args, team, place, nothing, add, joined);
  };
  const Value n = static_cast<Value>(terms), eps = static_cast<Value>(args.eps);
  const Value gamma = args.fix_gamma || !args.gamma.data ? 1 : Element<Value>(args.gamma, c);
  const Value beta = args.beta.data ? Element<Value>(args.beta, c) : 0;

  // Count, mean and variance: merged ones, given ones, or the batch's.
  Value count = n, mean = 0, rest = 0, var = 0, m2 = 0;
  if (args.statistics.data) {
    count = Element<Value>(args.statistics, c);
    mean = Element<Value>(args.statistics, channels + c);
    var = count > 0 ? Element<Value>(args.statistics, 2 * channels + c) / count : 0;
  }
  const bool given = args.what == Channels::kBackward || args.what == Channels::kCount ||
                     (args.running && args.what != Channels::kMove);
  if (given && args.mean.data) {
    mean = Element<Value>(args.mean, c);
    var = Element<Value>(args.var, c);
  } else if (args.what == Channels::kForward || args.what == Channels::kStatistics) {
    const auto moments = join(
        Moments<Value>{}, [&](Moments<Value>* to, int64_t t) { to->Add(x(t)); },
        [](const Moments<Value>& a, const Moments<Value>& b) { return Moments<Value>::Joined(a, b); });
    if (args.stage == Stage::kParts) return;
    if (terms > 0) {
      const Mean<Value> exact = moments.mean();
      mean = exact.mean;
      rest = exact.rest;
      m2 = moments.squares();
      var = m2 / n;
    }
  }
  const Value inverse = 1 / std::sqrt(var + eps);
  const auto dy = [&](int64_t t) {
    return args.relu && args.state[at(t)] == 0 ? Value{0} : Element<Value>(args.dy, at(t));
  };
  const auto normalized = [&](int64_t t) { return ((x(t) - mean) - rest) * inverse; };
  using Sums = Two<Value>;
  const auto sums = [&] {
    return join(
        Sums{},
        [&](Sums* to, int64_t t) {
          *to = Sums::Sum(*to, {dy(t), dy(t) * normalized(t)});
        },
        [](const Sums& a, const Sums& b) { return Sums::Sum(a, b); });
  };
  switch (args.what) {
    case Channels::kForward:
    case Channels::kNormalize:
      team.ForEach(own, [&](int64_t t) {
        Value y = gamma * normalized(t) + beta;
        if (args.relu) {
          if (args.state) args.state[at(t)] = y > 0;
          y = y < 0 ? Value{0} : y;
        }
        put(0, at(t), y);
      });
      once([&] {
        put(1, c, mean);
        put(2, c, var);
      });
      break;
    case Channels::kBackward: {
      const Sums s = sums();
      if (args.stage == Stage::kParts) return;
      team.ForEach(own, [&](int64_t t) {
        const Value g = dy(t);
        put(0, at(t), gamma * inverse * (args.running ? g : g - s.a / n - normalized(t) * s.b / n));
      });
      once([&] {
        put(1, c, args.fix_gamma ? 0 : s.b);
        put(2, c, s.a);
      });
      break;
    }
    case Channels::kStatistics:
      once([&] {
        put(0, c, n);
        put(0, channels + c, mean);
        put(0, 2 * channels + c, m2);
      });
      break;
    case Channels::kGradSums: {
      const Sums s = sums();
      if (args.stage == Stage::kParts) return;
      once([&] {
        put(0, c, s.a);
        put(0, channels + c, s.b);
      });
      break;
    }
    case Channels::kGradInput: {
      const Value g = Element<Value>(args.sums, c) / count, gx = Element<Value>(args.sums, channels + c) / count;
      team.ForEach(own, [&](int64_t t) { put(0, at(t), gamma * inverse * (dy(t) - g - normalized(t) * gx)); });
      break;
    }
    case Channels::kMerge:
      once([&] {
        const auto of = [&](int64_t device, int64_t which) {
          return Element<Value>(args.x, (device * 3 + which) * channels + c);
        };
        Value all = 0, center = 0, square = 0;
        for (int64_t d = 0; d < args.outer; ++d) {
          all += of(d, 0);
          center += of(d, 0) * of(d, 1);
        }
        if (all > 0) center /= all;
        for (int64_t d = 0; d < args.outer; ++d) {
          const Value delta = of(d, 1) - center;
          square += of(d, 2) + of(d, 0) * delta * delta;
        }
        put(0, c, all);
        put(0, channels + c, center);
        put(0, 2 * channels + c, square);
      });
      break;
    case Channels::kCount:
      once([&] {
        put(0, c, n);
        put(0, channels + c, mean);
        put(0, 2 * channels + c, n * var);
      });
      break;
    case Channels::kMove:
      once([&] {
        const Value old = count > 0 ? static_cast<Value>(args.momentum) : 1;
        put(0, c, old * Element<Value>(args.mean, c) + (1 - old) * mean);
        put(1, c, old * Element<Value>(args.var, c) + (1 - old) * var);
      });
      break;
  }
}

template <class Block>
__device__ void Run(const Block& block, const ChannelArgs& args) {
  ForFloats(args.compute, [&]<class Value>() {
    ForRows(block, args.rows, [&](const auto& team, int64_t row) { OfChannel<Value>(team, args, row); });
  });
}

template <class Block>
__device__ void Run(const Block& block, const LRNArgs& args) {
  ForFloats(args.x.dtype, [&]<class Value>() {
    const int64_t below = (args.size - 1) / 2, above = args.size / 2;
    ForAll(block, args.n, [&](int64_t i) {
      const int64_t channel = i / args.inner % args.channels, first = i - channel * args.inner;
      const auto clamped = [&](int64_t c) { return c < 0 ? 0 : c < args.channels ? c : args.channels - 1; };
      const auto x = [&](int64_t c) { return Element<Value>(args.x, first + c * args.inner); };
      const auto base = [&](int64_t c) {
        Value sum = 0;
        for (int64_t k = clamped(c - below); k <= clamped(c + above); ++k) sum += x(k) * x(k);
        return static_cast<Value>(args.bias) + static_cast<Value>(args.factor) * sum;
      };
      const Value beta = static_cast<Value>(args.beta);
      if (!args.dy.data) {
        PutWrapped(args.out.data, args.out.dtype, i, x(channel) * std::pow(base(channel), -beta));
        return;
      }
      Value sum = 0;  // over the windows that the element is in
      for (int64_t c = clamped(channel - above); c <= clamped(channel + below); ++c) {
        sum += Element<Value>(args.dy, first + c * args.inner) * x(c) * std::pow(base(c), -beta - 1);
      }
      const Value own = Element<Value>(args.dy, i) * std::pow(base(channel), -beta);
      PutWrapped(args.out.data, args.out.dtype, i, own - 2 * beta * static_cast<Value>(args.factor) * x(channel) * sum);
    });
  });
}

}  // namespace bindery::cuda
