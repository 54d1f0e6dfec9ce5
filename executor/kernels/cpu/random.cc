// Random numbers, by tiles: the words of a run of elements of one sample, then what they give, in double, then
// elements.
#include "symbol/ops/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/philox.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/accumulator.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

constexpr int64_t kTile = 512;

// Where the random words of an output's elements come from.
struct Source {
  std::string node_name;
  bool per_sample;
  AxisView view;
  explicit Source(const KernelSpec& spec) : node_name(spec.node_name), per_sample(spec.outputs[0].batch_axis >= 0) {
    view = per_sample ? SamplesOf(spec.outputs[0]) : AxisView{1, 1, spec.outputs[0].shape.Elements()};
  }

  // f(first element, n, the words of their sample from element `before` earlier on): by the team, in runs of elements
  // of one sample, kWords for each. `before` makes the first word that of a block.
  template <int64_t kWords, class F>
  void ForRuns(const StepBlock& step, const F& f) const {
    PhiloxKey key = StreamKey(step.seed, node_name);
    key.k1 ^= static_cast<uint32_t>(step.step >> 32);
    ParallelFor(
        view.outer * view.axis * view.inner, kGrain, kSerialElements / 16, [&](int64_t begin, int64_t end, int) {
          uint32_t words[(kTile + 8) * kWords];
          while (begin < end) {
            const int64_t row = begin / view.inner, within = begin % view.inner;
            const int64_t n = std::min({view.inner - within, end - begin, kTile});
            const int64_t place = row / view.axis * view.inner + within, before = place % 4;
            const auto sample = per_sample ? static_cast<uint64_t>(step.sample_offset + row % view.axis) : uint64_t{0};
            const int64_t first = (place - before) * kWords / 4, blocks = ((before + n) * kWords + 3) / 4;
            for (int64_t i = 0; i < blocks; ++i) {
              const PhiloxBlock block = Philox4x32(
                  {static_cast<uint32_t>(first + i), static_cast<uint32_t>(sample),
                   static_cast<uint32_t>(sample >> 32) ^ (step.micro_batch << 16), static_cast<uint32_t>(step.step)},
                  key);
              std::copy(block.begin(), block.end(), words + i * 4);
            }
            f(begin, n, before, words);
            begin += n;
          }
        });
  }
};

uint64_t LongWord(const uint32_t* words, int64_t i) { return uint64_t{words[2 * i]} << 32 | words[2 * i + 1]; }

// Makes n numbers the elements of an output from `first` on.
using Store = void (*)(const double* numbers, int64_t n, void* output, int64_t first);
Store StoreOf(DType dtype) {
  return Dispatch(dtype, []<class T>() -> Store {
    return [](const double* numbers, int64_t n, void* output, int64_t first) {
      for (int64_t i = 0; i < n; ++i) static_cast<T*>(output)[first + i] = Stored<T>(numbers[i]);
    };
  });
}

// make(first element, n, before, words as of ForRuns, numbers) gives n numbers, of at most kTile elements.
template <int64_t kWords, class F>
Kernel ByRuns(Kernel kernel, const KernelSpec& spec, const F& make) {
  return WithLoop(
      std::move(kernel), [=, source = Source(spec), store = StoreOf(spec.outputs[0].dtype)](const Arguments& args) {
        source.ForRuns<kWords>(*args.step, [&](int64_t first, int64_t n, int64_t before, const uint32_t* words) {
          double numbers[kTile];
          make(args, first, n, before, words, numbers);
          store(numbers, n, args.outputs[0], first);
        });
      });
}

MaybeKernel MakeUniform(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<RandomUniformAttrs>();
  return ByRuns<1>(PlainKernel(spec, "loop"), spec,
                   [low = attrs.low, range = attrs.high - attrs.low](const Arguments&, int64_t, int64_t n,
                                                                     int64_t before, const uint32_t* words, double* y) {
                     for (int64_t i = 0; i < n; ++i) {
                       y[i] = low + range * static_cast<double>(UniformFloat(words[before + i]));
                     }
                   });
}

MaybeKernel MakeInt(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<RandomIntAttrs>();
  return ByRuns<2>(PlainKernel(spec, "loop"), spec,
                   [low = attrs.low, range = static_cast<uint64_t>(attrs.high - attrs.low)](
                       const Arguments&, int64_t, int64_t n, int64_t before, const uint32_t* words, double* y) {
                     for (int64_t i = 0; i < n; ++i) {
                       const auto product = static_cast<unsigned __int128>(LongWord(words, before + i)) * range;
                       y[i] = static_cast<double>(low + static_cast<int64_t>(product >> 64));
                     }
                   });
}

