// The vector loops over channels: batch normalisation and pooling, in every set of instructions that runs here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/philox.h"
#include "tests/executor/kernels/loop_tables.h"

namespace bindery::cpu {
namespace {

class ChannelLoopsTest : public testing::TestWithParam<const Loops*> {
 protected:
  const Loops& loops() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(All, ChannelLoopsTest, testing::ValuesIn(LoopTables()),
                         [](const auto& info) { return std::string(info.param->name); });

// Rows of channels against the same as planes, in one go for all passes: a plane per channel is the plain loop.
TEST_P(ChannelLoopsTest, BatchNormRowsAgreeWithPlanes) {
  for (int64_t lanes : {1, 3, 4, 8, 16, 20, 24, 33}) {
    for (bool relu : {false, true}) {
      const int64_t rows = 131;
      const std::vector<float> x = RandomFloats(rows * lanes, "x"), dy = RandomFloats(rows * lanes, "dy");
      const std::vector<float> mean = RandomFloats(lanes, "mean"), scale = RandomFloats(lanes, "scale", 0.5f, 2),
                               beta = RandomFloats(lanes, "beta"), b = RandomFloats(lanes, "b"),
                               c = RandomFloats(lanes, "c");
      const Loops::Channels channels{mean.data(), scale.data(), beta.data(), b.data(), c.data()};
      std::vector<double> sum(lanes), square(lanes), grad(lanes), product(lanes);
      std::vector<float> y(x.size()), dx = dy;
      loops().channels.moments_rows(x.data(), rows, lanes, lanes, mean.data(), sum.data(), square.data());
      loops().channels.grad_sums_rows(dy.data(), x.data(), rows, lanes, lanes, channels, relu, grad.data(),
                                      product.data());
      loops().channels.normalize_rows(x.data(), y.data(), rows, lanes, channels, relu);
      loops().channels.grad_input_rows(dx.data(), x.data(), dx.data(), rows, lanes, channels, relu);
      for (int64_t l = 0; l < lanes; ++l) {
        double s = 0, q = 0, g = 0, p = 0;
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t at = r * lanes + l;
          const double centred = double{x[at]} - mean[l];
          const double normal = centred * scale[l] + beta[l];
          const double passed = relu && normal <= 0 ? 0 : dy[at];
          s += centred;
          q += centred * centred;
          g += passed;
          p += passed * centred;
          ASSERT_NEAR(y[at], relu ? std::max(normal, 0.0) : normal, 1e-5);
          ASSERT_NEAR(dx[at], scale[l] * passed + b[l] * centred + c[l], 1e-5);
        }
        ASSERT_NEAR(sum[l], s, 1e-4);
        ASSERT_NEAR(square[l], q, 3e-4);
        ASSERT_NEAR(grad[l], g, 1e-4);
        ASSERT_NEAR(product[l], p, 1e-4);
        // The same channel as a plane.
        std::vector<float> plane(rows), dplane(rows), out(rows);
        for (int64_t r = 0; r < rows; ++r) {
          plane[r] = x[r * lanes + l];
          dplane[r] = dy[r * lanes + l];
        }
        const Loops::Channel channel{mean[l], scale[l], beta[l], b[l], c[l]};
        double sums[2] = {}, grads[2] = {};
        loops().channels.moments(plane.data(), rows, mean[l], sums);
        loops().channels.grad_sums(dplane.data(), plane.data(), rows, channel, relu, grads);
        ASSERT_NEAR(sums[0], s, 1e-4);
        ASSERT_NEAR(sums[1], q, 3e-4);
        ASSERT_NEAR(grads[0], g, 1e-4);
        ASSERT_NEAR(grads[1], p, 1e-4);
        loops().channels.normalize(plane.data(), out.data(), rows, channel, relu);
        for (int64_t r = 0; r < rows; ++r) ASSERT_NEAR(out[r], y[r * lanes + l], 1e-6);
        loops().channels.grad_input(dplane.data(), plane.data(), out.data(), rows, channel, relu);
        for (int64_t r = 0; r < rows; ++r) ASSERT_NEAR(out[r], dx[r * lanes + l], 1e-6);
      }
    }
  }
}

// What relu cuts off going forward is what it cuts off going backward, in every form, for values within a few units in
// the last place of zero.
TEST_P(ChannelLoopsTest, ReluCutsTheSameBothWays) {
  const int64_t n = 4000;
  for (int64_t c = 0; c < 20; ++c) {
    PhiloxStream stream(static_cast<uint64_t>(c), "channel");
    const float mean = stream.Uniform(-2.0f, 2.0f), scale = stream.Uniform(0.3f, 3.0f),
                beta = stream.Uniform(-1.0f, 1.0f);
    std::vector<float> x(n), y(n), dx(n), row_y(n), row_dx(n);
    x[n / 2] = mean - beta / scale;
    for (int64_t i = n / 2 + 1; i < n; ++i) x[i] = std::nextafter(x[i - 1], 1e9f);
    for (int64_t i = n / 2; i-- > 0;) x[i] = std::nextafter(x[i + 1], -1e9f);
    const std::vector<float> dy(n, 1.0f);
    const Loops::Channel channel{mean, scale, beta, 0, 0};
    loops().channels.normalize(x.data(), y.data(), n, channel, false);
    loops().channels.grad_input(dy.data(), x.data(), dx.data(), n, channel, true);
    const int64_t lanes = 20;
    const std::vector<float> means(lanes, mean), scales(lanes, scale), betas(lanes, beta), zeros(lanes, 0.0f);
    const Loops::Channels channels{means.data(), scales.data(), betas.data(), zeros.data(), zeros.data()};
    loops().channels.normalize_rows(x.data(), row_y.data(), n / lanes, lanes, channels, false);
    loops().channels.grad_input_rows(dy.data(), x.data(), row_dx.data(), n / lanes, lanes, channels, true);
    double passed[2] = {}, lane_sums[lanes] = {}, lane_products[lanes] = {};
    loops().channels.grad_sums(dy.data(), x.data(), n, channel, true, passed);
    loops().channels.grad_sums_rows(dy.data(), x.data(), n / lanes, lanes, lanes, channels, true, lane_sums,
                                    lane_products);
    int64_t positive = 0;
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(dx[i] != 0, y[i] > 0) << c << " " << i;
      ASSERT_EQ(row_dx[i] != 0, y[i] > 0) << c << " " << i;
      ASSERT_EQ(row_y[i], y[i]) << c << " " << i;
      positive += y[i] > 0;
    }
    ASSERT_GT(positive, 0);
    ASSERT_LT(positive, n);
    EXPECT_EQ(passed[0], static_cast<double>(positive));
    EXPECT_EQ(std::accumulate(lane_sums, lane_sums + lanes, 0.0), static_cast<double>(positive));
  }
}

// Long sums side by side lose no more digits than those along the lanes.
TEST_P(ChannelLoopsTest, LongSumsSideBySide) {
  const int64_t n = 20000, lanes = 37;
  const std::vector<float> x = RandomFloats(n * lanes, "x", 0, 2);
  std::vector<int64_t> offsets(n);
  std::vector<int32_t> numbers(n);
  for (int64_t t = 0; t < n; ++t) offsets[t] = t * lanes;
  std::vector<float> average(lanes), y(n * lanes), dx(n * lanes);
  loops().average_pool({1, lanes, lanes, n, offsets.data(), numbers.data()}, x.data(), average.data(), 1.0f / n);
  loops().softmax_columns(x.data(), y.data(), n, lanes, lanes, 1);
  loops().softmax_grad_columns(x.data(), y.data(), dx.data(), n, lanes, lanes, 1);
  for (int64_t l = 0; l < lanes; ++l) {
    double sum = 0, exponentials = 0, product = 0;
    for (int64_t t = 0; t < n; ++t) sum += x[t * lanes + l];
    for (int64_t t = 0; t < n; ++t) exponentials += std::exp(double{x[t * lanes + l]});
    for (int64_t t = 0; t < n; ++t) product += std::exp(double{x[t * lanes + l]}) / exponentials * x[t * lanes + l];
    ASSERT_NEAR(average[l], sum / n, 1e-6);
    double total = 0;
    for (int64_t t = 0; t < n; ++t) total += y[t * lanes + l];
    ASSERT_NEAR(total, 1, 1e-6);
    const double p = std::exp(double{x[l]}) / exponentials;
    ASSERT_NEAR(dx[l], p * (x[l] - product), 2e-6 * p);
  }
}

// Windows of so many taps, which overlap, or are disjoint: then gradients are written over what was there.
void CheckPoolingOfRows(const Loops& loops, int64_t lanes, int64_t taps, bool disjoint) {
  const int64_t outputs = 5, step = disjoint ? taps : 2, width = (outputs - 1) * step + taps;
  std::vector<int64_t> offsets(static_cast<size_t>(taps));
  std::vector<int32_t> numbers(static_cast<size_t>(taps));
  for (int64_t t = 0; t < taps; ++t) offsets[t] = t * lanes;
  std::iota(numbers.begin(), numbers.end(), 4);
  const PoolRow row{outputs, lanes, step * lanes, taps, offsets.data(), numbers.data(), disjoint};
  std::vector<float> x = RandomFloats(width * lanes, "x");
  std::fill_n(x.begin(), 2 * lanes, 1.0f);                    // ties: the first wins
  for (size_t i = 2; i < x.size(); i += 29) x[i] = NAN;       // wins
  std::fill_n(x.end() - 2 * lanes, lanes, -1.0f * INFINITY);  // loses
  const std::vector<float> dy = RandomFloats(outputs * lanes, "dy");
  std::vector<float> y(dy.size()), y_wide(dy.size()), values(dy.size()), average(dy.size());
  std::vector<float> dx(x.size(), disjoint ? 7.0f : 0.0f), dx_wide = dx, dx_average = dx;
  std::vector<uint8_t> index(dy.size());
  std::vector<int32_t> wide(dy.size());
  loops.max_pool(row, x.data(), y.data(), index.data());
  loops.max_pool(row, x.data(), values.data(), nullptr);
  loops.max_pool_wide(row, x.data(), y_wide.data(), wide.data());
  loops.max_pool_grad(row, dy.data(), index.data(), dx.data());
  loops.max_pool_grad_wide(row, dy.data(), wide.data(), dx_wide.data());
  loops.average_pool(row, x.data(), average.data(), 1.0f / static_cast<float>(taps));
  loops.average_pool_grad(row, dy.data(), dx_average.data(), 1.0f / static_cast<float>(taps));
  std::vector<double> wanted(x.size()), wanted_average(x.size());
  for (int64_t o = 0; o < outputs; ++o) {
    for (int64_t l = 0; l < lanes; ++l) {
      const auto tap = [&](int64_t t) { return x[(step * o + t) * lanes + l]; };
      int64_t best = 0;
      double sum = 0;
      for (int64_t t = 0; t < taps; ++t) {
        sum += tap(t);
        if (!std::isnan(tap(best)) && (std::isnan(tap(t)) || tap(t) > tap(best))) best = t;
        wanted_average[(step * o + t) * lanes + l] += dy[o * lanes + l] / static_cast<double>(taps);
      }
      const int64_t at = o * lanes + l;
      ASSERT_TRUE(y[at] == tap(best) || (std::isnan(y[at]) && std::isnan(tap(best))));
      ASSERT_EQ(std::memcmp(&values[at], &y[at], sizeof(float)), 0);
      ASSERT_EQ(std::memcmp(&y_wide[at], &y[at], sizeof(float)), 0);
      ASSERT_EQ(index[at], numbers[best]);
      ASSERT_EQ(wide[at], numbers[best]);
      if (std::isfinite(sum)) {
        ASSERT_NEAR(average[at], sum / static_cast<double>(taps), 1e-6);
      } else {
        ASSERT_EQ(std::isnan(average[at]), std::isnan(sum));
      }
      wanted[(step * o + best) * lanes + l] += dy[at];
    }
  }
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(dx[i], wanted[i], 1e-6) << i;
    ASSERT_EQ(dx_wide[i], dx[i]) << i;
    ASSERT_NEAR(dx_average[i], wanted_average[i], 1e-6) << i;
  }
}
TEST_P(ChannelLoopsTest, PoolingOfRows) {
  for (const int64_t lanes : {1, 3, 4, 8, 16, 20, 37}) {
    for (const int64_t taps : {3, 4, 9}) {
      for (const bool disjoint : {false, true}) {
        SCOPED_TRACE(fmt::format("{} lanes, {} taps, {}", lanes, taps, disjoint ? "disjoint" : "overlapping"));
        CheckPoolingOfRows(loops(), lanes, taps, disjoint);
      }
    }
  }
}

