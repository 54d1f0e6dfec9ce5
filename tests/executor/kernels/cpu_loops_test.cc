// The vector loops of the fast CPU kernels, in every set of instructions that runs here, against plain loops in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/philox.h"
#include "tests/executor/kernels/loop_tables.h"

namespace bindery::cpu {
namespace {

class LoopsTest : public testing::TestWithParam<const Loops*> {
 protected:
  const Loops& loops() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(All, LoopsTest, testing::ValuesIn(LoopTables()),
                         [](const auto& info) { return std::string(info.param->name); });

constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 1031};

double UlpsApart(float got, double wanted) {
  if (std::isnan(wanted)) return std::isnan(got) ? 0 : INFINITY;
  const float rounded = static_cast<float>(wanted);
  if (got == rounded) return 0;
  if (std::isinf(rounded) || std::isinf(got)) return INFINITY;
  const double spacing =
      std::max(std::fabs(static_cast<double>(std::nextafter(rounded, INFINITY)) - static_cast<double>(rounded)), 1e-45);
  return std::fabs(static_cast<double>(got) - wanted) / spacing;
}

double SoftRelu(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

struct UnaryCase {
  const char* name;
  double ulps;
  double (*f)(double x);
};
const UnaryCase kUnaryCases[] = {
    {"Negative", 0, [](double x) { return -x; }},
    {"Abs", 0, [](double x) { return std::fabs(x); }},
    {"Sign", 0, [](double x) { return std::isnan(x) ? x : (x > 0) - (x < 0); }},
    {"Square", 1, [](double x) { return x * x; }},
    {"Sqrt", 1, [](double x) { return std::sqrt(x); }},
    {"Exp", 2, [](double x) { return std::exp(x); }},
    {"Log", 2, [](double x) { return std::log(x); }},
    {"Expm1", 2, [](double x) { return std::expm1(x); }},
    {"Log1p", 3, [](double x) { return std::log1p(x); }},
    {"Reciprocal", 1, [](double x) { return 1 / x; }},
    {"Floor", 0, [](double x) { return std::floor(x); }},
    {"Ceil", 0, [](double x) { return std::ceil(x); }},
    {"Round", 0, [](double x) { return std::nearbyint(x); }},
    {"Trunc", 0, [](double x) { return std::trunc(x); }},
    {"Erf", 2, [](double x) { return std::erf(x); }},
    {"Sin", 2, [](double x) { return std::sin(x); }},
    {"Cos", 2, [](double x) { return std::cos(x); }},
    {"Tan", 4, [](double x) { return std::tan(x); }},
    {"Asin", 3, [](double x) { return std::asin(x); }},
    {"Acos", 3, [](double x) { return std::acos(x); }},
    {"Atan", 3, [](double x) { return std::atan(x); }},
    {"Sinh", 4, [](double x) { return std::sinh(x); }},
    {"Cosh", 4, [](double x) { return std::cosh(x); }},
    {"Asinh", 4, [](double x) { return std::asinh(x); }},
    {"Acosh", 4, [](double x) { return std::acosh(x); }},
    {"Atanh", 4, [](double x) { return std::atanh(x); }},
    {"relu", 0, [](double x) { return x < 0 ? 0 : x; }},
    {"sigmoid", 4, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"tanh", 4, [](double x) { return std::tanh(x); }},
    {"softrelu", 4, [](double x) { return SoftRelu(x); }},
    {"softsign", 2, [](double x) { return x / (1 + std::fabs(x)); }},
};

// By name, among the operators' functions and the activations.
Loops::UnaryLoop UnaryLoopOf(const Loops& loops, const char* name) {
  const size_t i = native::UnaryFunctions::Find(name);
  return i < loops.unary.size() ? loops.unary[i] : loops.activation[native::ActivationFunctions::Find(name)];
}

std::vector<float> SpecialValues() {
  constexpr float kMax = std::numeric_limits<float>::max();
  return {0.0f, -0.0f, 1,       -1,      1e-30f, -1e-30f, 1e-40f, 87.5f, 88.8f,    -87.5f,    -103.0f, -104.5f,
          200,  -200,  0.6249f, 0.6251f, 16,     -16,     kMax,   -kMax, INFINITY, -INFINITY, NAN};
}

TEST_P(LoopsTest, UnaryFunctions) {
  std::vector<float> x = SpecialValues();
  for (float value : RandomFloats(4000, "x", -100, 100)) x.push_back(value);
  for (float value : RandomFloats(4000, "near 0", -2, 2)) x.push_back(value);
  for (float value : RandomFloats(4000, "large", 2, 20000)) x.push_back(value);
  for (const UnaryCase& c : kUnaryCases) {
    std::vector<float> y(x.size());
    UnaryLoopOf(loops(), c.name)(x.data(), y.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_LE(UlpsApart(y[i], c.f(x[i])), c.ulps) << c.name << " of " << x[i] << " gave " << y[i];
    }
  }
}

TEST_P(LoopsTest, EverySizeAndNothingBeyond) {
  for (int64_t n : kSizes) {
    const std::vector<float> a = RandomFloats(n, "a"), b = RandomFloats(n, "b");
    std::vector<float> y(static_cast<size_t>(n) + 32, -7);
    loops().BinaryOf<native::fn::Add>()(a.data(), b.data(), y.data(), n);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y[i], a[i] + b[i]) << n;
    loops().UnaryOf<native::fn::Square>()(a.data(), y.data(), n);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y[i], a[i] * a[i]) << n;
    loops().add_relu_grad(a.data(), b.data(), b.data(), y.data(), n);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y[i], b[i] > 0 ? a[i] + b[i] : 0) << n;
    for (int64_t i = n; i < n + 32; ++i) ASSERT_EQ(y[i], -7) << n;
  }
}

