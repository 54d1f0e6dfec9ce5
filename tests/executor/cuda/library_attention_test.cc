// Attention by products of cuBLASLt: what it is asked for, that the answers are those of own kernels and of the
// reference, and what becomes of it where it cannot be had; over its fake.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/cuda/recording.h"
#include "executor/executor.h"
#include "symbol/gradient.h"
#include "symbol/ops.h"
#include "tests/engine/cuda/fake/cublaslt.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/executor/cuda/cublaslt_fixture.h"
#include "tests/executor/graph_runner.h"
#include "tests/executor/values.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;

struct Sizes {
  bool apart = true;  // are heads an axis of their own?
  int64_t samples = 2, heads = 3, kv_heads = 3, queries = 5, keys = 6, depth = 4, width = 7;
};

Symbol AttentionOf(const Sizes& s, AttentionAttrs attrs, const Symbol& mask = {}) {
  if (!s.apart) attrs.heads = s.heads, attrs.kv_heads = s.kv_heads;
  return Attention(Variable("q"), Variable("k"), Variable("v"), mask, attrs, "y");
}

HostTensorMap InputsOf(const Sizes& s) {
  const auto shape = [&](int64_t heads, int64_t rows, int64_t columns) {
    return s.apart ? Shape{s.samples, heads, rows, columns} : Shape{s.samples, rows, heads * columns};
  };
  return {{"q", Uniform(shape(s.heads, s.queries, s.depth))},
          {"k", Uniform(shape(s.kv_heads, s.keys, s.depth), -2, 2)},
          {"v", Uniform(shape(s.kv_heads, s.keys, s.width), -1, 2)}};
}

HostTensorMap Cast(HostTensorMap inputs, DType dtype) {
  for (auto& [name, value] : inputs) {
    if (value.dtype() != DType::kBool) value = value.Cast(dtype);
  }
  return inputs;
}

// y, and the gradients of the sum of its squares.
RunResult Evaluated(const Symbol& y, const HostTensorMap& inputs, const std::vector<std::string>& wrt,
                    const RunOptions& options = {.device = Cuda(0)}) {
  GivenTypes given;
  for (const auto& [name, value] : inputs) {
    given.shapes[name] = value.shape();
    given.dtypes[name] = value.dtype();
  }
  std::vector<Symbol> all = {y};
  if (!wrt.empty()) {
    for (const Symbol& gradient : Gradient(MakeLoss(Sum(Square(y))), wrt, given).gradients) all.push_back(gradient);
  }
  return RunGraph(Group(all), inputs, options);
}

void ExpectImplementation(const RunResult& result, const std::string& expected) {
  for (const auto& [node, op] : result.operators) {
    if (op == "Attention" || op == "AttentionGrad") EXPECT_EQ(result.implementations.at(node), expected) << op;
  }
}

const std::vector<std::string> kAllInputs = {"q", "k", "v"};

class CudaLibraryAttentionTest : public CublasLtTest {
 protected:
  // Those of one binding, and how many calls there are.
  struct Asked {
    std::vector<fake::PlanSeen> plans;
    int64_t calls;
  };
  static Asked AskedBy(const Sizes& s, DType dtype, const std::vector<std::string>& wrt = kAllInputs) {
    const int64_t before = fake::Matmuls();
    Evaluated(AttentionOf(s, {}), Cast(InputsOf(s), dtype), wrt, {.watch = false, .device = Cuda(0)});
    return {fake::TakePlans(), fake::Matmuls() - before};
  }
};

// A matrix by rows and the batch it is of: by columns it is its transpose.
struct Rows {
  int64_t rows, columns, stride = 0, row_stride = 0;  // 0: side by side
  int64_t offset = 0;                                 // where another call's begins
};
// A type, that of scores of it, and what products of it are computed with.
struct Computed {
  DType dtype;
  cudaDataType_t type, sums;
  cublasComputeType_t compute;
  bool tf32 = false;
};