// Slopes of curves, and gradients of softmax, pooling and normalisation by given statistics (b = c = 0), of `lanes`
// channels in 4 rows.
std::vector<float> Gradients(const Loops& loops, int64_t lanes, const std::vector<float>& x,
                             const std::vector<float>& dy) {
  const int64_t n = 4 * lanes;
  std::vector<float> all;
  const auto add = [&](int64_t size, const auto& compute) {
    std::vector<float> dx(static_cast<size_t>(size));
    compute(dx.data());
    all.insert(all.end(), dx.begin(), dx.end());
  };
  for (const Loops::CurveGradLoop curve : loops.curve_grad) {
    add(n, [&](float* dx) { curve(dy.data(), x.data(), dx, n, 0.5f, 0.75f); });
  }
  add(n, [&](float* dx) { loops.softmax_grad(dy.data(), x.data(), dx, n, 2); });
  add(n, [&](float* dx) { loops.softmax_grad_columns(dy.data(), x.data(), dx, 4, lanes, lanes, 2); });

  const std::vector<float> mean = RandomFloats(lanes, "mean"), scale = RandomFloats(lanes, "scale", 0.5f, 2),
                           beta = RandomFloats(lanes, "beta"), zeros(static_cast<size_t>(lanes));
  const Loops::Channels channels{mean.data(), scale.data(), beta.data(), zeros.data(), zeros.data()};
  const Loops::Channel channel{mean[0], scale[0], beta[0], 0, 0};
  for (const bool relu : {false, true}) {
    add(n, [&](float* dx) { loops.channels.grad_input(dy.data(), x.data(), dx, n, channel, relu); });
    add(n, [&](float* dx) { loops.channels.grad_input_rows(dy.data(), x.data(), dx, 4, lanes, channels, relu); });
    std::vector<double> sums(static_cast<size_t>(2 * lanes + 2));
    loops.channels.grad_sums(dy.data(), x.data(), n, channel, relu, sums.data() + 2 * lanes);
    loops.channels.grad_sums_rows(dy.data(), x.data(), 4, lanes, lanes, channels, relu, sums.data(),
                                  sums.data() + lanes);
    all.insert(all.end(), sums.begin(), sums.end());
  }

  const int64_t offsets[] = {0, lanes, 2 * lanes};
  const int32_t numbers[] = {4, 5, 6};
  const PoolRow row{2, lanes, lanes, 3, offsets, numbers};  // windows that overlap by two
  std::vector<uint8_t> index(static_cast<size_t>(2 * lanes));
  add(2 * lanes, [&](float* y) { loops.max_pool(row, x.data(), y, index.data()); });
  add(n, [&](float* dx) { loops.max_pool_grad(row, dy.data(), index.data(), dx); });
  add(n, [&](float* dx) { loops.average_pool_grad(row, dy.data(), dx, 1.0f / 3); });
  return all;
}

