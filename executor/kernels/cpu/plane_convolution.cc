#include "executor/kernels/cpu/plane_convolution.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "engine/team.h"
#include "executor/kernels/cpu/activation_pass.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"
#include "symbol/ops/convolution.h"

namespace bindery::cpu {
namespace {

// Planes of the data as the windows see them: with as much padding as they touch.
class Planes {
 public:
  // nullopt unless this file's loops can do it, and faster than oneDNN.
  static std::optional<Planes> Of(const ConvolutionAttrs& attrs, const Shape& data, const Shape& output) {
    if (attrs.groups != 1 || data.rank() < 3 || data.rank() > 4) return std::nullopt;
    Planes p;
    p.batch = data[0];
    p.channels = data[1];
    p.filters = output[1];
    const std::vector<Window> windows = ConvolutionWindows(attrs, data);
    for (size_t i = 0; i < windows.size(); ++i) {
      if (windows[i].stride != 1) return std::nullopt;
      p.window_[2 - windows.size() + i] = windows[i];
      p.in_[2 - windows.size() + i] = data[2 + static_cast<int>(i)];
    }
    for (int i = 0; i < 2; ++i) p.padded_[i] = p.window_[i].output - 1 + p.window_[i].extent();
    return p.IsFaster() && p.Fits() ? std::optional(p) : std::nullopt;
  }

  int64_t rows() const { return window_[0].output; }
  int64_t columns() const { return window_[1].output; }
  int64_t out_plane() const { return rows() * columns(); }
  int64_t in_plane() const { return in_[0] * in_[1]; }
  int64_t padded_plane() const { return padded_[0] * padded_[1]; }
  int64_t padded_row() const { return padded_[1]; }
  int64_t taps() const { return window_[0].kernel * window_[1].kernel; }  // of a channel
  bool is_padded() const { return padded_ != in_ || window_[0].pad_begin != 0 || window_[1].pad_begin != 0; }
  double flops() const {
    return 2.0 * static_cast<double>(batch * filters * out_plane()) * static_cast<double>(channels * taps());
  }
  // Those of the output's gradient, of which windows make the data's: each tap on the other side.
  Planes OfGradient() const {
    Planes p = *this;
    std::swap(p.channels, p.filters);
    for (int i = 0; i < 2; ++i) {
      p.window_[i].pad_begin = window_[i].extent() - 1 - window_[i].pad_begin;
      p.window_[i].output = in_[i];
      p.in_[i] = window_[i].output;
      p.padded_[i] = in_[i] - 1 + window_[i].extent();
    }
    return p;
  }
  // Can windows make the gradient, at less work than taps that add to it? They meet padding where an output is smaller.
  bool GradientOfWindows() const {
    if (window_[0].pad_begin >= window_[0].extent() || window_[1].pad_begin >= window_[1].extent()) return false;
    return columns() >= BestLoops().lanes && 2 * in_plane() <= 3 * out_plane() && in_[1] >= BestLoops().lanes &&
           OfGradient().Fits();
  }

  // Where taps, in the order of a weight's, lie in padded planes.
  std::vector<int32_t> Offsets() const {
    std::vector<int32_t> offsets;
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t i = 0; i < window_[0].kernel; ++i) {
        for (int64_t j = 0; j < window_[1].kernel; ++j) {
          offsets.push_back(
              static_cast<int32_t>(c * padded_plane() + i * window_[0].dilate * padded_[1] + j * window_[1].dilate));
        }
      }
    }
    return offsets;
  }

  // Channels [begin, end) of a sample: with zeros around, and back.
  void Pad(const float* x, float* padded, int64_t begin, int64_t end) const {
    std::fill(padded + begin * padded_plane(), padded + end * padded_plane(), 0.0f);
    ForRows(begin, end, [&](int64_t at, int64_t in_padded, int64_t n) { std::copy_n(x + at, n, padded + in_padded); });
  }
  void Unpad(const float* padded, float* x, int64_t begin, int64_t end) const {
    std::fill(x + begin * in_plane(), x + end * in_plane(), 0.0f);  // what no window touches
    ForRows(begin, end, [&](int64_t at, int64_t in_padded, int64_t n) { std::copy_n(padded + in_padded, n, x + at); });
  }

