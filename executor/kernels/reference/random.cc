// Random numbers: word by word, as symbol/ops/random.h says.
#include "symbol/ops/random.h"

#include <cmath>
#include <numbers>

#include "base/philox.h"
#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

// The random words of an output's elements.
struct Words {
  std::string node_name;
  ValueType type;
  AxisView view;
  explicit Words(const KernelSpec& spec) : node_name(spec.node_name), type(spec.outputs[0]) {
    view = type.batch_axis >= 0 ? SamplesOf(type) : AxisView{1, 1, type.shape.Elements()};
  }

  // f(element, its place in the sample, word: (i) -> word i of the sample)
  template <class F>
  void ForEach(const StepBlock& step, const F& f) const {
    PhiloxKey key = StreamKey(step.seed, node_name);
    key.k1 ^= static_cast<uint32_t>(step.step >> 32);
    for (int64_t at = 0; at < view.outer * view.axis * view.inner; ++at) {
      const int64_t row = at / view.inner;
      const uint64_t sample = type.batch_axis >= 0 ? static_cast<uint64_t>(step.sample_offset + row % view.axis) : 0;
      const auto word = [&](int64_t i) {
        return Philox4x32(
            {static_cast<uint32_t>(i / 4), static_cast<uint32_t>(sample),
             static_cast<uint32_t>(sample >> 32) ^ (step.micro_batch << 16), static_cast<uint32_t>(step.step)},
            key)[static_cast<size_t>(i % 4)];
      };
      f(at, row / view.axis * view.inner + at % view.inner, word);
    }
  }
};

MaybeKernel MakeUniform(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<RandomUniformAttrs>();
  return InDouble(spec, [words = Words(spec), low = attrs.low, high = attrs.high](const Tensors& t) {
    words.ForEach(*t.step, [&](int64_t at, int64_t i, const auto& word) {
      t.out[0][at] = low + (high - low) * static_cast<double>(UniformFloat(word(i)));
    });
  });
}

// Two neighbours share two words.
MaybeKernel MakeNormal(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<RandomNormalAttrs>();
  return InDouble(spec, [words = Words(spec), mean = attrs.mean, scale = attrs.scale](const Tensors& t) {
    words.ForEach(*t.step, [&](int64_t at, int64_t i, const auto& word) {
      const int64_t first = i - i % 2;
      const double radius = std::sqrt(-2 * std::log((word(first) + 0.5) * 0x1p-32));
      const double angle = word(first + 1) * (2 * std::numbers::pi * 0x1p-32);
      t.out[0][at] = mean + scale * radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
    });
  });
}

MaybeKernel MakeInt(const KernelSpec& spec) {
  const auto& attrs = spec.attributes<RandomIntAttrs>();
  const auto range = static_cast<uint64_t>(attrs.high - attrs.low);
  return InDouble(spec, [words = Words(spec), low = attrs.low, range](const Tensors& t) {
    words.ForEach(*t.step, [&](int64_t at, int64_t i, const auto& word) {
      const uint64_t bits = uint64_t{word(2 * i)} << 32 | word(2 * i + 1);
      const auto product = static_cast<unsigned __int128>(bits) * range;
      t.out[0][at] = static_cast<double>(low + static_cast<int64_t>(product >> 64));
    });
  });
}

MaybeKernel MakeBernoulli(const KernelSpec& spec) {
  return InDouble(spec, [words = Words(spec)](const Tensors& t) {
    words.ForEach(*t.step, [&](int64_t at, int64_t i, const auto& word) {
      t.out[0][at] = static_cast<double>(UniformFloat(word(i))) < t.in[0][at];
    });
  });
}

MaybeKernel MakeMultinomial(const KernelSpec& spec) {
  const int64_t draws = spec.outputs[0].shape[1], categories = spec.inputs[0].shape[1];
  return InDouble(
      spec, [=, words = Words(spec), logits = spec.attributes<MultinomialAttrs>().logits](const Tensors& t) {
        const double* summed = nullptr;  // the row that these are of
        double most = 0, total = 0;
        words.ForEach(*t.step, [&](int64_t at, int64_t i, const auto& word) {
          const double* row = t.in[0] + at / draws * categories;
          const auto weight = [&](int64_t k) { return logits ? std::exp(row[k] - most) : std::fmax(row[k], 0); };
          if (row != summed) {
            summed = row;
            most = -INFINITY;
            for (int64_t k = 0; k < categories; ++k) most = std::fmax(most, row[k]);
            total = 0;
            for (int64_t k = 0; k < categories; ++k) total += weight(k);
          }
          const uint64_t bits = uint64_t{word(2 * i)} << 32 | word(2 * i + 1);
          const double wanted = static_cast<double>(bits >> 11) * 0x1p-53 * total;
          int64_t k = 0;
          for (double sum = weight(0); k < categories - 1 && !(wanted < sum); sum += weight(k)) ++k;
          t.out[0][at] = static_cast<double>(k);
        });
      });
}

constexpr KernelEntry kEntries[] = {
    {"RandomUniform", MakeUniform}, {"RandomNormal", MakeNormal},     {"RandomInt", MakeInt},
    {"Bernoulli", MakeBernoulli},   {"Multinomial", MakeMultinomial},
};

}  // namespace

KernelRows RandomKernels() { return kEntries; }

}  // namespace bindery::reference