// Pairs of words make pairs of numbers; a run may begin or end within one.
MaybeKernel MakeNormal(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<RandomNormalAttrs>();
  return ByRuns<1>(PlainKernel(spec, "loop"), spec,
                   [mean = attrs.mean, scale = attrs.scale](const Arguments&, int64_t, int64_t n, int64_t before,
                                                            const uint32_t* words, double* y) {
                     const LoopsOf<double>& loops = BestLoops<double>();
                     constexpr int64_t kPairs = kTile / 2 + 4;
                     double radius[kPairs], angle[kPairs], sine[kPairs];
                     const int64_t pairs = (before + n + 1) / 2;
                     for (int64_t i = 0; i < pairs; ++i) {
                       radius[i] = (words[2 * i] + 0.5) * 0x1p-32;
                       angle[i] = words[2 * i + 1] * (2 * std::numbers::pi * 0x1p-32);
                     }
                     loops.UnaryOf<native::fn::Log>()(radius, radius, pairs);
                     for (int64_t i = 0; i < pairs; ++i) radius[i] = std::sqrt(-2 * radius[i]) * scale;
                     loops.UnaryOf<native::fn::Sin>()(angle, sine, pairs);
                     loops.UnaryOf<native::fn::Cos>()(angle, angle, pairs);
                     for (int64_t i = before; i < before + n; ++i) {
                       y[i - before] = mean + radius[i / 2] * (i % 2 == 0 ? angle[i / 2] : sine[i / 2]);
                     }
                   });
}

MaybeKernel MakeBernoulli(const KernelSpec& spec) {
  return ByRuns<1>(PlainKernel(spec, "loop"), spec,
                   [dtype = spec.inputs[0].dtype](const Arguments& args, int64_t first, int64_t n, int64_t before,
                                                  const uint32_t* words, double* y) {
                     const Numbers p(dtype, args.inputs[0]);
                     for (int64_t i = 0; i < n; ++i) {
                       y[i] = static_cast<double>(UniformFloat(words[before + i])) < p[first + i] ? 1 : 0;
                     }
                   });
}

// Each row's weights are added up once; then every draw is a search in the sums.
MaybeKernel MakeMultinomial(const KernelSpec& spec) {
  const int64_t rows = spec.outputs[0].shape[0], draws = spec.outputs[0].shape[1], k = spec.inputs[0].shape[1];
  const bool logits = spec.attributes<MultinomialAttrs>().logits;
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.scratch_bytes = rows * k * static_cast<int64_t>(sizeof(double));
  kernel =
      ByRuns<2>(std::move(kernel), spec,
                [=](const Arguments& args, int64_t first, int64_t n, int64_t before, const uint32_t* words, double* y) {
                  const auto* sums = static_cast<const double*>(args.scratch);
                  for (int64_t i = 0; i < n; ++i) {
                    const double* row = sums + (first + i) / draws * k;
                    const double unit = static_cast<double>(LongWord(words, before + i) >> 11) * 0x1p-53;
                    y[i] = static_cast<double>(std::upper_bound(row, row + k - 1, unit * row[k - 1]) - row);
                  }
                });
  kernel.bind = [=, dtype = spec.inputs[0].dtype, draw = kernel.bind](const KernelArgs& args) -> Call {
    return [=, weights = Numbers(dtype, args.inputs[0]), sums = static_cast<double*>(args.scratch), draw = draw(args)] {
      ParallelFor(rows, 1, kSerialElements / 16 / k, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) {
          double most = -INFINITY, sum = 0;
          for (int64_t i = row * k; i < (row + 1) * k && logits; ++i) most = std::fmax(most, weights[i]);
          for (int64_t i = row * k; i < (row + 1) * k; ++i) {
            sum += logits ? std::exp(weights[i] - most) : std::fmax(weights[i], 0);
            sums[i] = sum;
          }
        }
      });
      draw();
    };
  };
  return kernel;
}

constexpr KernelEntry kEntries[] = {
    {"RandomUniform", MakeUniform}, {"RandomNormal", MakeNormal},     {"RandomInt", MakeInt},
    {"Bernoulli", MakeBernoulli},   {"Multinomial", MakeMultinomial},
};

}  // namespace

KernelRows RandomKernels() { return kEntries; }

}  // namespace bindery::cpu