  int64_t batch = 0, channels = 0, filters = 0;

 private:
  template <class F>
  void ForRows(int64_t begin, int64_t end, const F& f) const {
    const int64_t above = window_[0].pad_begin, before = window_[1].pad_begin;
    const int64_t rows = std::min(in_[0], padded_[0] - above), n = std::min(in_[1], padded_[1] - before);
    for (int64_t c = begin; c < end && n > 0; ++c) {
      for (int64_t row = 0; row < rows; ++row) {
        f(c * in_plane() + row * in_[1], c * padded_plane() + (row + above) * padded_[1] + before, n);
      }
    }
  }
  // As measured with AVX2. Here rows that are no multiple of a vector are computed in part twice. oneDNN's blocks of 8
  // channels are filled up with zeros, and it computes with these; full blocks it takes well.
  bool IsFaster() const {
    constexpr int kLanes = 8;
    if (BestLoops().lanes != kLanes || filters % kLanes == 0 || columns() < kLanes) return false;
    return 4 * columns() >= 3 * CeilDiv(columns(), kLanes) * kLanes;
  }
  // Into offsets of 32 bits, and into scratch memory that is not mostly padding, as windows of far dilated taps see it.
  bool Fits() const {
    constexpr int64_t kMost = INT32_MAX, kMostPadding = 4;
    const auto fits = [](int64_t a, int64_t b) { return a == 0 || b <= kMost / a; };
    return window_[0].pad_begin <= kMost && padded_[0] <= kMost && padded_[1] <= kMost &&
           fits(padded_[0], padded_[1]) && fits(padded_plane(), channels) && fits(out_plane(), filters) &&
           fits(channels, taps()) && fits(channels * taps(), filters) &&
           padded_plane() / kMostPadding <= std::max(in_plane(), out_plane());
  }

  std::array<Window, 2> window_;
  std::array<int64_t, 2> in_ = {1, 1}, padded_ = {1, 1};
};

// f(sample, begin, end, thread) for all samples, and parts of [0, n) if there are few samples; n in whole `grain`s.
template <class F>
void ForSamples(int64_t samples, int64_t n, int64_t grain, int threads, const F& f) {
  const int64_t parts = threads == 1 || samples >= 4 * threads ? 1 : std::min<int64_t>(CeilDiv(n, grain), threads);
  const int64_t part = CeilDiv(CeilDiv(n, grain), parts) * grain, items = samples * parts;
  ParallelFor(items, 1, threads == 1 ? items : 0, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % parts * part;
      if (first < n) f(i / parts, first, std::min(first + part, n), thread);
    }
  });
}

constexpr int64_t kAtOnce = 6;  // filters, in the loop of plane_body.h

class Forward {
 public:
  // `addend`: the input that is added before the activation, or -1.
  Forward(const Planes& planes, bool has_bias, int addend, ActivationType activation, int threads)
      : p_(planes), has_bias_(has_bias), addend_(addend), activation_(activation), threads_(threads),
        x_terms_(p_.Offsets()), w_terms_(x_terms_.size()) {
    std::iota(w_terms_.begin(), w_terms_.end(), 0);
    for (int64_t f = 0; f < p_.filters; ++f) y_filters_.push_back(static_cast<int32_t>(f * p_.out_plane()));
  }
  int64_t scratch() const { return p_.is_padded() ? threads_ * p_.channels * p_.padded_plane() : 0; }  // elements