TEST_P(LoopsTest, BinaryFunctionsAndScalars) {
  const struct {
    const char* name;
    bool is_gradient;  // of an activation
    double (*f)(double a, double b);
  } cases[] = {
      {"Add", false, [](double a, double b) { return a + b; }},
      {"Sub", false, [](double a, double b) { return a - b; }},
      {"Mul", false, [](double a, double b) { return a * b; }},
      {"Div", false, [](double a, double b) { return a / b; }},
      {"Maximum", false, [](double a, double b) { return a >= b || std::isnan(a) ? a : b; }},
      {"Minimum", false, [](double a, double b) { return a <= b || std::isnan(a) ? a : b; }},
      {"AddRelu", false, [](double a, double b) { return a + b < 0 ? 0 : a + b; }},
      {"relu", true, [](double dy, double y) { return y > 0 ? dy : 0; }},
      {"sigmoid", true, [](double dy, double y) { return dy * y * (1 - y); }},
      {"tanh", true, [](double dy, double y) { return dy * (1 - y * y); }},
      {"softrelu", true, [](double dy, double y) { return dy * -std::expm1(-y); }},
      {"softsign", true, [](double dy, double y) { return dy * (1 - std::fabs(y)) * (1 - std::fabs(y)); }},
  };
  const int64_t n = 1031;
  std::vector<float> a = RandomFloats(n, "a"), b = RandomFloats(n, "b"), y(static_cast<size_t>(n));
  std::copy_n(a.begin(), 50, b.begin());  // ties
  for (const auto& c : cases) {
    const size_t op =
        c.is_gradient ? native::ActivationGradFunctions::Find(c.name) : native::BinaryFunctions::Find(c.name);
    (c.is_gradient ? loops().activation_grad[op] : loops().binary[op])(a.data(), b.data(), y.data(), n);
    for (int64_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], c.f(a[i], b[i]), 1e-6 * (1 + std::fabs(y[i]))) << c.name;
    if (c.is_gradient) continue;
    loops().binary_scalar_b[op](a.data(), &b[3], y.data(), n);
    for (int64_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], c.f(a[i], b[3]), 1e-6 * (1 + std::fabs(y[i]))) << c.name;
    loops().binary_scalar_a[op](&a[3], b.data(), y.data(), n);
    for (int64_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], c.f(a[3], b[i]), 1e-6 * (1 + std::fabs(y[i]))) << c.name;
  }
}