// c = a b, of scores where b is transposed; it computes c^T = b^T a^T.
void ExpectPlan(const fake::PlanSeen& plan, const Computed& c, int32_t batch, const Rows& a, bool transpose_a,
                const Rows& b, bool transpose_b, const Rows& out) {
  const auto layout = [&](const Rows& rows, cudaDataType_t type) {
    const int64_t ld = rows.row_stride > 0 ? rows.row_stride : rows.columns;
    return fake::LayoutSeen{
        type, static_cast<uint64_t>(rows.columns), static_cast<uint64_t>(rows.rows), ld, batch, rows.stride};
  };
  const auto alignment = [](const Rows& rows, cudaDataType_t type) {
    const int64_t bytes = rows.offset * (type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2);
    return static_cast<uint32_t>(bytes == 0 ? 64 : std::min<int64_t>(64, bytes & -bytes));
  };
  const auto op = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const cudaDataType_t made = transpose_b ? c.sums : c.type;
  EXPECT_EQ(plan.operation, (fake::OperationSeen{c.compute, c.sums, op(transpose_b), op(transpose_a)}));
  EXPECT_EQ(plan.a, layout(b, c.type));
  EXPECT_EQ(plan.b, layout(a, c.type));
  EXPECT_EQ(plan.d, layout(out, made));
  const std::array<uint32_t, 3> aligned = {alignment(b, c.type), alignment(a, c.type), alignment(out, made)};
  const auto reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  EXPECT_EQ(plan.preference,
            (fake::PreferenceSeen{1 << 20, reductions, {aligned[0], aligned[1], aligned[2], aligned[2]}}));
}

struct Matrices {
  int32_t batch;
  Rows query, key, value, output, scores;
};
void ExpectPlans(const std::vector<fake::PlanSeen>& plans, const Computed& c, const Matrices& m) {
  ASSERT_EQ(plans.size(), 7u);
  const auto expect = [&](size_t i, const Rows& a, bool ta, const Rows& b, bool tb, const Rows& out) {
    SCOPED_TRACE(i);
    ExpectPlan(plans[i], c, m.batch, a, ta, b, tb, out);
  };
  expect(0, m.query, false, m.key, true, m.scores);
  expect(1, m.scores, false, m.value, false, m.output);
  expect(2, m.query, false, m.key, true, m.scores);
  expect(3, m.output, false, m.value, true, m.scores);
  expect(4, m.scores, false, m.key, false, m.query);
  expect(5, m.scores, true, m.query, false, m.key);
  expect(6, m.scores, true, m.output, false, m.value);
}

