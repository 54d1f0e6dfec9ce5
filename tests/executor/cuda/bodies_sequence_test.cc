// Bodies of attention and of connectionist temporal classification (bodies_fixture.h).
#include "executor/kernels/cuda/attention_body.h"
#include "executor/kernels/cuda/ctc_body.h"
#include "symbol/ops/attention.h"
#include "symbol/ops/ctc.h"
#include "tests/engine/cuda/cpu_block.h"
#include "tests/executor/cuda/bodies_fixture.h"

namespace bindery::cuda {
namespace {

// ---- attention ----

AttentionShape ShapeOf(const AttentionAttrs& attrs, const Shape& query, const Shape& key, const Shape& value) {
  const AttentionForm f = FormOf(attrs, query, key, value);
  const auto lay = [](const AttentionForm::Strides& s) { return AttentionShape::Lay{s.sample, s.head, s.row}; };
  const KeyRange seen = SeenKeys(attrs, 500, 1000);  // of a query in the middle of many keys
  return {.heads = f.heads,
          .kv_heads = f.kv_heads,
          .queries = f.queries,
          .keys = f.keys,
          .depth = f.depth,
          .width = f.width,
          .query = lay(f.query),
          .key = lay(f.key),
          .value = lay(f.value),
          .output = lay(f.output),
          .scale = f.scale,
          .softcap = attrs.softcap,
          .first = attrs.left_window < 0 ? -500 : seen.first - 500,
          .last = seen.last - 500};
}

// a b^T of each head: what a library would have made.
HostTensor ProductsOf(const HostTensor& a, const HostTensor& b, int64_t columns, const AttentionShape& s,
                      const AttentionShape::Lay& lay_a, const AttentionShape::Lay& lay_b, int64_t samples) {
  HostTensor products(ComputedWith(a.dtype()), {samples, s.heads, s.queries, s.keys});
  for (int64_t row = 0; row < samples * s.heads * s.queries; ++row) {
    const QueryPlace q(s, row);
    for (int64_t k = 0; k < s.keys; ++k) {
      double sum = 0;
      for (int64_t i = 0; i < columns; ++i) {
        sum += a.At(At(lay_a, q.sample, q.head, q.query) + i) * b.At(At(lay_b, q.sample, q.kv_head, k) + i);
      }
      products.Set(row * s.keys + k, sum);
    }
  }
  return products;
}

void ExpectAttention(AttentionAttrs attrs, DType dtype) {
  constexpr int64_t kSamples = 2, kHeads = 4, kQueries = 7, kKeys = 70, kDepth = 5, kWidth = 6;
  HostTensor query = Uniform({kSamples, kHeads, kQueries, kDepth}, -2, 2).Cast(dtype);
  const HostTensor key = Uniform({kSamples, 2, kKeys, kDepth}, -2, 2).Cast(dtype);
  const HostTensor value = Uniform({kSamples, 2, kKeys, kWidth}).Cast(dtype);
  const HostTensor dy = Uniform({kSamples, kHeads, kQueries, kWidth}).Cast(dtype);
  HostTensor mask = Uniform({kHeads, 1, kKeys}).Cast(dtype);
  for (int64_t k = 0; k < kKeys; ++k) mask.Set(k, -INFINITY);  // the first head sees nothing
  // And the second all alike, behind a number in which their scores would be lost.
  for (int64_t k = kKeys; k < 2 * kKeys; ++k) mask.Set(k, -1e9);
  for (int64_t sample = 0; sample < kSamples && attrs.masked; ++sample) {
    const int64_t first = (sample * kHeads + 1) * kQueries * kDepth;
    for (int64_t i = 0; i < kQueries * kDepth; ++i) query.Set(first + i, 0);
  }
  std::vector<HostTensor> inputs = {query, key, value};
  AttentionShape shape = ShapeOf(attrs, query.shape(), key.shape(), value.shape());
  if (attrs.masked) {
    inputs.push_back(mask);
    shape.mask = From(mask);
    std::ranges::copy(MaskStrides(mask.shape()), shape.mask_strides);
  }
  const auto forward = Reference(AttentionOp(), attrs, inputs, 3);
  inputs.insert(inputs.begin(), dy);
  inputs.insert(inputs.end(), forward.begin(), forward.end());
  const size_t outputs = attrs.masked ? 4 : 3;
  const auto backward = Reference(AttentionGradOp(), AttentionGradAttrs{attrs, attrs.masked}, inputs, outputs);

  const DType computed = ComputedWith(dtype);
  const HostTensor products = ProductsOf(query, key, kDepth, shape, shape.query, shape.key, kSamples);
  const HostTensor value_products = ProductsOf(dy, value, kWidth, shape, shape.output, shape.value, kSamples);
  HostTensor first(computed, products.shape()), second = first;  // scratch
  AttentionArgs args{.rows = {kSamples * kHeads * kQueries},
                     .shape = shape,
                     .query = From(query),
                     .key = From(key),
                     .value = From(value)};
  AttentionGradArgs grad{.shape = shape,
                         .dy = From(dy),
                         .query = args.query,
                         .key = args.key,
                         .value = args.value,
                         .output = From(forward[0]),
                         .maximum = From(forward[1]),
                         .log_sum = From(forward[2]),
                         .parts = To(&first),
                         .slopes = To(&second)};
  AttentionArgs around = args;  // a library's products, which are there already
  AttentionGradArgs grad_around = grad;
  around.by_library = grad_around.by_library = 1;
  grad_around.products = From(products);
  grad_around.value_products = From(value_products);
  for (const int by_block : {0, 1}) {
    args.rows.by_block = by_block;
    ExpectWrites(forward, kKeys, [&](const std::vector<Target>& out, int blocks, int threads) {
      args.out = out[0];
      args.maximum = out[1];
      args.log_sum = out[2];
      args.products = args.parts = To(&first);
      RunOnCpu(args, blocks, threads);
    });
    HostTensor parts(computed, products.shape()), slopes = parts;
    ExpectWrites(backward, kKeys, [&](const std::vector<Target>& out, int blocks, int threads) {
      grad.dq = out[0];
      grad.dk = out[1];
      grad.dv = out[2];
      if (attrs.masked) grad.dmask = out[3];
      grad.rows = {kSamples * kHeads * kQueries, by_block};
      grad.of_keys = 0;
      RunOnCpu(grad, blocks, threads);
      parts = first;
      slopes = second;
      grad.of_keys = 1;
      grad.rows = {kSamples * 2 * kKeys, by_block};
      RunOnCpu(grad, blocks, threads);
    });
    around.rows = grad_around.rows = args.rows;
    ExpectWrites({parts, forward[1], forward[2]}, kKeys, [&](const std::vector<Target>& out, int blocks, int threads) {
      HostTensor copy = products;
      around.products = To(&copy);
      around.parts = out[0];
      around.maximum = out[1];
      around.log_sum = out[2];
      RunOnCpu(around, blocks, threads);
    });
    ExpectWrites({parts, slopes}, kKeys, [&](const std::vector<Target>& out, int blocks, int threads) {
      grad_around.parts = out[0];
      grad_around.slopes = out[1];
      RunOnCpu(grad_around, blocks, threads);
    });
  }
}

TEST(CudaAttentionBodiesTest, Attention) {
  for (const DType dtype : kFloats) {
    ExpectAttention({}, dtype);
    ExpectAttention({.softcap = 3, .masked = true}, dtype);
    ExpectAttention({.left_window = 9, .right_window = 2, .offset = 5}, dtype);
  }
}

// ---- connectionist temporal classification ----

void ExpectLosses(double masked, DType dtype) {
  constexpr int64_t kSteps = 9, kSamples = 5, kClasses = 6, kLabels = 4;
  constexpr double kTerms = kSteps * kClasses;
  // Repeated ones; fewer; none; more than there are steps for.
  const HostTensor label =
      Values({kSamples, kLabels}, {1, 1, 2, 2, 3, 4, -1, -1, -1, -1, -1, -1, 2, 1, 2, 3, 3, 3, 3, 3})
          .Cast(DType::kInt32);
  const HostTensor label_lengths = Values({kSamples}, {4, 2, 0, 3, 4}).Cast(DType::kInt64);
  const HostTensor data_lengths = Values({kSamples}, {9, 5, 7, 9, 6}).Cast(DType::kInt64);
  HostTensor data = Uniform({kSteps, kSamples, kClasses}, -2, 2).Cast(dtype);
  for (int64_t n = 0; n < kSamples && masked < 0; ++n) {
    for (const int64_t step : {0, 3}) data.Set((step * kSamples + n) * kClasses + 1, masked);
  }
  for (const bool lengths : {false, true}) {
    const CTCLossAttrs attrs{
        .blank = 0, .use_data_lengths = lengths, .use_label_lengths = lengths, .zero_infinity = lengths};
    std::vector<HostTensor> inputs = {data, label};
    if (lengths) inputs.insert(inputs.end(), {data_lengths, label_lengths});
    CTCArgs args{.steps = kSteps,
                 .samples = kSamples,
                 .classes = kClasses,
                 .labels = kLabels,
                 .zero_infinity = lengths,
                 .data = From(data),
                 .label = From(label)};
    if (lengths) {
      args.data_lengths = From(data_lengths);
      args.label_lengths = From(label_lengths);
    }
    std::vector<double> sums(static_cast<size_t>(kSamples * args.sums_of_sample(true)));
    std::vector<int32_t> states(static_cast<size_t>(kSamples * args.states_of_sample()));
    args.sums = sums.data();
    args.states = states.data();
    const HostTensor loss = Reference(CTCLossOp(), attrs, inputs)[0];
    ExpectOut(args, loss, kTerms);
    const HostTensor dy = Uniform({kSamples}, 1, 2).Cast(loss.dtype());
    inputs.insert(inputs.begin(), dy);
    args.dy = From(dy);
    ExpectOut(args, Reference(CTCLossGradOp(), attrs, inputs)[0], kTerms);
  }
}

// The first of a label and of both lengths that cannot be is reported.
TEST(CudaCTCBodiesTest, WhatCannotBe) {
  const HostTensor data = Uniform({4, 1, 3}).Cast(DType::kFloat32);
  const uint64_t piece = 5;
  const auto fault_of = [&](double label, double steps, double count) {
    const HostTensor labels = HostTensor::From({1, 2}, {static_cast<float>(label), 2});
    const HostTensor data_lengths = HostTensor::From({1}, {static_cast<float>(steps)});
    const HostTensor label_lengths = HostTensor::From({1}, {static_cast<float>(count)});
    std::vector<Fault> faults(FaultRing::kSize);
    uint64_t heard = 0;
    HostTensor loss(DType::kFloat32, {1});
    CTCArgs args{.steps = 4,
                 .samples = 1,
                 .classes = 3,
                 .labels = 2,
                 .data = From(data),
                 .label = From(labels),
                 .data_lengths = From(data_lengths),
                 .label_lengths = From(label_lengths),
                 .out = To(&loss),
                 .faults = {faults.data(), &piece, &heard}};
    std::vector<double> sums(static_cast<size_t>(args.sums_of_sample(false)));
    std::vector<int32_t> states(static_cast<size_t>(args.states_of_sample()));
    args.sums = sums.data();
    args.states = states.data();
    RunOnCpu(args, 2, 7);
    const Fault& fault = faults[piece];
    return fault.piece == piece ? fmt::format("{} in {}..{}", fault.value, fault.low, fault.high) : "none";
  };
  EXPECT_EQ(fault_of(1, 4, 2), "none");
  EXPECT_EQ(fault_of(3, 4, 2), "3 in 1..2");
  EXPECT_EQ(fault_of(1.5, 4, 2), "1.5 in 1..2");
  EXPECT_EQ(fault_of(0.5, 4, 2), "0.5 in 1..2");
  EXPECT_EQ(fault_of(1, 5, 2), "5 in 0..4");
  EXPECT_EQ(fault_of(1, 3.5, 2), "3.5 in 0..4");
  EXPECT_EQ(fault_of(1, 4, 1.5), "1.5 in 0..2");
}

// All classes as they are, or one that may not be at some steps, by what is added as a mask or by infinity.
TEST(CudaCTCBodiesTest, Losses) {
  for (const double masked : {0.0, -1e4, -static_cast<double>(INFINITY)}) {
    for (const DType dtype : kFloats) ExpectLosses(masked, dtype);
  }
}

}  // namespace
}  // namespace bindery::cuda
