#include "symbol/ops/ctc.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "executor/kernel_table.h"
#include "executor/kernels/reference/util.h"

namespace bindery::reference {
namespace {

using Table = std::vector<std::vector<double>>;  // by step and class, or step and state

double LogAdd(double a, double b) {
  const double most = std::max(a, b);
  return most == -INFINITY ? a + b : most + std::log1p(std::exp(-std::fabs(a - b)));
}

// What a sample's labels are made of: blank, label, blank, ..., blank.
struct Sample {
  Table logs;  // of softmax
  std::vector<int64_t> labels;

  // The sums over all paths from the first step to a state of each step; of reversed labels and steps, from the last.
  Table Reached() const {
    const size_t steps = logs.size(), states = labels.size();
    Table sums(steps, std::vector<double>(states, -INFINITY));
    for (size_t t = 0; t < steps; ++t) {
      for (size_t s = 0; s < states; ++s) {
        double& sum = sums[t][s];
        if (t == 0 && s < 2) sum = 0;
        for (size_t back = 0; t > 0 && back <= std::min<size_t>(s, 2); ++back) {
          if (back == 2 && (s % 2 == 0 || labels[s] == labels[s - 2])) continue;
          sum = LogAdd(sum, sums[t - 1][s - back]);
        }
        sum += logs[t][static_cast<size_t>(labels[s])];
      }
    }
    return sums;
  }
  double Total(const Table& reached) const {
    if (reached.empty()) return labels.size() == 1 ? 0 : -INFINITY;
    const std::vector<double>& last = reached.back();
    return last.size() == 1 ? last[0] : LogAdd(last[last.size() - 1], last[last.size() - 2]);
  }
};

// Inputs from `first` on: data, label [, data_lengths] [, label_lengths].
struct Batch {
  CTCLossAttrs attrs;
  size_t first;
  Shape data, label;

  Sample Of(const Tensors& t, int64_t n) const {
    const int64_t classes = data[2], blank = attrs.blank < 0 ? attrs.blank + classes : attrs.blank;
    size_t next = first + 2;
    const int64_t steps = attrs.use_data_lengths ? Length(t.in[next++][n], data[0]) : data[0];
    const int64_t count = attrs.use_label_lengths ? Length(t.in[next][n], label[1]) : label[1];
    Sample sample{{}, {blank}};
    for (int64_t step = 0; step < steps; ++step) {
      const double* x = t.in[first] + (step * data[1] + n) * classes;
      double max = -INFINITY, sum = 0;
      for (int64_t k = 0; k < classes; ++k) max = std::fmax(max, x[k]);
      for (int64_t k = 0; k < classes; ++k) sum += std::exp(x[k] - max);
      sample.logs.emplace_back();
      for (int64_t k = 0; k < classes; ++k) sample.logs.back().push_back(x[k] - max - std::log(sum));
    }
    for (int64_t i = 0; i < count; ++i) {
      const double l = t.in[first + 1][n * label[1] + i];
      if (!attrs.use_label_lengths && (l < 0 || l == static_cast<double>(blank))) break;
      if (!(l >= 0 && l < static_cast<double>(classes) && l == std::floor(l)) || l == static_cast<double>(blank)) {
        Throw<DataError>("label {} of sample {} is the blank or no class", l, n);
      }
      sample.labels.insert(sample.labels.end(), {static_cast<int64_t>(l), blank});
    }
    return sample;
  }

 private:
  int64_t Length(double length, int64_t most) const {
    if (!(length >= 0 && length <= static_cast<double>(most) && length == std::floor(length))) {
      Throw<DataError>("a length of {} is not in 0..{}", length, most);
    }
    return static_cast<int64_t>(length);
  }
};

MaybeKernel MakeCTCLoss(const KernelSpec& spec) {
  const Batch batch{spec.attributes<CTCLossAttrs>(), 0, spec.inputs[0].shape, spec.inputs[1].shape};
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t n = 0; n < batch.data[1]; ++n) {
      const Sample sample = batch.Of(t, n);
      const double total = sample.Total(sample.Reached());
      t.out[0][n] = total == -INFINITY && batch.attrs.zero_infinity ? 0 : -total;
    }
  });
}

// (dy, data, label [, data_lengths] [, label_lengths]) -> dx
MaybeKernel MakeCTCLossGrad(const KernelSpec& spec) {
  const Batch batch{spec.attributes<CTCLossAttrs>(), 1, spec.inputs[1].shape, spec.inputs[2].shape};
  return InDouble(spec, [=](const Tensors& t) {
    for (int64_t n = 0; n < batch.data[1]; ++n) {
      const Sample sample = batch.Of(t, n);
      const Table reached = sample.Reached();
      const Sample reversed{{sample.logs.rbegin(), sample.logs.rend()}, {sample.labels.rbegin(), sample.labels.rend()}};
      const Table left = reversed.Reached();
      const double total = sample.Total(reached);
      if (total == -INFINITY && batch.attrs.zero_infinity) continue;
      for (size_t step = 0; step < sample.logs.size(); ++step) {
        const std::vector<double>& log = sample.logs[step];
        double* dx = t.out[0] + (static_cast<int64_t>(step) * batch.data[1] + n) * batch.data[2];
        for (size_t k = 0; k < log.size(); ++k) dx[k] = std::exp(log[k]);
        for (size_t s = 0; s < sample.labels.size(); ++s) {  // both sums have the state's own factor
          const auto k = static_cast<size_t>(sample.labels[s]);
          if (log[k] == -INFINITY) continue;
          const double paths = reached[step][s] + left[left.size() - 1 - step][sample.labels.size() - 1 - s] - log[k];
          dx[k] -= std::exp(paths - total);
        }
        for (size_t k = 0; k < log.size(); ++k) dx[k] *= t.in[0][n];
      }
    }
  });
}

constexpr KernelEntry kEntries[] = {{"CTCLoss", MakeCTCLoss}, {"CTCLossGrad", MakeCTCLossGrad}};

}  // namespace

KernelRows CTCKernels() { return kEntries; }

}  // namespace bindery::reference