TEST_P(LoopsTest, MaximaAndMinimaOfSpecialValues) {
  const std::vector<float> values = SpecialValues();
  const auto n = static_cast<int64_t>(values.size());
  for (float a : values) {
    std::vector<float> max(values.size()), min(values.size()), max_a(values.size());
    const std::vector<float> as(values.size(), a);
    loops().BinaryOf<native::fn::Maximum>()(as.data(), values.data(), max.data(), n);
    loops().BinaryOf<native::fn::Minimum>()(as.data(), values.data(), min.data(), n);
    loops().binary_scalar_a[native::BinaryFunctions::Find("Maximum")](&a, values.data(), max_a.data(), n);
    for (size_t i = 0; i < values.size(); ++i) {
      const bool nan = std::isnan(a) || std::isnan(values[i]);
      ASSERT_TRUE(nan ? std::isnan(max[i]) : max[i] == std::max(a, values[i])) << a << " " << values[i];
      ASSERT_TRUE(nan ? std::isnan(min[i]) : min[i] == std::min(a, values[i])) << a << " " << values[i];
      ASSERT_TRUE(nan ? std::isnan(max_a[i]) : max_a[i] == max[i]) << a << " " << values[i];
    }
  }
}

TEST_P(LoopsTest, SumsMaximaAndProducts) {
  for (int64_t n : {1, 3, 17, 100, 5000, 1000000}) {
    // All positive, so that the sum is the scale of its error.
    const std::vector<float> a = RandomFloats(n, "a", 0, 2), b = RandomFloats(n, "b", 0, 2);
    const double sum = std::accumulate(a.begin(), a.end(), 0.0);
    const double product =
        std::inner_product(a.begin(), a.end(), b.begin(), 0.0, std::plus<double>(), std::multiplies<double>());
    EXPECT_NEAR(loops().sum(a.data(), n), sum, 2e-7 * sum) << n;
    EXPECT_NEAR(loops().dot(a.data(), b.data(), n), product, 2e-7 * product) << n;
    EXPECT_EQ(loops().max(a.data(), n), *std::max_element(a.begin(), a.end()));
    std::vector<float> with_nan = a;
    with_nan[static_cast<size_t>(n / 2)] = NAN;
    EXPECT_TRUE(std::isnan(loops().max(with_nan.data(), n))) << n;
    EXPECT_EQ(loops().min(a.data(), n), *std::min_element(a.begin(), a.end()));
    EXPECT_TRUE(std::isnan(loops().min(with_nan.data(), n))) << n;
    double exponentials = 0;
    for (float value : a) exponentials += std::exp(value - 2.0);
    EXPECT_NEAR(loops().exp_sum(a.data(), n, 2), exponentials, 4e-7 * exponentials) << n;
  }
  const int64_t n = 13, k = 37;
  const std::vector<float> w = RandomFloats(n * k, "w"), x = RandomFloats(k, "x"), bias = RandomFloats(n, "bias"),
                           dy = RandomFloats(n, "dy");
  std::vector<float> y(n), dx(k);
  loops().matrix_vector(w.data(), x.data(), bias.data(), y.data(), n, k);
  loops().vector_matrix(dy.data(), w.data(), dx.data(), n, k);
  for (int64_t i = 0; i < n; ++i)
    EXPECT_NEAR(y[i], std::inner_product(x.begin(), x.end(), w.begin() + i * k, double{bias[i]}), 1e-5);
  for (int64_t j = 0; j < k; ++j) {
    double wanted = 0;
    for (int64_t i = 0; i < n; ++i) wanted += double{dy[i]} * w[i * k + j];
    EXPECT_NEAR(dx[j], wanted, 1e-5);
  }
}

