// Probabilities of classes, and the losses that are made of them.
#pragma once

#include <cmath>

#include "executor/kernels/cuda/exp_sum.h"
#include "executor/kernels/cuda/placed.h"
#include "executor/kernels/cuda/softmax_args.h"
#include "executor/kernels/cuda/values.h"

namespace bindery::cuda {

template <class Block>
__device__ void Run(const Block& block, const SoftmaxArgs& args) {
  ForFloats(args.out.dtype, [&]<class Value>() {
    ForRows(block, args.rows, [&](const auto& team, int64_t index) {
      const PartOfRow part(args, index, args.axis);
      const int64_t first = (part.row / args.inner * args.axis + part.first) * args.inner + part.row % args.inner;
      const auto at = [&](int i, int64_t k) { return Element<Value>(args.in[i], first + k * args.inner); };
      const auto join = [&](const auto& nothing, const auto& add, const auto& joined) {
        return JoinParts(args, team, part, nothing, add, joined);
      };
      const auto sum_of = [&](const auto& f) {
        return join(
            Value{0}, [&](Value* sum, int64_t k) { *sum += f(k); }, [](Value a, Value b) { return a + b; });
      };
      const auto give = [&](const auto& f) {
        if (args.stage == Stage::kParts) return;
        team.ForEach(part.own,
                     [&](int64_t k) { PutWrapped(args.out.data, args.out.dtype, first + k * args.inner, f(k)); });
      };
      const Value t = static_cast<Value>(args.temperature);
      switch (args.what) {
        case RowKind::kSoftmax:
        case RowKind::kLogSoftmax: {
          using Sum = ExpSum<Value>;
          const Sum sum = join(
              Sum::Nothing(), [&](Sum* so_far, int64_t k) { so_far->Add(at(0, k), t); },
              [t](const Sum& a, const Sum& b) { return Sum::Joined(a, b, t); });
          if (args.what == RowKind::kSoftmax) {
            give([&](int64_t k) { return std::exp((at(0, k) - sum.max) / t) / sum.sum; });
          } else {
            const Value log = std::log(sum.sum);
            give([&](int64_t k) { return at(0, k) - sum.max - log; });
          }
          break;
        }
        case RowKind::kSoftmaxGrad: {
          const Value sum = sum_of([&](int64_t k) { return at(0, k) * at(1, k); });
          give([&](int64_t k) { return at(1, k) * (at(0, k) - sum) / t; });
          break;
        }
        case RowKind::kLogSoftmaxGrad: {
          const Value sum = sum_of([&](int64_t k) { return at(0, k); });
          give([&](int64_t k) { return at(0, k) - std::exp(at(1, k)) * sum; });
          break;
        }
        case RowKind::kHardmax: {
          using Best = Placed<Value>;
          const Best best = join(
              Best{0, -1},
              [&](Best* so_far, int64_t k) {
                const Best next{at(0, k), part.first + k};
                if (IsBetter(next, *so_far, true, false)) *so_far = next;
              },
              [](const Best& a, const Best& b) { return IsBetter(b, a, true, false) ? b : a; });
          give([&](int64_t k) { return static_cast<Value>(part.first + k == best.place); });
          break;
        }
      }
    });
  });
}

template <class Block>
__device__ void Run(const Block& block, const CrossEntropyArgs& args) {
  ForFloats(args.data.dtype, [&]<class Value>() {
    const Value smoothing = static_cast<Value>(args.smoothing), part = smoothing / static_cast<Value>(args.axis);
    ForRows(block, args.rows, [&](const auto& team, int64_t row) {
      const int64_t first = row / args.inner * args.axis * args.inner + row % args.inner;
      const auto at = [&](int64_t k) { return Element<Value>(args.data, first + k * args.inner); };
      const double label = Number(args.label, row);
      const bool ignored = args.use_ignore && label == args.ignore_label;
      const bool good = IsWholeIn(label, 0, static_cast<double>(args.axis - 1));
      if (!ignored && !good) {
        team.Once([&] { Report(block, args.faults, row, label, 0, static_cast<double>(args.axis - 1)); });
      }
      const bool counts = !ignored && good;
      const Value nothing = ignored ? Value{0} : static_cast<Value>(NAN);  // of a row that does not count
      const int64_t own = counts ? static_cast<int64_t>(label) : -1;
      const auto weight = [&](int64_t k) { return args.weights.data ? Element<Value>(args.weights, k) : Value{1}; };
      const auto target = [&](int64_t k) { return (part + (k == own ? 1 - smoothing : 0)) * weight(k); };
      if (args.backward) {
        const Value dy = counts ? Element<Value>(args.dy, row) : 0;
        const Value max = args.log_input ? 0 : Element<Value>(args.maximum, row);
        const Value log = args.log_input ? 0 : Element<Value>(args.log_sum, row);
        const Value total = counts ? SumOf<Value>(team, args.axis, target) : 0;
        team.ForEach(args.axis, [&](int64_t k) {
          Value dx = args.log_input ? 0 : dy * total * std::exp(at(k) - max - log);
          if (smoothing > 0 || k == own) dx -= dy * target(k);  // the others have no part, even of infinity
          PutWrapped(args.out[0].data, args.out[0].dtype, first + k * args.inner, counts ? dx : nothing);
        });
        return;
      }
      Value max = 0, log = 0;
      if (!args.log_input) {
        using Sum = ExpSum<Value>;
        const Sum sum = team.Join(
            args.axis, Sum::Nothing(), [&](Sum* mine, int64_t k) { mine->Add(at(k), Value{1}); },
            [](const Sum& a, const Sum& b) { return Sum::Joined(a, b, Value{1}); });
        max = sum.max;
        log = std::log(sum.sum);
      }
      // Without smoothing the label alone has a part.
      const auto loss_of = [&](int64_t k) { return target(k) * (max - at(k) + log); };
      Value loss = nothing;
      if (counts) loss = smoothing == 0 ? loss_of(own) : SumOf<Value>(team, args.axis, loss_of);
      team.Once([&] {
        const Value results[] = {loss, counts ? weight(own) : Value{0}, max, log};
        for (int o = 0; o < 4; ++o) {
          if (args.out[o].data) PutWrapped(args.out[o].data, args.out[o].dtype, row, results[o]);
        }
      });
    });
  });
}

template <class Block>
__device__ void Run(const Block& block, const OutputGradArgs& args) {
  ForFloats(args.out.dtype, [&]<class Value>() {
    double divisor = args.positions;
    if (args.by_batch) divisor *= static_cast<double>(args.step->batch_size);
    if (args.valid.data) divisor *= std::fmax(1.0, Number(args.valid, 0));
    const Value scale = static_cast<Value>(args.scale / divisor), smooth = static_cast<Value>(args.smooth);
    ForAll(block, args.n, [&](int64_t i) {
      const int64_t row = i / args.inner / args.axis * args.inner + i % args.inner, k = i / args.inner % args.axis;
      const Value p = Element<Value>(args.p, i);
      Value y = 0;
      bool ignored = false;
      if (args.svm) {
        const double label = Number(args.label, row);
        const Value sign = label == static_cast<double>(k) ? Value{-1} : Value{1};
        const Value edge = static_cast<Value>(args.margin) + sign * p, hinge = edge > 0 ? edge : Value{0};
        y = sign * scale * (args.use_linear ? static_cast<Value>(hinge > 0) : 2 * hinge);
        if (label != std::floor(label)) {
          Report(block, args.faults, row, label, 0, static_cast<double>(args.axis - 1));
          y = static_cast<Value>(NAN);
        }
      } else if (args.distribution) {
        y = (p - static_cast<Value>(Number(args.label, i))) * scale;
      } else {
        const double label = Number(args.label, row);
        ignored = args.use_ignore && label == args.ignore_label;
        if (!ignored) {
          if (!IsWholeIn(label, 0, static_cast<double>(args.axis - 1))) {
            Report(block, args.faults, row, label, 0, static_cast<double>(args.axis - 1));
            y = static_cast<Value>(NAN);
          } else {
            const Value wanted =
                k == static_cast<int64_t>(label) ? 1 - smooth : smooth / static_cast<Value>(args.axis - 1);
            y = (p - wanted) * scale;
          }
        }
      }
      if (args.head.data && !ignored) y *= Element<Value>(args.head, i);  // zero remains zero, whatever that is
      PutWrapped(args.out.data, args.out.dtype, i, y);
    });
  });
}

template <class Block>
__device__ void Run(const Block& block, const StepNumberArgs& args) {
  ForAll(block, 1, [&](int64_t) {
    double divisor = args.by_batch ? static_cast<double>(args.step->batch_size) : 1;
    if (args.valid.data) divisor = std::fmax(1.0, Number(args.valid, 0));
    Put(args.out.data, args.out.dtype, 0, args.loss_scale ? args.step->loss_scale : args.scale / divisor);
  });
}

}  // namespace bindery::cuda