constexpr Computed kFloat32 = {DType::kFloat32, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
constexpr Computed kBFloat16 = {DType::kBFloat16, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, true};

// Heads on an axis of their own: all samples' are one batch.
TEST_F(CudaLibraryAttentionTest, PlansOfHeadsApart) {
  const Matrices m = {6, {5, 4, 20}, {6, 4, 24}, {6, 7, 42}, {5, 7, 35}, {5, 6, 30}};
  const Computed all[] = {kFloat32,
                          {DType::kFloat32, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, true},
                          kBFloat16,
                          {DType::kFloat16, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
                          {DType::kFloat64, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, true}};
  for (const Computed& c : all) {
    SCOPED_TRACE(ToString(c.dtype));
    cuda::UseTf32(c.tf32);
    const Asked asked = AskedBy({}, c.dtype);
    ExpectPlans(asked.plans, c, m);
    EXPECT_EQ(asked.calls, 7);
  }
}

// Heads within the last axis: no stride leads from sample to sample and from head to head. Each sample is a call, or
// each head, whichever are fewer.
TEST_F(CudaLibraryAttentionTest, PlansOfHeadsWithinRows) {
  Asked asked = AskedBy({.apart = false, .samples = 2, .heads = 4, .kv_heads = 4}, DType::kBFloat16);
  ExpectPlans(asked.plans, kBFloat16,
              {4, {5, 4, 4, 16, 80}, {6, 4, 4, 16, 96}, {6, 7, 7, 28, 168}, {5, 7, 7, 28, 140}, {5, 6, 30, 0, 120}});
  EXPECT_EQ(asked.calls, 2 * 7);

  asked = AskedBy({.apart = false, .samples = 5, .heads = 2, .kv_heads = 2}, DType::kFloat32);
  ExpectPlans(asked.plans, kFloat32,
              {5, {5, 4, 40, 8, 4}, {6, 4, 48, 8, 4}, {6, 7, 84, 14, 7}, {5, 7, 70, 14, 7}, {5, 6, 60, 0, 30}});
  EXPECT_EQ(asked.calls, 2 * 7);
}

// One sample, or one head: it has one stride.
TEST_F(CudaLibraryAttentionTest, PlansOfOneSampleOrOneHead) {
  Asked asked = AskedBy({.apart = false, .samples = 1, .heads = 4, .kv_heads = 4, .depth = 16}, DType::kFloat32);
  ExpectPlan(asked.plans.at(0), kFloat32, 4, {5, 16, 16, 64}, false, {6, 16, 16, 64}, true, {5, 6, 30});
  EXPECT_EQ(asked.calls, 7);

  asked = AskedBy({.apart = false, .samples = 4, .heads = 1, .kv_heads = 1, .queries = 8, .keys = 16, .depth = 16},
                  DType::kFloat32);
  ExpectPlan(asked.plans.at(0), kFloat32, 4, {8, 16, 128}, false, {16, 16, 256}, true, {8, 16, 128});
  EXPECT_EQ(asked.calls, 7);
}

// Heads that share keys: rows of one matrix where they lie behind each other, else calls whose sums are added.
TEST_F(CudaLibraryAttentionTest, PlansOfGroupedHeads) {
  Asked asked = AskedBy({.heads = 6, .kv_heads = 2}, DType::kFloat32);
  ExpectPlans(asked.plans, kFloat32, {4, {15, 4, 60}, {6, 4, 24}, {6, 7, 42}, {15, 7, 105}, {15, 6, 90}});
  EXPECT_EQ(asked.calls, 7);
  // Of three samples and two heads of keys, which three heads share.
  asked = AskedBy({.apart = false, .samples = 3, .heads = 6, .kv_heads = 2}, DType::kFloat32);
  ASSERT_EQ(asked.plans.size(), 2u + 5 + 2);  // those that add are of their own
  const Rows query = {5, 4, 120, 24, 4}, key = {6, 4, 48, 8, 4}, value = {6, 7, 84, 14, 7}, output = {5, 7, 210, 42, 7},
             scores = {5, 6, 180, 0, 30};
  const auto& p = asked.plans;
  ExpectPlan(p[0], kFloat32, 3, query, false, key, true, scores);
  ExpectPlan(p[1], kFloat32, 3, scores, false, value, false, output);
  ExpectPlan(p[4], kFloat32, 3, scores, false, key, false, query);
  for (const size_t i : {5, 6}) ExpectPlan(p[i], kFloat32, 3, scores, true, query, false, key);
  for (const size_t i : {7, 8}) ExpectPlan(p[i], kFloat32, 3, scores, true, output, false, value);
  EXPECT_EQ(asked.calls, 2 * 3 * 7);
}

TEST_F(CudaLibraryAttentionTest, OnlyWhatIsReadIsComputed) {
  const std::pair<std::vector<std::string>, int64_t> all[] = {
      {{}, 2}, {{"v"}, 2 + 2}, {{"q"}, 2 + 3}, {{"k"}, 2 + 3}, {{"q", "k"}, 2 + 4}};
  for (const auto& [wrt, calls] : all) EXPECT_EQ(AskedBy({}, DType::kFloat32, wrt).calls, calls);
  HostTensorMap inputs = InputsOf({});
  inputs["mask"] = Uniform({5, 6});
  const int64_t before = fake::Matmuls();
  Evaluated(AttentionOf({}, {}, Variable("mask")), Cast(inputs, DType::kFloat32), {"mask"},
            {.watch = false, .device = Cuda(0)});
  EXPECT_EQ(fake::Matmuls() - before, 2 + 2);
}

struct Setting {
  std::string name;
  AttentionAttrs attrs = {};
  std::optional<HostTensor> mask = {};
};

// By the library, by own kernels, by the reference in double.
void ExpectAll(const Sizes& s, const Setting& setting, DType dtype) {
  HostTensorMap inputs = InputsOf(s);
  std::vector<std::string> wrt = kAllInputs;
  if (setting.mask) inputs["mask"] = *setting.mask;
  if (setting.mask && setting.mask->dtype() != DType::kBool) wrt.push_back("mask");
  const Symbol y = AttentionOf(s, setting.attrs, setting.mask ? Variable("mask") : Symbol());
  inputs = Cast(inputs, dtype);
  const int64_t before = fake::Matmuls();
  const RunResult by_library = Evaluated(y, inputs, wrt);
  ExpectImplementation(by_library, "cublaslt");
  EXPECT_GT(fake::Matmuls(), before);
  cuda::UseCublasLt(nullptr);
  const RunResult by_own = Evaluated(y, inputs, wrt);
  ExpectImplementation(by_own, "own");
  cuda::UseCublasLt(fake::CublasLt());
  const RunResult truth =
      Evaluated(y, Cast(inputs, DType::kFloat64), wrt, {.policy = KernelPolicy::kReference, .watch = false});
  for (size_t i = 0; i < truth.outputs.size(); ++i) {
    const HostTensor& expected = truth.outputs[i];
    // Of 16-bit floats what lies between products is rounded, too.
    const double tolerance = (SizeOf(dtype) == 2 ? 4 : 32) * EpsilonOf(dtype) * std::max(1.0, MaxAbs(expected));
    ExpectNear(by_library.outputs[i].Cast(DType::kFloat64), expected, tolerance, fmt::format("output {}", i));
    ExpectNear(by_library.outputs[i], by_own.outputs[i], tolerance, fmt::format("output {} by own kernels", i));
  }
}

TEST_F(CudaLibraryAttentionTest, AnswersAsOthersDo) {
  const std::vector<Setting> settings = {
      {"plain"},
      {"causal", {.causal = true}},
      {"queries that see nothing", {.causal = true, .offset = -4}},
      {"windows", {.left_window = 2, .right_window = 3}},
      {"capped", {.scale = 2, .softcap = 1.5}},
      {"added numbers", {}, Uniform({9, 11}, -2, 1)},
      {"bool", {.softcap = 2, .right_window = 5}, Integers({9, 11}, 0, 1).Cast(DType::kBool)},
  };
  const Sizes all[] = {{.queries = 9, .keys = 11},
                       {.heads = 6, .kv_heads = 2, .queries = 9, .keys = 11, .depth = 40},
                       {.apart = false, .samples = 2, .heads = 3, .kv_heads = 3, .queries = 9, .keys = 11},
                       {.apart = false, .samples = 3, .heads = 6, .kv_heads = 2, .queries = 9, .keys = 11}};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    for (size_t i = 0; i < std::size(all); ++i) {
      for (const Setting& setting : settings) {
        SCOPED_TRACE(fmt::format("{}, sizes {}, {}", ToString(dtype), i, setting.name));
        ExpectAll(all[i], setting, dtype);
      }
    }
  }
}

// Rows that a block works on, in several turns.
TEST_F(CudaLibraryAttentionTest, LongRows) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    ExpectAll({.samples = 1, .heads = 2, .kv_heads = 1, .queries = 3, .keys = 600}, {"", {.right_window = 400}}, dtype);
  }
}

