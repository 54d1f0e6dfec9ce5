// CTC in logarithms, in double: samples are shared out to the threads.
#include "symbol/ops/ctc.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/error.h"
#include "engine/team.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/simd/loops.h"
#include "executor/kernels/cpu/util.h"

namespace bindery::cpu {
namespace {

double LogAdd(double a, double b) {
  const double most = std::max(a, b);
  return most == -INFINITY ? a + b : most + std::log1p(std::exp(-std::fabs(a - b)));
}

// A thread's room in scratch memory, in doubles.
struct Room {
  int64_t steps, states, classes;
  bool has_gradient;
  int64_t logs() const { return 0; }                     // log sum e^x of each step
  int64_t labels() const { return steps; }               // blank, label, blank, ..., blank
  int64_t reached() const { return labels() + states; }  // of each step, or of the last two
  int64_t left() const { return reached() + states * (has_gradient ? std::max<int64_t>(steps, 2) : 2); }
  int64_t parts() const { return left() + (has_gradient ? 2 * states : 0); }  // of each class
  int64_t bytes() const { return RoundUp((parts() + (has_gradient ? classes : 0)) * sizeof(double), 64); }
};

template <class T, bool kGradient>
class Samples {
 public:
  Samples(const KernelSpec& spec)
      : attrs_(spec.attributes<CTCLossAttrs>()), first_(kGradient ? 1 : 0), all_steps_(spec.inputs[first_].shape[0]),
        samples_(spec.inputs[first_].shape[1]), classes_(spec.inputs[first_].shape[2]),
        all_labels_(spec.inputs[first_ + 1].shape[1]),
        blank_(attrs_.blank < 0 ? attrs_.blank + classes_ : attrs_.blank) {
    for (const ValueType& input : spec.inputs) dtypes_.push_back(input.dtype);
    const int64_t states = CheckedAdd(CheckedMul(all_labels_, 2), 1);
    // Their product, in bytes, is that of the largest array here: checked, and with it what Room adds up.
    CheckedMul(CheckedMul(CheckedAdd(all_steps_, 4), CheckedAdd(states, 1)), 32);
    room_ = {all_steps_, states, classes_, kGradient};
  }
  int64_t samples() const { return samples_; }
  int64_t work() const { return all_steps_ * (classes_ + 16 * room_.states); }  // per sample
  int64_t bytes() const { return room_.bytes(); }

  void Run(const Arguments& args, int64_t n, double* room) const {
    const T* x = args.in<T>(first_) + n * classes_;
    const int64_t step = samples_ * classes_;
    double *logs = room + room_.logs(), *labels = room + room_.labels(), *reached = room + room_.reached();
    const int64_t steps = Steps(args, n), states = Labels(args, n, labels);
    for (int64_t t = 0; t < steps; ++t) {
      const T max = loops_.max(x + t * step, classes_);
      double sum = 0;
      for (int64_t k = 0; k < classes_; ++k) sum += std::exp(static_cast<double>(x[t * step + k]) - max);
      logs[t] = max + std::log(sum);
    }
    const auto log_of = [&](int64_t t, int64_t s) { return x[t * step + static_cast<int64_t>(labels[s])] - logs[t]; };
    // A label may follow the one before it directly, unless it is the same.
    const auto jumps = [&](int64_t s) {
      return s >= 2 && labels[s] != static_cast<double>(blank_) && labels[s] != labels[s - 2];
    };

    const auto at = [&](int64_t t) { return reached + (kGradient ? t : t % 2) * states; };
    for (int64_t t = 0; t < steps; ++t) {
      for (int64_t s = 0; s < states; ++s) {
        double sum = t == 0 && s < 2 ? 0 : -INFINITY;
        if (t > 0) {
          sum = at(t - 1)[s];
          if (s >= 1) sum = LogAdd(sum, at(t - 1)[s - 1]);
          if (jumps(s)) sum = LogAdd(sum, at(t - 1)[s - 2]);
        }
        at(t)[s] = sum + log_of(t, s);
      }
    }
    double total = steps == 0 ? (states == 1 ? 0 : -INFINITY) : at(steps - 1)[states - 1];
    if (steps > 0 && states > 1) total = LogAdd(total, at(steps - 1)[states - 2]);
    const bool is_lost = total == -INFINITY && attrs_.zero_infinity;
    if constexpr (!kGradient) {
      args.out<T>(0)[n] = static_cast<T>(is_lost ? 0 : -total);
    } else {
      T* dx = args.out<T>(0) + n * classes_;
      for (int64_t t = is_lost ? 0 : steps; t < all_steps_; ++t) std::fill_n(dx + t * step, classes_, T{0});
      double *left = room + room_.left(), *parts = room + room_.parts();
      for (int64_t t = steps - 1; t >= 0 && !is_lost; --t) {
        double* now = left + t % 2 * states;  // log of the sum over the paths from here to the end
        const double* next = left + (t + 1) % 2 * states;
        std::fill_n(parts, classes_, 0.0);
        for (int64_t s = 0; s < states; ++s) {
          double sum = t == steps - 1 && s + 2 >= states ? 0 : -INFINITY;
          if (t < steps - 1) {
            sum = next[s] + log_of(t + 1, s);
            if (s + 1 < states) sum = LogAdd(sum, next[s + 1] + log_of(t + 1, s + 1));
            if (s + 2 < states && jumps(s + 2)) sum = LogAdd(sum, next[s + 2] + log_of(t + 1, s + 2));
          }
          now[s] = sum;
          parts[static_cast<int64_t>(labels[s])] += std::exp(at(t)[s] + sum - total);
        }
        const double head = args.in<T>(0)[n];
        for (int64_t k = 0; k < classes_; ++k) {
          dx[t * step + k] = static_cast<T>(head * (std::exp(x[t * step + k] - logs[t]) - parts[k]));
        }
      }
    }
  }