// In double: squares of elements that floats have no squares of, products that go beyond floats on the way.
TEST_P(LoopsTest, JoinsInDouble) {
  struct Joined {
    const char* name;
    Loops::Joining loops;
    double nothing;
    double (*join)(double result, double x);
  };
  const Joined all[] = {
      {"sum of magnitudes", loops().magnitudes, 0, [](double result, double x) { return result + std::fabs(x); }},
      {"sum of squares", loops().squares, 0, [](double result, double x) { return result + x * x; }},
      {"product", loops().products, 1, [](double result, double x) { return result * x; }},
      {"sum", {nullptr, loops().add_to}, 0, [](double result, double x) { return result + x; }},
  };
  for (int64_t n : kSizes) {
    std::vector<float> x = RandomFloats(n, "x", 0.8f, 1.2f);
    for (size_t i = 0; i < x.size(); i += 3) x[i] = -x[i];
    for (size_t i = 0; i < x.size(); i += 15) x[i] *= i % 2 == 0 ? 3e5f : 1e-5f;
    x.back() *= 1e20f;
    for (const Joined& j : all) {
      double wanted = j.nothing;
      std::vector<double> results(x.size() + 8, 0.25), each(results);
      for (size_t i = 0; i < x.size(); ++i) {
        wanted = j.join(wanted, x[i]);
        each[i] = j.join(0.25, x[i]);
      }
      if (j.loops.row) {
        EXPECT_NEAR(j.loops.row(x.data(), n) / wanted, 1, 1e-12) << j.name << " " << n;
      }
      j.loops.to(x.data(), results.data(), n);
      for (size_t i = 0; i < each.size(); ++i) {
        ASSERT_NEAR(results[i], each[i], 1e-15 * std::fabs(each[i])) << j.name << " " << n;
      }
    }
  }
}

TEST_P(LoopsTest, SoftmaxOfRowsAndColumns) {
  for (int64_t n : {1, 2, 10, 63, 64, 1000}) {
    const int64_t rows = 37;
    std::vector<float> x = RandomFloats(rows * n, "x", -5, 5), y(x.size());
    x[0] = 1000;  // does not overflow
    loops().softmax(x.data(), y.data(), rows, n, 0.5f);
    std::vector<float> column_y(x.size());
    std::vector<float> transposed(x.size());
    for (int64_t i = 0; i < rows * n; ++i) transposed[i % n * rows + i / n] = x[i];
    loops().softmax_columns(transposed.data(), column_y.data(), n, rows, rows, 0.5f);
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = x.data() + r * n;
      const double max = *std::max_element(row, row + n);
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += std::exp((row[i] - max) / 2);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_NEAR(y[r * n + i], std::exp((row[i] - max) / 2) / sum, 1e-6);
        ASSERT_NEAR(column_y[i * rows + r], y[r * n + i], 1e-6);
      }
    }
  }
}

TEST_P(LoopsTest, DropoutFollowsPhilox) {
  const Loops::DropoutKey key{.k0 = 11, .k1 = 12, .c1 = 40, .c2 = 3, .c3 = 5};
  const double p = 0.3;
  const auto threshold = static_cast<uint32_t>(std::ceil(p * 0x1p24));
  for (int64_t n : kSizes) {
    const int64_t first = 8;
    std::vector<uint8_t> mask(static_cast<size_t>(n) + 80, 9);
    loops().dropout_mask(key, first, n, threshold, mask.data());
    for (int64_t i = 0; i < n; ++i) {
      const PhiloxBlock block =
          Philox4x32({static_cast<uint32_t>((first + i) / 4), key.c1, key.c2, key.c3}, {key.k0, key.k1});
      ASSERT_EQ(mask[i], UniformFloat(block[(first + i) % 4]) >= p) << n << " " << i;
    }
    for (int64_t i = n; i < n + 80; ++i) ASSERT_EQ(mask[i], 9) << n;
  }
}

// Those of doubles are the same source: what differs is their mathematics, their lanes and where vectors end.
class DoubleLoopsTest : public testing::TestWithParam<const LoopSet*> {};
INSTANTIATE_TEST_SUITE_P(All, DoubleLoopsTest, testing::ValuesIn(LoopSets()),
                         [](const auto& info) { return std::string(info.param->floats.name); });

