// A step's checks, norms, update and commit, as work of one block of threads (kernels_body.h).
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>

#include "engine/cuda/kernels_body.h"
#include "engine/cuda/step_args.h"
#include "engine/kernels/refuse.h"
#include "engine/kernels/update_rules.h"

namespace bindery::cuda {

// f(array, parts) for the arrays of which the block has parts; parts(visit) calls visit(number, begin, end) for each.
template <class Block, class List, class F>
__device__ void ForArrays(const Block& block, const List& list, const F& f) {
  int64_t part = block.index(), before = 0;
  for (int k = 0; k < list.count; ++k) {
    const auto& array = list.of[k];
    if (part < array.parts) {
      f(array, [&](const auto& visit) {
        const int64_t length = Parts::LengthOf(array.n);
        for (; part < array.parts; part += block.count()) {
          const int64_t begin = (part - before) * length;
          visit(part, begin, array.n - begin < length ? array.n : begin + length);
        }
      });
    }
    before = array.parts;
  }
}

template <class Block>
__device__ void Run(const Block& block, const FindNotFiniteArgs& args) {
  ForType(args.arrays.dtype, [&]<class T>() {
    if constexpr (!std::is_integral_v<T>) {
      const uint64_t first = block.Least([&](int thread) {
        uint64_t least = kNone;
        ForArrays(block, args.arrays, [&](const ArrayList::Array& array, const auto& parts) {
          parts([&](int64_t, int64_t begin, int64_t end) {
            for (int64_t i = begin + thread; i < end; i += block.threads()) {
              const auto value = flat::Load<T>(static_cast<const T*>(array.in)[i]);
              if (value - value == 0) continue;  // infinity and what is no number give no zero
              const auto at = static_cast<uint64_t>(array.before + i);
              least = at < least ? at : least;
            }
          });
        });
        return least;
      });
      block.Each([&](int thread) {
        if (thread == 0 && first != kNone) block.SetLeast(args.first, first);
      });
    }
  });
}

template <class Block>
__device__ void Run(const Block& block, const SetStatusArgs& args) {
  // All by the thread that writes: others that looked whether the status is good would look while it is written.
  ForType(args.arrays.dtype, [&]<class T>() {
    ForAll(block, 1, [&](int64_t) {
      const uint64_t first = *args.first;
      if (first == kNone || args.status->kind != StepStatus::kGood) return;
      const auto index = static_cast<int64_t>(first);
      int k = args.arrays.count - 1;
      while (args.arrays.of[k].before > index) --k;
      const ArrayList::Array& array = args.arrays.of[k];
      const int64_t i = index - array.before;
      const auto value = flat::Load<T>(static_cast<const flat::Stored<T>*>(array.in)[i]);
      *args.status = {.kind = StepStatus::kNotFinite,
                      .place = array.place,
                      .element = array.first + i,
                      .value = static_cast<double>(value)};
    });
  });
}

template <class Block>
__device__ void Run(const Block& block, const RefuseArgs& args) {
  ForAll(block, 1, [&](int64_t) { flat::RefuseFirst(args.refusals, args.n, args.status); });
}

__device__ inline bool AllGood(const AddressList<StepStatus>& statuses) {
  for (int i = 0; i < statuses.count; ++i) {
    if (statuses.of[i]->kind != StepStatus::kGood) return false;
  }
  return true;
}

template <class Block>
__device__ void Run(const Block& block, const SumSquaresArgs& args) {
  ForType(args.arrays.dtype, [&]<class T>() {
    ForArrays(block, args.arrays, [&](const ArrayList::Array& array, const auto& parts) {
      parts([&](int64_t part, int64_t begin, int64_t end) {
        const double sum = block.Reduce(
            [&](int thread) {
              double squares = 0;
              for (int64_t i = begin + thread; i < end; i += block.threads()) {
                const auto value = static_cast<double>(flat::Load<T>(static_cast<const flat::Stored<T>*>(array.in)[i]));
                squares += value * value;
              }
              return squares;
            },
            [](double a, double b) { return a + b; });
        block.Each([&](int thread) {
          if (thread == 0) args.partial[part] = sum;
        });
      });
    });
  });
}

template <class Block>
__device__ void Run(const Block& block, const AddPartsArgs& args) {
  for (int row = block.index(); row < args.count * args.width; row += block.count()) {
    const int k = row / args.width, number = row - k * args.width;
    const int64_t begin = k == 0 ? 0 : args.of[k - 1].parts;
    const double sum = block.Reduce(
        [&](int thread) {
          double parts = 0;
          for (int64_t part = begin + thread; part < args.of[k].parts; part += block.threads()) {
            parts += args.partial[part * args.width + number];
          }
          return parts;
        },
        [](double a, double b) { return a + b; });
    block.Each([&](int thread) {
      if (thread == 0) args.of[k].out[number] = sum;
    });
  }
}

// All threads fetch, one adds up: it need not wait for memory again and again.
template <class Block>
__device__ void Run(const Block& block, const ClipFactorArgs& args) {
  if (block.index() > 0) return;
  constexpr int64_t kRun = 1024;
  struct Fetched {
    double of[kRun];
  };
  Fetched& fetched = block.template Shared<Fetched>();
  typename Block::template Own<double> squares(block);
  block.Each([&](int thread) { squares[thread] = 0; });
  for (int device = 0; device < args.sums.count; ++device) {
    for (int64_t begin = 0; begin < args.n; begin += kRun) {
      const int64_t n = args.n - begin < kRun ? args.n - begin : kRun;
      block.Each([&](int thread) {
        for (int64_t i = thread; i < n; i += block.threads()) fetched.of[i] = args.sums.of[device][begin + i];
      });
      block.Each([&](int thread) {
        for (int64_t i = 0; thread == 0 && i < n; ++i) squares[thread] += fetched.of[i];
      });
    }
  }
  block.Each([&](int thread) {
    if (thread == 0) *args.factor = flat::ClipFactor(squares[thread], args.rates->rescale, args.limit);
  });
}

// What the elements of an array are updated by: engine/kernels/update_loop.h's arithmetic.
template <class Rule, class T>
struct Updating {
  const UpdateList::Array& array;
  T c[std::tuple_size_v<UpdateNumbers>], rescale, clip;
  const int64_t now;