  void operator()(const Arguments& args) const {
    ForSamples(p_.batch, p_.filters, kAtOnce, threads_, [&](int64_t sample, int64_t begin, int64_t end, int thread) {
      const float* x = args.in(0) + sample * p_.channels * p_.in_plane();
      if (p_.is_padded()) {
        float* const padded = static_cast<float*>(args.scratch) + thread * p_.channels * p_.padded_plane();
        p_.Pad(x, padded, 0, p_.channels);
        x = padded;
      }
      float* const y = args.out(0) + sample * p_.filters * p_.out_plane();
      if (addend_ >= 0 && args.in(addend_) != args.out(0)) {
        const float* const addend = args.in(addend_) + sample * p_.filters * p_.out_plane();
        std::copy(addend + begin * p_.out_plane(), addend + end * p_.out_plane(), y + begin * p_.out_plane());
      }
      BestLoops().plane_products({.x = x,
                                  .w = args.in(1) + begin * std::ssize(w_terms_),
                                  .bias = has_bias_ ? args.in(2) + begin : nullptr,
                                  .terms = std::ssize(x_terms_),
                                  .w_filter = std::ssize(w_terms_),
                                  .x_terms = x_terms_.data(),
                                  .w_terms = w_terms_.data(),
                                  .rows = p_.rows(),
                                  .columns = p_.columns(),
                                  .x_row = p_.padded_row(),
                                  .y = y,
                                  .filters = end - begin,
                                  .y_row = p_.columns(),
                                  .y_filters = y_filters_.data() + begin,
                                  .add = addend_ >= 0});
      if (activation_.loop) activation_.Serial(y + begin * p_.out_plane(), (end - begin) * p_.out_plane());
    });
  }

 private:
  Planes p_;
  bool has_bias_;
  int addend_;
  ActivationPass<float> activation_;
  int threads_;
  std::vector<int32_t> x_terms_, w_terms_, y_filters_;
};

// Windows of the output's gradient make the data's; or, where these would meet too much padding, each tap's products of
// planes, a term for each filter, are added where it lies.
class GradData {
 public:
  GradData(const Planes& planes, int threads)
      : of_windows_(planes.GradientOfWindows()), p_(of_windows_ ? planes.OfGradient() : planes), threads_(threads) {
    const int64_t taps = p_.taps();
    if (of_windows_) {
      x_terms_ = p_.Offsets();
      for (int64_t f = 0; f < p_.channels; ++f) {
        for (int64_t t = taps; t-- > 0;) w_terms_.push_back(static_cast<int32_t>(f * p_.filters * taps + t));
      }
      for (int64_t c = 0; c < p_.filters; ++c) y_filters_.push_back(static_cast<int32_t>(c * p_.out_plane()));
    } else {
      y_filters_ = p_.Offsets();
      for (int64_t f = 0; f < p_.filters; ++f) {
        x_terms_.push_back(static_cast<int32_t>(f * p_.out_plane()));
        w_terms_.push_back(static_cast<int32_t>(f * p_.channels * taps));
      }
    }
  }
  int64_t scratch() const { return p_.is_padded() ? threads_ * p_.channels * p_.padded_plane() : 0; }  // elements

  void operator()(const Arguments& args) const {
    if (of_windows_) {
      ForSamples(p_.batch, p_.filters, kAtOnce, threads_, [&](int64_t sample, int64_t begin, int64_t end, int thread) {
        GatherWindows(args, sample, begin, end, thread);
      });
    } else {
      // Taps that are computed together are added place by place, so which these are decides about rounding: parts
      // begin where a group of all channels' taps does.
      const int64_t grain = kAtOnce / std::gcd(kAtOnce, p_.taps());
      ForSamples(p_.batch, p_.channels, grain, threads_, [&](int64_t sample, int64_t begin, int64_t end, int thread) {
        AddTaps(args, sample, begin, end, thread);
      });
    }
  }

