// Bodies of normalisations (bodies_fixture.h).
#include "executor/kernels/cuda/norm_body.h"
#include "symbol/ops/batch_norm.h"
#include "symbol/ops/normalize.h"
#include "tests/engine/cuda/cpu_block.h"
#include "tests/executor/cuda/bodies_fixture.h"

namespace bindery::cuda {
namespace {

// All forms of a group, with their gradients.
void ExpectNormalized(const NormalizeAttrs& attrs, const Shape& shape, const Groups& groups, int64_t rows,
                      int64_t parameters) {
  const double terms = static_cast<double>(shape.Elements()) / static_cast<double>(rows);
  for (const DType dtype : kFloats) {
    const HostTensor x = Uniform(shape, 2, 4).Cast(dtype), dy = Uniform(shape).Cast(dtype);
    const HostTensor gamma = Uniform({parameters}, 0.5, 2).Cast(dtype), beta = Uniform({parameters}).Cast(dtype);
    NormalizeArgs args{.rows = {rows},
                       .groups = groups,
                       .center = attrs.center,
                       .sum = attrs.sum,
                       .eps = attrs.eps,
                       .x = From(x),
                       .gamma = From(gamma),
                       .beta = From(beta)};
    const auto forward = Reference(NormalizeOp(), attrs, {x, gamma, beta}, 3);
    const HostTensor &mean = forward[1], &inverse = forward[2];
    NormalizeGradArgs grad{.rows = args.rows,
                           .groups = groups,
                           .center = args.center,
                           .sum = args.sum,
                           .dy = From(dy),
                           .x = args.x,
                           .mean = From(mean),
                           .inverse = From(inverse),
                           .gamma = args.gamma};
    ParameterGradArgs of_parameters{.rows = {parameters},
                                    .groups = groups,
                                    .terms = shape.Elements() / parameters,
                                    .dy = grad.dy,
                                    .x = grad.x,
                                    .mean = grad.mean,
                                    .inverse = grad.inverse};
    const auto backward = Reference(NormalizeGradOp(), attrs, {dy, x, mean, inverse, gamma}, 3);
    for (const int by_block : {0, 1}) {
      args.rows.by_block = grad.rows.by_block = of_parameters.rows.by_block = by_block;
      ExpectWrites(forward, terms, [&](const std::vector<Target>& out, int blocks, int threads) {
        args.y = out[0];
        args.mean = out[1];
        args.inverse = out[2];
        RunOnCpu(args, blocks, threads);
      });
      ExpectWrites(backward, terms, [&](const std::vector<Target>& out, int blocks, int threads) {
        grad.dx = out[0];
        of_parameters.dgamma = out[1];
        of_parameters.dbeta = out[2];
        RunOnCpu(grad, blocks, threads);
        RunOnCpu(of_parameters, blocks, threads);
      });
    }
  }
}

TEST(CudaNormBodiesTest, LastAxis) {
  const Groups groups{.inner = 150, .by_position = 1};
  ExpectNormalized({}, {6, 150}, groups, 6, 150);
  ExpectNormalized({.center = false}, {6, 150}, groups, 6, 150);
  ExpectNormalized({.center = false, .sum = true}, {6, 150}, groups, 6, 150);
}

TEST(CudaNormBodiesTest, GroupsOfChannels) {
  ExpectNormalized({.groups = 3}, {2, 6, 5, 5}, {.channels = 2, .inner = 25, .per_sample = 3}, 6, 6);
}

// Means of infinite numbers, and of nothing, are the reference's.
TEST(CudaNormBodiesTest, UnusualGroups) {
  HostTensor x = Uniform({4, 70}).Cast(DType::kFloat32);
  x.Set(3, INFINITY);
  x.Set(70 + 3, -INFINITY);
  x.Set(140 + 3, INFINITY);
  x.Set(140 + 4, -INFINITY);
  x.Set(210 + 3, NAN);
  for (const HostTensor& data : {x, HostTensor(DType::kFloat32, {4, 0})}) {
    const int64_t n = data.shape()[1];
    const NormalizeAttrs attrs{.scale = false, .shift = false};
    const auto forward = Reference(NormalizeOp(), attrs, {data}, 3);
    for (const int by_block : {0, 1}) {
      ExpectWrites(forward, 70, [&](const std::vector<Target>& out, int blocks, int threads) {
        RunOnCpu(NormalizeArgs{.rows = {4, by_block},
                               .groups = {.inner = n, .by_position = 1},
                               .eps = attrs.eps,
                               .x = From(data),
                               .y = out[0],
                               .mean = out[1],
                               .inverse = out[2]},
                 blocks, threads);
      });
    }
  }
}

// ---- channels of (outer, channels, inner) ----

constexpr int64_t kOuter = 2, kChannels = 5, kInner = 31;
const Shape kShape = {kOuter, kChannels, kInner};

// Each channel by a block, by a thread, and by parts that do not divide it.
void ExpectChannels(ChannelArgs args, const std::vector<HostTensor>& expected) {
  args.channels = kChannels;
  args.per_inner = Divisor(args.inner);
  const auto expect = [&](const auto& run) {
    ExpectWrites(expected, static_cast<double>(kOuter * kInner),
                 [&](const std::vector<Target>& out, int blocks, int threads) {
                   std::ranges::copy(out, args.out);
                   run(blocks, threads);
                 });
  };
  for (const int by_block : {0, 1}) {
    args.rows = {kChannels, by_block};
    expect([&](int blocks, int threads) { RunOnCpu(args, blocks, threads); });
  }
  args.parts = 4;
  args.length = 16;
  args.rows.count *= args.parts;
  std::vector<char> partial(static_cast<size_t>(args.rows.count * ChannelArgs::kPartial));
  args.partial = partial.data();
  expect([&](int blocks, int threads) {
    for (const Stage stage : {Stage::kParts, Stage::kEnd}) {
      args.stage = stage;
      RunOnCpu(args, blocks, threads);
    }
  });
}

// What all of them are of.
struct Channel {
  explicit Channel(DType dtype)
      : x(Uniform(kShape, 2, 4).Cast(dtype)), dy(Uniform(kShape).Cast(dtype)),
        gamma(Uniform({kChannels}, 0.5, 2).Cast(ComputedWith(dtype))),
        beta(Uniform({kChannels}).Cast(ComputedWith(dtype))),
        mean(Uniform({kChannels}, 1, 3).Cast(ComputedWith(dtype))),
        var(Uniform({kChannels}, 0.25, 1).Cast(ComputedWith(dtype))) {}
  ChannelArgs Args(Channels what) const {
    return {.what = what,
            .eps = attrs.eps,
            .momentum = attrs.momentum,
            .outer = kOuter,
            .inner = kInner,
            .compute = x.dtype(),
            .x = From(x),
            .dy = From(dy),
            .gamma = From(gamma),
            .beta = From(beta)};
  }
  BatchNormAttrs attrs{.fix_gamma = false};
  HostTensor x, dy, gamma, beta, mean, var;
};

TEST(CudaNormBodiesTest, BatchNorm) {
  for (const DType dtype : kFloats) {
    Channel c(dtype);
    for (const bool running : {false, true}) {
      c.attrs.use_global_stats = running;
      for (const bool fixed : {false, true}) {
        c.attrs.fix_gamma = fixed;
        ChannelArgs args = c.Args(Channels::kForward);
        args.running = running;
        args.fix_gamma = fixed;
        if (running) {
          args.mean = From(c.mean);
          args.var = From(c.var);
        }
        const auto forward = Reference(BatchNormOp(), c.attrs, {c.x, c.gamma, c.beta, c.mean, c.var}, 3);
        ExpectChannels(args, forward);
        args.what = Channels::kBackward;
        args.mean = From(forward[1]);
        args.var = From(forward[2]);
        ExpectChannels(args, Reference(BatchNormGradOp(), c.attrs, {c.dy, c.x, forward[1], forward[2], c.gamma}, 3));
      }
    }
  }
}

// Negative results become 0, and have no gradient.
TEST(CudaNormBodiesTest, BatchNormWithRelu) {
  const Channel c(DType::kFloat32);
  auto forward = Reference(BatchNormOp(), c.attrs, {c.x, c.gamma, c.beta, c.mean, c.var}, 3);
  HostTensor dy = c.dy;
  std::vector<uint8_t> expected, state(static_cast<size_t>(c.x.elements()), 7);
  for (int64_t i = 0; i < dy.elements(); ++i) {
    expected.push_back(forward[0].At(i) > 0);
    if (expected.back()) continue;
    forward[0].Set(i, 0);
    dy.Set(i, 0);
  }
  ChannelArgs args = c.Args(Channels::kForward);
  args.relu = 1;
  args.state = state.data();
  ExpectChannels(args, forward);
  EXPECT_EQ(state, expected);
  args.what = Channels::kBackward;
  args.mean = From(forward[1]);
  args.var = From(forward[2]);
  ExpectChannels(args, Reference(BatchNormGradOp(), c.attrs, {dy, c.x, forward[1], forward[2], c.gamma}, 3));
}

// Counts, means and sums of squares; nobody has anything of one channel.
HostTensor OfThreeDevices(DType dtype) {
  HostTensor all = Uniform({3, 3, kChannels}, 1, 9).Cast(dtype);
  for (int64_t device = 0; device < 3; ++device) all.Set(device * 3 * kChannels + 2, 0);
  return all;
}
HostTensor Merged(const HostTensor& all) {
  HostTensor merged(all.dtype(), {3, kChannels});
  for (int64_t c = 0; c < kChannels; ++c) {
    const auto at = [&](int64_t device, int64_t row) { return all.At((device * 3 + row) * kChannels + c); };
    double count = 0, sum = 0, square = 0;
    for (int64_t d = 0; d < 3; ++d) {
      count += at(d, 0);
      sum += at(d, 0) * at(d, 1);
    }
    const double mean = count > 0 ? sum / count : 0;
    for (int64_t d = 0; d < 3; ++d) square += at(d, 2) + at(d, 0) * std::pow(at(d, 1) - mean, 2);
    merged.Set(c, count);
    merged.Set(kChannels + c, mean);
    merged.Set(2 * kChannels + c, square);
  }
  return merged;
}

// What is done by itself where several devices have parts of a batch.
TEST(CudaNormBodiesTest, StatisticsOfDevices) {
  for (const DType dtype : kFloats) {
    const Channel c(dtype);
    const HostTensor statistics = Reference(BatchNormStatisticsOp(), c.attrs, {c.x})[0];
    ExpectChannels(c.Args(Channels::kStatistics), {statistics});

    const HostTensor all = OfThreeDevices(statistics.dtype());
    ChannelArgs args{.what = Channels::kMerge, .outer = 3, .compute = all.dtype(), .x = From(all)};
    ExpectChannels(args, {Merged(all)});

    args = {.what = Channels::kCount, .inner = 62, .compute = c.mean.dtype(), .mean = From(c.mean), .var = From(c.var)};
    ExpectChannels(args, Reference(BatchStatisticsOp(), BatchStatisticsAttrs{62}, {c.mean, c.var}));

    args = {.what = Channels::kMove,
            .momentum = c.attrs.momentum,
            .compute = statistics.dtype(),
            .mean = From(c.mean),
            .var = From(c.var),
            .statistics = From(statistics)};
    ExpectChannels(args, Reference(MoveStatisticsOp(), c.attrs, {statistics, c.mean, c.var}, 2));

    args = c.Args(Channels::kNormalize);
    args.statistics = From(statistics);
    ExpectChannels(args,
                   Reference(BatchNormNormalizeOp(), c.attrs, {c.x, c.gamma, c.beta, statistics, c.mean, c.var}, 3));
    args.what = Channels::kGradSums;
    const HostTensor sums = Reference(BatchNormGradSumsOp(), c.attrs, {c.dy, c.x, statistics})[0];
    ExpectChannels(args, {sums});
    args.what = Channels::kGradInput;
    args.sums = From(sums);
    ExpectChannels(args, Reference(BatchNormGradInputOp(), c.attrs, {c.dy, c.x, c.gamma, statistics, sums}));
  }
}

TEST(CudaNormBodiesTest, LocalResponses) {
  for (const DType dtype : kFloats) {
    const HostTensor x = Uniform({2, 7, 9}).Cast(dtype), dy = Uniform({2, 7, 9}, -2, 2).Cast(dtype);
    for (const int64_t size : {3, 4, 40}) {
      const LRNAttrs attrs{.size = size, .alpha = 0.5, .beta = 0.75, .bias = 2};
      LRNArgs args{.n = x.elements(),
                   .channels = 7,
                   .inner = 9,
                   .size = std::min<int64_t>(size, 15),
                   .factor = attrs.alpha / static_cast<double>(size),
                   .beta = attrs.beta,
                   .bias = attrs.bias,
                   .x = From(x)};
      ExpectOut(args, Reference(LRNOp(), attrs, {x})[0]);
      args.dy = From(dy);
      ExpectOut(args, Reference(LRNGradOp(), attrs, {dy, x})[0], 7);
    }
  }
}

}  // namespace
}  // namespace bindery::cuda