  __device__ Updating(const UpdateList& list, const UpdateList::Array& one)
      : array(one), clip(static_cast<T>(list.clip)), now(*list.committed % 2) {
    const StepRates& rates = *list.rates;
    const UpdateNumbers numbers = Rule::Prepare({.step = rates.step,
                                                 .learning_rate = one.learning_rate * rates.learning_rate,
                                                 .weight_decay = one.weight_decay,
                                                 .settings = {list.settings, UpdateList::kMaxSettings},
                                                 .squares = one.squares ? *one.squares : UpdateSquares()});
    for (size_t k = 0; k < numbers.size(); ++k) c[k] = static_cast<T>(numbers[k]);
    rescale = static_cast<T>(list.rescale * (rates.rescale * (list.clip_factor ? *list.clip_factor : 1)));
  }
  __device__ T Weight(int64_t i) const { return static_cast<const T*>(array.weight)[i]; }
  __device__ void LoadStates(int64_t i, T* s) const {
    for (int k = 0; k < Rule::kStates; ++k) s[k] = static_cast<const T*>(array.states[now][k])[i];
  }
  __device__ T Gradient(int64_t i) const {
    T g = static_cast<const T*>(array.gradient)[i] * rescale;
    if (clip > 0) {  // NaN stays NaN
      g = g < -clip ? -clip : g;
      g = g > clip ? clip : g;
    }
    return g;
  }
};

template <class Rule, class T, class Block>
__device__ void Work(const Block& block, const UpdateKernelArgs& args) {
  ForArrays(block, args.updates, [&](const UpdateList::Array& array, const auto& parts) {
    const Updating<Rule, T> by(args.updates, array);
    void* const* const new_states = array.states[1 - by.now];
    parts([&](int64_t, int64_t begin, int64_t end) {
      block.Each([&](int thread) {
        for (int64_t i = begin + thread; i < end; i += block.threads()) {
          T w = by.Weight(i), s[Rule::kStates + 1];
          by.LoadStates(i, s);
          Rule::Step(by.c, by.Gradient(i), w, s);
          static_cast<T*>(array.new_weight)[i] = w;
          for (int k = 0; k < Rule::kStates; ++k) static_cast<T*>(new_states[k])[i] = s[k];
        }
      });
    });
  });
}

template <class Rule, class T, class Block>
__device__ void Work(const Block& block, const MeasureUpdateArgs& args) {
  if constexpr (GoesByNorms<Rule>) {
    ForArrays(block, args.updates, [&](const UpdateList::Array& array, const auto& parts) {
      const Updating<Rule, T> by(args.updates, array);
      parts([&](int64_t part, int64_t begin, int64_t end) {
        const UpdateSquares sums = block.Reduce(
            [&](int thread) {
              UpdateSquares squares;
              for (int64_t i = begin + thread; i < end; i += block.threads()) {
                T s[Rule::kStates + 1];
                by.LoadStates(i, s);
                const T weight = by.Weight(i), direction = Rule::Direction(by.c, by.Gradient(i), weight, s);
                squares.weight += static_cast<double>(weight) * static_cast<double>(weight);
                squares.direction += static_cast<double>(direction) * static_cast<double>(direction);
              }
              return squares;
            },
            [](const UpdateSquares& a, const UpdateSquares& b) {
              return UpdateSquares{a.weight + b.weight, a.direction + b.direction};
            });
        block.Each([&](int thread) {
          if (thread == 0) args.partial[part] = sums;
        });
      });
    });
  }
}

// By the rule of the list's number.
template <size_t kRule = 0, class Block, class Args>
__device__ void WorkByRule(const Block& block, const Args& args) {
  if constexpr (kRule < std::tuple_size_v<update_rules::All>) {
    using Rule = std::tuple_element_t<kRule, update_rules::All>;
    if (args.updates.rule != static_cast<int32_t>(kRule)) return WorkByRule<kRule + 1>(block, args);
    args.updates.dtype == DType::kFloat32 ? Work<Rule, float>(block, args) : Work<Rule, double>(block, args);
  }
}

template <class Block>
__device__ void Run(const Block& block, const UpdateKernelArgs& args) {
  if (AllGood(args.statuses)) WorkByRule(block, args);
}
template <class Block>
__device__ void Run(const Block& block, const MeasureUpdateArgs& args) {
  WorkByRule(block, args);
}

template <class Block>
__device__ void Run(const Block& block, const CommitArgs& args) {
  if (!AllGood(args.statuses) || (args.unless && *args.unless != kNone)) return;
  ForUnit(args.unit, [&]<class Unit>() {
    ForAll(block, args.units,
           [&](int64_t i) { static_cast<Unit*>(args.out)[i] = static_cast<const Unit*>(args.in)[i]; });
  });
  if (args.committed && block.index() == 0) {
    block.Each([&](int thread) {
      if (thread == 0) ++*args.committed;
    });
  }
}

}  // namespace bindery::cuda