// No number and infinities pass as by own kernels, whose sums have them times 0, too, where a key is not seen.
TEST_F(CudaLibraryAttentionTest, WhatIsNoNumberPasses) {
  for (const char* name : {"q", "k", "v"}) {
    for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      SCOPED_TRACE(fmt::format("{} of {}", value, name));
      HostTensorMap inputs = InputsOf({});
      inputs[name].Set(inputs[name].elements() - 1, value);
      inputs = Cast(inputs, DType::kFloat32);
      // The last query sees not the last key, and the first ones see nothing.
      const Symbol y = AttentionOf({}, {.causal = true, .offset = -2});
      const RunResult by_library = Evaluated(y, inputs, kAllInputs);
      ExpectImplementation(by_library, "cublaslt");
      cuda::UseCublasLt(nullptr);
      const RunResult by_own = Evaluated(y, inputs, kAllInputs);
      cuda::UseCublasLt(fake::CublasLt());
      for (size_t i = 0; i < by_own.outputs.size(); ++i) {
        ExpectNear(by_library.outputs[i], by_own.outputs[i], 1e-5, fmt::format("output {}", i));
      }
    }
  }
}

TEST_F(CudaLibraryAttentionTest, OwnKernelsWhereItCannot) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const HostTensorMap inputs = Cast(InputsOf({}), dtype);
    const Symbol y = AttentionOf({}, {.causal = true});
    const int64_t before = fake::Matmuls();
    fake::FindNoAlgorithm(true);
    const RunResult refused = Evaluated(y, inputs, kAllInputs);
    fake::FindNoAlgorithm(false);
    cuda::UseCublasLt(nullptr);
    const RunResult without = Evaluated(y, inputs, kAllInputs);
    cuda::UseCublasLt(fake::CublasLt());
    EXPECT_EQ(fake::Matmuls(), before);
    EXPECT_EQ(refused.outputs, without.outputs);
    ExpectImplementation(without, "own");
  }
}

