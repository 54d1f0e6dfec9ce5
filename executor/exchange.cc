#include "executor/exchange.h"

#include "engine/kernels/flat.h"

namespace bindery {
namespace {

// statistics (3, C): count, mean, M2
template <class T>
void MergeStatistics(int64_t channels, std::span<const void* const> inputs, std::span<void* const> outputs) {
  for (int64_t c = 0; c < channels; ++c) {
    double count = 0, mean = 0, m2 = 0;
    for (const void* input : inputs) {
      const T* s = static_cast<const T*>(input);
      count += s[c];
      mean += static_cast<double>(s[c]) * s[channels + c];
    }
    if (count > 0) mean /= count;
    for (const void* input : inputs) {
      const T* s = static_cast<const T*>(input);
      const double delta = s[channels + c] - mean;
      m2 += s[2 * channels + c] + s[c] * delta * delta;
    }
    for (void* output : outputs) {
      T* s = static_cast<T*>(output);
      s[c] = static_cast<T>(count);
      s[channels + c] = static_cast<T>(mean);
      s[2 * channels + c] = static_cast<T>(m2);
    }
  }
}

template <class T>
void MoveRunning(int64_t channels, std::span<const ChannelStatistics> sources, double momentum,
                 std::span<void* const> means, std::span<void* const> variances) {
  double count = 0;
  for (const ChannelStatistics& s : sources) count += static_cast<double>(s.count);
  if (count == 0 || means.empty()) return;
  for (int64_t c = 0; c < channels; ++c) {
    double mean = 0, m2 = 0;
    for (const ChannelStatistics& s : sources) mean += static_cast<double>(s.count) * static_cast<const T*>(s.mean)[c];
    mean /= count;
    for (const ChannelStatistics& s : sources) {
      const double delta = static_cast<const T*>(s.mean)[c] - mean;
      m2 += static_cast<double>(s.count) * (static_cast<const T*>(s.variance)[c] + delta * delta);
    }
    const T running_mean = static_cast<T>(momentum * static_cast<T*>(means[0])[c] + (1 - momentum) * mean);
    const T running_variance =
        static_cast<T>(momentum * static_cast<T*>(variances[0])[c] + (1 - momentum) * (m2 / count));
    for (void* m : means) static_cast<T*>(m)[c] = running_mean;
    for (void* v : variances) static_cast<T*>(v)[c] = running_variance;
  }
}

template <class F>
void DispatchFloatOrDouble(DType dtype, F&& f) {
  if (dtype == DType::kFloat64) {
    f.template operator()<double>();
  } else {
    Check(dtype == DType::kFloat32, "statistics are float32 or float64");
    f.template operator()<float>();
  }
}

}  // namespace

void RunExchange(const std::string& op, const ValueType& type, std::span<const void* const> inputs,
                 std::span<void* const> outputs) {
  if (op == "MergeStatistics") {
    DispatchFloatOrDouble(type.dtype, [&]<class T>() { MergeStatistics<T>(type.shape[1], inputs, outputs); });
  } else {
    Check(op == "SumOverDevices", "a known exchange");
    flat::Sum(type.dtype, inputs, outputs[0], type.shape.Elements());
    for (size_t d = 1; d < outputs.size(); ++d)
      flat::Copy(outputs[0], outputs[d], type.shape.Elements() * SizeOf(type.dtype));
  }
}

void MoveRunningStatistics(DType dtype, int64_t channels, std::span<const ChannelStatistics> sources, double momentum,
                           std::span<void* const> running_means, std::span<void* const> running_variances) {
  DispatchFloatOrDouble(
      dtype, [&]<class T>() { MoveRunning<T>(channels, sources, momentum, running_means, running_variances); });
}

}  // namespace bindery