TEST_P(DoubleLoopsTest, AgreeWithTheFormulas) {
  const LoopsOf<double>& loops = GetParam()->doubles;
  const auto random = [](int64_t n, const char* name) {
    const std::vector<float> values = RandomFloats(n, name, -5, 5);
    return std::vector<double>(values.begin(), values.end());
  };
  for (int64_t n : kSizes) {
    const std::vector<double> x = random(n, "x"), other = random(n, "other");
    std::vector<double> y(static_cast<size_t>(n) + 16, -7), z(y);
    const auto expect = [&](const char* what, double (*f)(double)) {
      for (int64_t i = 0; i < n; ++i) {
        const double wanted = f(x[i]);
        ASSERT_TRUE(std::isnan(wanted) ? std::isnan(y[i]) : std::fabs(y[i] - wanted) <= 1e-14 * (1 + std::fabs(wanted)))
            << what << " of " << x[i] << " gave " << y[i];
      }
      for (int64_t i = n; i < n + 16; ++i) ASSERT_EQ(y[i], -7) << what << " " << n;
    };
    for (const UnaryCase& c : kUnaryCases) {
      const size_t i = native::UnaryFunctions::Find(c.name), k = native::ActivationFunctions::Find(c.name);
      (i < loops.unary.size() ? loops.unary[i] : loops.activation[k])(x.data(), y.data(), n);
      expect(c.name, c.f);
    }
    loops.softmax(x.data(), y.data(), 1, n, 1);
    EXPECT_NEAR(std::accumulate(y.begin(), y.begin() + n, 0.0), 1, 1e-14);
    loops.softmax_columns(x.data(), z.data(), n, 1, 1, 1);
    for (int64_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], z[i], 1e-15) << n;
    const double dot = std::inner_product(x.begin(), x.end(), other.begin(), 0.0);
    EXPECT_NEAR(loops.dot(x.data(), other.data(), n), dot, 1e-12) << n;
    EXPECT_EQ(loops.max(x.data(), n), *std::max_element(x.begin(), x.end())) << n;

    const LoopsOf<double>::Channel channel{0.5, 2, -0.25, 0, 0};
    loops.channels.normalize(x.data(), y.data(), n, channel, false);
    expect("normalize", [](double v) { return (v - 0.5) * 2 - 0.25; });
    double sums[2] = {};
    loops.channels.moments(x.data(), n, 0.5, sums);
    double sum = 0, square = 0;
    for (double v : x) {
      sum += v - 0.5;
      square += (v - 0.5) * (v - 0.5);
    }
    EXPECT_NEAR(sums[0], sum, 1e-11) << n;
    EXPECT_NEAR(sums[1], square, 1e-13 * square) << n;

    // Windows of two neighbours along n lanes, of which there are three rows.
    const int64_t offsets[] = {0, n};
    const int32_t taps[] = {3, 4};
    std::vector<double> rows = random(3 * n, "rows"), pooled(2 * n), mean(2 * n), back(3 * n);
    std::vector<uint8_t> index(2 * n);
    const PoolRow row{2, n, n, 2, offsets, taps};
    loops.max_pool(row, rows.data(), pooled.data(), index.data());
    loops.average_pool(row, rows.data(), mean.data(), 0.5);
    loops.max_pool_grad(row, pooled.data(), index.data(), back.data());
    std::vector<double> wanted(3 * n);
    for (int64_t i = 0; i < 2 * n; ++i) {
      ASSERT_EQ(pooled[i], std::max(rows[i], rows[i + n])) << n;
      ASSERT_EQ(index[i], rows[i + n] > rows[i] ? 4 : 3) << n;
      ASSERT_NEAR(mean[i], (rows[i] + rows[i + n]) / 2, 1e-15) << n;
      wanted[rows[i + n] > rows[i] ? i + n : i] += pooled[i];
    }
    EXPECT_EQ(back, wanted) << n;
  }
}

}  // namespace
}  // namespace bindery::cpu
