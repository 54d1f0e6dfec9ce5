#include "executor/exchange.h"

#include <cmath>

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

// Visits every channel's place and new running mean and variance.
template <class T, class Visit>
void ForMoved(const RunningStatistics& layer, Visit&& visit) {
  double count = 0;
  for (const ChannelStatistics& s : layer.sources) count += static_cast<double>(s.count);
  if (count == 0 || layer.means.empty()) return;
  const double momentum = layer.momentum;
  for (int64_t c = 0; c < layer.channels; ++c) {
    double mean = 0, m2 = 0;
    for (const ChannelStatistics& s : layer.sources) {
      mean += static_cast<double>(s.count) * static_cast<const T*>(s.mean)[c];
    }
    mean /= count;
    for (const ChannelStatistics& s : layer.sources) {
      const double delta = static_cast<const T*>(s.mean)[c] - mean;
      m2 += static_cast<double>(s.count) * (static_cast<const T*>(s.variance)[c] + delta * delta);
    }
    visit(c, static_cast<T>(momentum * static_cast<T*>(layer.means[0])[c] + (1 - momentum) * mean),
          static_cast<T>(momentum * static_cast<T*>(layer.variances[0])[c] + (1 - momentum) * (m2 / count)));
  }
}

template <class T>
bool StaysFinite(const RunningStatistics& layer) {
  bool finite = true;
  ForMoved<T>(layer, [&](int64_t, T mean, T variance) { finite &= std::isfinite(mean) && std::isfinite(variance); });
  return finite;
}

template <class T>
void Move(const RunningStatistics& layer) {
  ForMoved<T>(layer, [&](int64_t c, T mean, T variance) {
    for (void* m : layer.means) static_cast<T*>(m)[c] = mean;
    for (void* v : layer.variances) static_cast<T*>(v)[c] = variance;
  });
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

void MoveRunningStatistics(std::span<const RunningStatistics> layers) {
  bool finite = true;
  for (const RunningStatistics& layer : layers)
    DispatchFloatOrDouble(layer.dtype, [&]<class T>() { finite &= StaysFinite<T>(layer); });
  if (!finite) return;
  for (const RunningStatistics& layer : layers) DispatchFloatOrDouble(layer.dtype, [&]<class T>() { Move<T>(layer); });
}

}  // namespace bindery