// What is not finite, at any place of a vector, goes where the baseline lets it; what that gives is compared with the
// reference where operators are tested.
TEST_P(ChannelLoopsTest, NotFiniteGoesBackwardAsInTheBaseline) {
  for (const int64_t lanes : {1, 7, 16, 37}) {
    for (const float value : {NAN, INFINITY, -INFINITY}) {
      for (const bool in_x : {false, true}) {
        for (int64_t place = 0; place < lanes; place += lanes == 1 ? 1 : (lanes - 1) / 3) {
          std::vector<float> x = RandomFloats(4 * lanes, "x"), dy = RandomFloats(4 * lanes, "dy");
          (in_x ? x : dy)[static_cast<size_t>(lanes + place)] = value;
          const std::vector<float> wanted = Gradients(BaselineLoops().floats, lanes, x, dy);
          const std::vector<float> got = Gradients(loops(), lanes, x, dy);
          for (size_t i = 0; i < got.size(); ++i) {
            const bool same = std::isfinite(wanted[i]) ? std::abs(got[i] - wanted[i]) <= 1e-3f
                              : std::isnan(wanted[i])  ? std::isnan(got[i])
                                                       : got[i] == wanted[i];
            ASSERT_TRUE(same) << lanes << " lanes, " << value << (in_x ? " in x at " : " in dy at ") << place
                              << ", result " << i << ": " << got[i] << " instead of " << wanted[i];
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace bindery::cpu
