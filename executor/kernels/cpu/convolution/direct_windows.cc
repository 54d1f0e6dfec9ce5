#include "executor/kernels/cpu/convolution/direct_windows.h"

#include <limits>

#include "base/checked.h"
#include "executor/kernels/cpu/layout.h"

namespace bindery::cpu {

std::optional<Channels> ChannelsOf(const Format& format, const Shape& shape) {
  ChannelView view;
  if (!ViewChannels(format, shape, 1, &view)) return std::nullopt;
  const int64_t plane = shape.CountFrom(2), block = view.planes ? 1 : view.lanes;
  return Channels{block, plane * block, block};
}

bool FillsNoBlocks(const Shape& data, const Shape& output) {
  return data[1] <= kFewChannels && output[1] % SimdBlock() != 0;
}

Format AsGivenOr(const Format& preferred, const Format& given, const Shape& data) {
  return data[1] <= kFewChannels && ChannelsOf(given, data) ? given : preferred;
}

int64_t RowsAtOnce(int64_t row_elements, int64_t rows) {
  constexpr int64_t kCached = 4096;  // elements
  return std::clamp<int64_t>(kCached / std::max<int64_t>(row_elements, 1), 1, rows);
}

namespace {

std::vector<Run> RunsOf(const Window& window, int64_t extent) {
  std::vector<Run> runs;
  for (int64_t p = 0; p < window.output; ++p) {
    const int64_t begin = p * window.stride - window.pad_begin;
    const int64_t first = std::min(window.kernel, CeilDiv(std::max<int64_t>(-begin, 0), window.dilate));
    const int64_t inside = std::max<int64_t>(extent - begin, 0);
    const int64_t last = std::max(first, std::min(window.kernel, CeilDiv(inside, window.dilate)));
    if (runs.empty() || runs.back().first_tap != first || runs.back().last_tap != last)
      runs.push_back({p, p, first, last});
    runs.back().end = p + 1;
  }
  return runs;
}

}  // namespace

constexpr int64_t kMostOffset = std::numeric_limits<int32_t>::max();

bool DirectWindows::Init(const ConvolutionAttrs& attrs, const Shape& data, const Format& x_format, const Shape& output,
                         const Format& y_format, const Shape& weight, const Format& w_format, bool batch_inside) {
  const auto x_channels = ChannelsOf(x_format, data), y_channels = ChannelsOf(y_format, output);
  if (attrs.groups != 1 || !x_channels || !y_channels) return false;
  x = *x_channels;
  y = *y_channels;
  batch = data[0];
  filters = output[1];
  x_sample = data.CountFrom(1);
  y_sample = output.CountFrom(1);
  const std::vector<Window> given = ConvolutionWindows(attrs, data);
  const size_t axes = given.size() + (batch_inside ? 1 : 0);
  if (axes > windows.size()) return false;
  first_axis = windows.size() - axes;
  for (size_t i = 0; i < given.size(); ++i) {
    windows[first_axis + i] = given[i];
    in[first_axis + i] = data[2 + static_cast<int>(i)];
  }
  if (batch_inside) {
    if (std::max(data.Elements(), output.Elements()) > kMostOffset / 4) return false;
    windows[2] = {.kernel = 1, .output = batch};
    in[2] = batch;
    for (Channels* const channels : {&x, &y}) channels->block_step *= batch;
    x_sample *= batch;
    y_sample *= batch;
    batch = 1;
  }
  if (std::max({x_sample, y_sample, weight.Elements()}) > kMostOffset / 4) return false;
  return FindVectors(weight, w_format) && ListTaps(weight, w_format);
}

bool DirectWindows::FindVectors(const Shape& weight, const Format& w_format) {
  const int64_t lanes = BestLoops().lanes;
  if (filters < lanes || w_format.kind == Format::Kind::kOpaque || IsPadded(w_format, weight)) return false;
  std::array<int64_t, Shape::kMaxRank> index{};
  const auto in_weight = [&](int64_t filter) {
    index[0] = filter;
    return ElementOffset(w_format, weight, index.data());
  };
  for (int64_t at = 0; at < filters; at += lanes) {
    const int64_t first = std::min(at, filters - lanes);
    for (int64_t i = 1; i < lanes; ++i) {
      if (y.OffsetOf(first + i) != y.OffsetOf(first) + i || in_weight(first + i) != in_weight(first) + i) return false;
    }
    columns.push_back(static_cast<int32_t>(first));
    w_vectors.push_back(static_cast<int32_t>(in_weight(first)));
    y_vectors.push_back(static_cast<int32_t>(y.OffsetOf(first)));
  }
  // Two by two, which uses registers best, and three where one would be left.
  const auto count = static_cast<int64_t>(columns.size());
  for (int64_t at = 0; at < count;) {
    const int64_t left = count - at, now = left == 3 ? 3 : std::min<int64_t>(left, 2);
    groups.push_back({at, now});
    at += now;
  }
  return true;
}

// Taps are numbered by blocks of channels, places of the window, channels of the block: so neighbours are close to each
// other in the data.
bool DirectWindows::ListTaps(const Shape& weight, const Format& w_format) {
  const std::vector<Run> d_runs = RunsOf(windows[0], in[0]), h_runs = RunsOf(windows[1], in[1]),
                         w_runs = RunsOf(windows[2], in[2]);
  const int64_t channels = weight[1], block = std::min(x.block, channels);
  constexpr int64_t kMostTaps = 1 << 18;
  const auto lists = static_cast<int64_t>(d_runs.size() * h_runs.size() * w_runs.size());
  if (weight.CountFrom(1) > kMostTaps / lists) return false;
  const auto for_taps = [&](const auto& f) {
    int32_t number = 0;
    for (int64_t c0 = 0; c0 < channels; c0 += block) {
      for (int64_t i = 0; i < windows[0].kernel; ++i) {
        for (int64_t j = 0; j < windows[1].kernel; ++j) {
          for (int64_t k = 0; k < windows[2].kernel; ++k) {
            for (int64_t c = c0; c < c0 + block; ++c) f(std::array{i, j, k}, c, number++);
          }
        }
      }
    }
  };
  for_taps([&](const std::array<int64_t, 3>& tap, int64_t c, int32_t) {
    std::array<int64_t, Shape::kMaxRank> index{};
    index[1] = c;
    for (size_t i = 2; i < static_cast<size_t>(weight.rank()); ++i) index[i] = tap[first_axis + i - 2];
    w_taps.push_back(static_cast<int32_t>(ElementOffset(w_format, weight, index.data())));
  });
  bool fits = true;
  for (const Run& d : d_runs) {
    for (const Run& h : h_runs) {
      for (const Run& w : w_runs) {
        const std::array<Run, 3> runs = {d, h, w};
        Region region = {runs, static_cast<int64_t>(x_taps.size()), 0, 0, 0};
        for_taps([&](const std::array<int64_t, 3>& tap, int64_t c, int32_t number) {
          int64_t position = 0;
          for (int i = 0; i < 3; ++i) {
            if (tap[i] < runs[i].first_tap || tap[i] >= runs[i].last_tap) return;
            position = position * in[i] + tap[i] * windows[i].dilate;
          }
          const int64_t offset = x.OffsetOf(c) + position * x.position;
          fits = fits && offset <= kMostOffset;  // far dilated taps begin far before the data
          x_taps.push_back(static_cast<int32_t>(offset));
          numbers.push_back(number);
        });
        region.end = static_cast<int64_t>(x_taps.size());
        regions.push_back(region);
      }
    }
  }
  if (fits) ListRuns();
  return fits;
}

// Channels of a block, and taps along an axis where channels do not come between, are a run.
void DirectWindows::ListRuns() {
  if (w_taps.size() > 1) w_step = w_taps[1] - w_taps[0];
  for (Region& region : regions) {
    region.first_run = static_cast<int64_t>(tap_runs.size());
    for (int64_t t = region.begin; t < region.end; ++t) {
      const int32_t w = w_taps[numbers[t]];
      const bool goes_on = t > region.begin && x_taps[t] - 1 == x_taps[t - 1] && w - w_step == w_taps[numbers[t - 1]];
      if (goes_on) {
        ++tap_runs.back().taps;
      } else {
        tap_runs.push_back({x_taps[t], w, 1});
      }
    }
    region.last_run = static_cast<int64_t>(tap_runs.size());
  }
}

Format TapsByFilters(int rank) {
  Format format = ChannelBlocked(rank, 1);
  format.num_blocks = 0;
  format.block_axis[0] = 0;
  format.block_size[0] = 0;
  for (int i = 0; i < rank; ++i) format.order[i] = static_cast<int8_t>(i < rank - 2 ? i + 2 : rank - 1 - i);
  return format;
}

}  // namespace bindery::cpu