 private:
  double Read(const Arguments& args, size_t input, int64_t i) const {
    return Numbers(dtypes_[input], args.inputs[input])[i];
  }
  int64_t LengthOf(const Arguments& args, size_t input, int64_t n, int64_t most, const char* what) const {
    const double length = Read(args, input, n);
    if (!(length >= 0 && length <= static_cast<double>(most) && length == std::floor(length))) {
      Throw<DataError>("sample {} has {} {}, not 0..{}", n, length, what, most);
    }
    return static_cast<int64_t>(length);
  }
  int64_t Steps(const Arguments& args, int64_t n) const {
    return attrs_.use_data_lengths ? LengthOf(args, first_ + 2, n, all_steps_, "steps") : all_steps_;
  }
  // Writes the labels with blanks around each; their number.
  int64_t Labels(const Arguments& args, int64_t n, double* labels) const {
    const size_t lengths = first_ + (attrs_.use_data_lengths ? 3 : 2);
    int64_t count = attrs_.use_label_lengths ? LengthOf(args, lengths, n, all_labels_, "labels") : all_labels_;
    const double blank = static_cast<double>(blank_);
    labels[0] = blank;
    for (int64_t i = 0; i < count; ++i) {
      const double label = Read(args, first_ + 1, n * all_labels_ + i);
      if (!attrs_.use_label_lengths && (label < 0 || label == blank)) {
        count = i;
        break;
      }
      const bool is_class = label >= 0 && label < static_cast<double>(classes_) && label == std::floor(label);
      if (!is_class || label == blank) {
        Throw<DataError>("label {} of sample {} is the blank or not in 0..{}", label, n, classes_ - 1);
      }
      labels[2 * i + 1] = label;
      labels[2 * i + 2] = blank;
    }
    return 2 * count + 1;
  }

  CTCLossAttrs attrs_;
  size_t first_;  // of data among the inputs
  int64_t all_steps_, samples_, classes_, all_labels_, blank_;
  std::vector<DType> dtypes_;
  Room room_;
  const LoopsOf<T>& loops_ = BestLoops<T>();
};

template <class T, bool kGradient>
MaybeKernel MakeCTCLoss(const KernelSpec& spec) {
  const Samples<T, kGradient> samples(spec);
  Kernel kernel = PlainKernel(spec, "loop");
  kernel.scratch_bytes = CheckedMul(samples.bytes(), spec.threads);
  return WithLoop(std::move(kernel), [samples](const Arguments& args) {
    ParallelFor(samples.samples(), 1, kSerialElements / 8 / std::max<int64_t>(samples.work(), 1),
                [&](int64_t begin, int64_t end, int thread) {
                  auto* room =
                      reinterpret_cast<double*>(static_cast<std::byte*>(args.scratch) + thread * samples.bytes());
                  for (int64_t n = begin; n < end; ++n) samples.Run(args, n, room);
                });
  });
}

// OfReals looks at input 0: data, or the output's gradient of the same type.
constexpr KernelEntry kEntries[] = {
    {"CTCLoss", OfReals<MakeCTCLoss<float, false>, MakeCTCLoss<double, false>>},
    {"CTCLossGrad", OfReals<MakeCTCLoss<float, true>, MakeCTCLoss<double, true>>},
};

}  // namespace

KernelRows CTCKernels() { return kEntries; }

}  // namespace bindery::cpu