 private:
  float* Padded(const Arguments& args, int thread) const {
    return static_cast<float*>(args.scratch) + thread * p_.channels * p_.padded_plane();
  }
  // Of channels [begin, end) of the data. Here the planes' channels are filters, and the other way round.
  void GatherWindows(const Arguments& args, int64_t sample, int64_t begin, int64_t end, int thread) const {
    const float* dy = args.in(0) + sample * p_.channels * p_.in_plane();
    if (p_.is_padded()) {
      p_.Pad(dy, Padded(args, thread), 0, p_.channels);
      dy = Padded(args, thread);
    }
    BestLoops().plane_products({.x = dy,
                                .w = args.in(1) + begin * p_.taps(),
                                .bias = nullptr,
                                .terms = std::ssize(x_terms_),
                                .w_filter = p_.taps(),
                                .x_terms = x_terms_.data(),
                                .w_terms = w_terms_.data(),
                                .rows = p_.rows(),
                                .columns = p_.columns(),
                                .x_row = p_.padded_row(),
                                .y = args.out(0) + sample * p_.filters * p_.out_plane(),
                                .filters = end - begin,
                                .y_row = p_.columns(),
                                .y_filters = y_filters_.data() + begin,
                                .add = false});
  }
  void AddTaps(const Arguments& args, int64_t sample, int64_t begin, int64_t end, int thread) const {
    float* const dx = args.out(0) + sample * p_.channels * p_.in_plane();
    float* const sums = p_.is_padded() ? Padded(args, thread) : dx;
    std::fill(sums + begin * p_.padded_plane(), sums + end * p_.padded_plane(), 0.0f);
    BestLoops().plane_products({.x = args.in(0) + sample * p_.filters * p_.out_plane(),
                                .w = args.in(1) + begin * p_.taps(),
                                .bias = nullptr,
                                .terms = p_.filters,
                                .w_filter = 1,
                                .x_terms = x_terms_.data(),
                                .w_terms = w_terms_.data(),
                                .rows = p_.rows(),
                                .columns = p_.columns(),
                                .x_row = p_.columns(),
                                .y = sums,
                                .filters = (end - begin) * p_.taps(),
                                .y_row = p_.padded_row(),
                                .y_filters = y_filters_.data() + begin * p_.taps(),
                                .add = true});
    if (p_.is_padded()) p_.Unpad(sums, dx, begin, end);
  }

  bool of_windows_;
  Planes p_;
  int threads_;
  std::vector<int32_t> x_terms_, w_terms_, y_filters_;
};

template <class Loop>
Kernel Finished(Kernel kernel, Loop loop) {
  kernel.scratch_bytes = CheckedMul(loop.scratch(), static_cast<int64_t>(sizeof(float)), "scratch bytes");
  return WithLoop(std::move(kernel), std::move(loop));
}

}  // namespace

MaybeKernel PlaneConvolution(const KernelSpec& spec, int addend) {
  const auto& attrs = spec.attributes<ConvolutionAttrs>();
  if (!AllFloat(spec)) return std::nullopt;
  const auto planes = Planes::Of(attrs, spec.inputs[0].shape, spec.outputs[0].shape);
  if (!planes) return std::nullopt;
  Kernel kernel = PlainKernel(spec, "planes");
  kernel.threads = ThreadsForWork(spec, planes->flops());
  if (addend >= 0) kernel.inplace = {{addend, 0}};
  Forward loop(*planes, !attrs.no_bias, addend, attrs.activation, kernel.threads);
  return Finished(std::move(kernel), std::move(loop));
}

MaybeKernel PlaneConvolutionGradData(const KernelSpec& spec) {
  if (!AllFloat(spec)) return std::nullopt;
  const auto planes =
      Planes::Of(spec.attributes<ConvolutionGradDataAttrs>(), spec.outputs[0].shape, spec.inputs[0].shape);
  if (!planes) return std::nullopt;
  Kernel kernel = PlainKernel(spec, "planes");
  kernel.threads = ThreadsForWork(spec, planes->flops());
  GradData loop(*planes, kernel.threads);
  return Finished(std::move(kernel), std::move(loop));
}

}  // namespace bindery::cpu