TEST_F(CudaLibraryAttentionTest, OwnKernelsWhereThereWouldBeTooManyCalls) {
  for (const int64_t shared : {15, 16}) {
    const Sizes s = {.apart = false, .samples = 17, .heads = 17 * shared, .kv_heads = 17, .queries = 2};
    const Asked asked = AskedBy(s, DType::kFloat32, {});
    EXPECT_EQ(asked.plans.empty(), shared == 16);
    EXPECT_EQ(asked.calls, shared == 16 ? 0 : 2 * 17 * shared);
  }
}

Kernel KernelOf(int64_t queries, int64_t keys, int64_t samples = 1, int64_t heads = 1) {
  const auto type = [](const Shape& shape) { return ValueType{.dtype = DType::kFloat32, .shape = shape}; };
  const ValueType query = type({samples, heads, queries, 1}), key = type({samples, heads, keys, 1});
  return MakeKernel({.device = DeviceKind::kCuda,
                     .op = &AttentionOp(),
                     .attrs = AttentionAttrs(),
                     .node_name = "y",
                     .inputs = {query, key, key},
                     .outputs = {query, type({samples, heads, queries})},
                     .input_formats = std::vector<Format>(3),
                     .output_used = {true, true}},
                    KernelPolicy::kFast);
}

TEST_F(CudaLibraryAttentionTest, ExtentsBeyondTheLibrarysAndAnyones) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(KernelOf(kMost, 3).implementation, "cublaslt");
  EXPECT_EQ(KernelOf(kMost + 1, 3).implementation, "own");
  EXPECT_EQ(KernelOf(3, kMost + 1).implementation, "own");
  EXPECT_EQ(KernelOf(3, 3, 65535, 2).implementation, "cublaslt");  // two calls
  EXPECT_EQ(KernelOf(3, 3, 65536, 1).implementation, "own");
  EXPECT_THROW(KernelOf(int64_t{1} << 40, int64_t{1} << 40), ShapeError);
  cuda::UseCublasLt(nullptr);
  EXPECT_THROW(KernelOf(int64_t{1} << 31, int64_t{1} << 31), ShapeError);
}

// Forward and backward, captured: the same bits, step by step, and calls for the first two steps alone.
TEST_F(CudaLibraryAttentionTest, GraphsGiveTheSame) {
  const Sizes s = {.apart = false, .samples = 3, .heads = 6, .kv_heads = 2};
  const HostTensorMap values = InputsOf(s);
  std::vector<DataDesc> inputs;
  for (const auto& [name, value] : values) inputs.push_back({name, value.shape(), DType::kBFloat16});
  const auto kWrite = GradReq::kWrite;
  const std::map<std::string, GradReq> wanted = {{"q", kWrite}, {"k", kWrite}, {"v", kWrite}};
  std::vector<HostTensor> results[2];
  for (const bool graphs : {false, true}) {
    cuda::UseGraphs(graphs);
    Executor executor(MakeLoss(AttentionOf(s, {.causal = true})),
                      {.device = Cuda(4), .inputs = inputs, .grad_req = wanted});
    const int64_t before = fake::Matmuls(), launches = fake::GraphLaunches();
    for (int step = 0; step < 4; ++step) {
      for (const auto& [name, value] : values) {
        executor.SetInput(name, Uniform(value.shape(), -1 - step, 1).Cast(DType::kBFloat16));
      }
      executor.Forward();
      executor.Backward();
      results[graphs].push_back(executor.Output(0));
      for (const std::string& name : kAllInputs) results[graphs].push_back(executor.Gradient(name));
    }
    EXPECT_EQ(fake::Matmuls() - before, (graphs ? 2 : 4) * 2 * 3 * 7);
    EXPECT_EQ(fake::GraphLaunches() > launches, graphs);
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace bindery
