#include "symbol/ops/attention.h"

#include <cmath>
#include <vector>

#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

// Scores of one query with all keys, and what else is computed of it.
struct Row {
  AttentionAttrs attrs;
  AttentionForm f;
  std::array<int64_t, 4> mask_strides{};
  bool is_bool = false;

  Row(const KernelSpec& spec, const AttentionAttrs& a, int first)
      : attrs(a), f(FormOf(a, spec.inputs[first].shape, spec.inputs[first + 1].shape, spec.inputs[first + 2].shape)) {
    if (!attrs.masked) return;
    mask_strides = MaskStrides(spec.inputs[first + 3].shape);
    is_bool = spec.inputs[first + 3].dtype == DType::kBool;
  }
  static int64_t At(const AttentionForm::Strides& s, int64_t sample, int64_t head, int64_t row) {
    return sample * s.sample + head * s.head + row * s.row;
  }

  // f(sample, head, head of keys, query)
  template <class F>
  void ForEach(const F& each) const {
    for (int64_t n = 0; n < f.samples; ++n) {
      for (int64_t h = 0; h < f.heads; ++h) {
        for (int64_t t = 0; t < f.queries; ++t) each(n, h, h / (f.heads / f.kv_heads), t);
      }
    }
  }

  // scores[s], and slopes[s], the derivative of what caps them
  void Compute(const double* q, const double* keys, const double* mask, int64_t n, int64_t h, int64_t t, double* scores,
               double* slopes) const {
    const KeyRange seen = SeenKeys(attrs, t, f.keys);
    for (int64_t s = 0; s < f.keys; ++s) {
      double score = 0;
      for (int64_t d = 0; d < f.depth; ++d) score += q[d] * keys[s * f.key.row + d];
      score *= f.scale;
      slopes[s] = 1;
      if (attrs.softcap > 0) {
        const double capped = std::tanh(score / attrs.softcap);
        slopes[s] = 1 - capped * capped;
        score = attrs.softcap * capped;
      }
      if (attrs.masked) {
        const double own = mask[n * mask_strides[0] + h * mask_strides[1] + t * mask_strides[2] + s * mask_strides[3]];
        score += is_bool ? (own != 0 ? 0 : -INFINITY) : own;
      }
      scores[s] = s >= seen.first && s < seen.last ? score : -INFINITY;
    }
  }
};

// (query, key, value [, mask]) -> output, maximum, log_sum
MaybeKernel MakeAttention(const KernelSpec& spec) {
  const Row row(spec, spec.attributes<AttentionAttrs>(), 0);
  const bool kept_in_float = spec.outputs[1].dtype != DType::kFloat64;
  return InDouble(spec, [=](const Tensors& t) {
    const AttentionForm& f = row.f;
    std::vector<double> scores(f.keys), slopes(f.keys);
    row.ForEach([&](int64_t n, int64_t h, int64_t g, int64_t i) {
      row.Compute(t.in[0] + Row::At(f.query, n, h, i), t.in[1] + Row::At(f.key, n, g, 0),
                  row.attrs.masked ? t.in[3] : nullptr, n, h, i, scores.data(), slopes.data());
      double max = -INFINITY, sum = 0;
      for (int64_t s = 0; s < f.keys; ++s) {
        if (scores[s] > max || std::isnan(scores[s])) max = scores[s];
      }
      for (int64_t s = 0; s < f.keys && max != -INFINITY; ++s) sum += scores[s] = std::exp(scores[s] - max);
      const int64_t place = (n * f.heads + h) * f.queries + i;
      // What the maximum loses in float the other has: their sum is what counts.
      const double kept = kept_in_float ? static_cast<float>(max) : max;
      t.out[1][place] = sum == 0 ? 0 : kept;
      t.out[2][place] = sum == 0 ? 0 : max - kept + std::log(sum);
      double* y = t.out[0] + Row::At(f.output, n, h, i);
      for (int64_t s = 0; s < f.keys && sum != 0; ++s) {
        const double* value = t.in[2] + Row::At(f.value, n, g, s);
        for (int64_t e = 0; e < f.width; ++e) y[e] += scores[s] / sum * value[e];
      }
    });
  });
}

// (dy, query, key, value [, mask], output, maximum, log_sum) -> dq, dk, dv [, d scores]
MaybeKernel MakeAttentionGrad(const KernelSpec& spec) {
  const auto attrs = spec.attributes<AttentionGradAttrs>();
  const Row row(spec, attrs, 1);
  return InDouble(spec, [=](const Tensors& t) {
    const AttentionForm& f = row.f;
    const int output = attrs.masked ? 5 : 4;
    std::vector<double> scores(f.keys), slopes(f.keys);
    row.ForEach([&](int64_t n, int64_t h, int64_t g, int64_t i) {
      const int64_t at_query = Row::At(f.query, n, h, i), at_output = Row::At(f.output, n, h, i);
      const int64_t place = (n * f.heads + h) * f.queries + i;
      const double *q = t.in[1] + at_query, *dy = t.in[0] + at_output, *y = t.in[output] + at_output;
      row.Compute(q, t.in[2] + Row::At(f.key, n, g, 0), attrs.masked ? t.in[4] : nullptr, n, h, i, scores.data(),
                  slopes.data());
      double dot = 0;
      for (int64_t e = 0; e < f.width; ++e) dot += dy[e] * y[e];
      for (int64_t s = 0; s < f.keys; ++s) {
        const int64_t at_key = Row::At(f.key, n, g, s), at_value = Row::At(f.value, n, g, s);
        const double p = std::exp(scores[s] - t.in[output + 1][place] - t.in[output + 2][place]);
        double dp = 0;
        for (int64_t e = 0; e < f.width; ++e) {
          dp += dy[e] * t.in[3][at_value + e];
          t.out[2][at_value + e] += p * dy[e];
        }
        const double ds = p * (dp - dot);
        if (attrs.mask_grad) t.out[3][place * f.keys + s] = ds;
        for (int64_t d = 0; d < f.depth; ++d) {
          t.out[0][at_query + d] += ds * slopes[s] * f.scale * t.in[2][at_key + d];
          t.out[1][at_key + d] += ds * slopes[s] * f.scale * q[d];
        }
      }
    });
  });
}

constexpr KernelEntry kEntries[] = {
    {"Attention", MakeAttention},
    {"AttentionGrad", MakeAttentionGrad},
};

}  // namespace

KernelRows AttentionKernels() { return kEntries; }

}  // namespace bindery::reference
