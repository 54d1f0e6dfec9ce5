// Recurrent layers whose products by weights are cuBLASLt's: what it is asked for, and what becomes of them where it has
// no answer; over its fake. What comes out: CudaOperatorsTest.Recurrent.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "engine/cuda/cublaslt_api.h"
#include "engine/cuda/recording.h"
#include "executor/executor.h"
#include "symbol/ops.h"
#include "symbol/ops/recurrent.h"
#include "tests/engine/cuda/fake/cublaslt.h"
#include "tests/engine/cuda/fake/fake.h"
#include "tests/executor/cuda/cublaslt_fixture.h"
#include "tests/executor/values.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;

constexpr int64_t kSteps = 3, kSamples = 2, kUnits = 64;

class CudaLibraryRecurrentTest : public CublasLtTest {};

int64_t GatesOf(const RecurrentAttrs& attrs) {
  return attrs.cell == RecurrentCell::kLstm ? 4 : attrs.cell == RecurrentCell::kGru ? 3 : 1;
}

// A layer, to be trained in all that it has.
Executor LayerOf(const RecurrentAttrs& attrs, DType dtype = DType::kFloat32) {
  std::vector<Symbol> inputs = {Variable("x"), Variable("w")};
  if (attrs.cell == RecurrentCell::kGru && attrs.reset_after) inputs.push_back(Variable("b"));
  std::map<std::string, GradReq> requests;
  for (const Symbol& input : inputs) requests[input.name()] = GradReq::kWrite;
  return Executor(MakeLoss(Recurrent(inputs, attrs, "y")[0]),
                  {.device = Cuda(0),
                   .inputs = {{"x", {kSteps, kSamples, GatesOf(attrs) * attrs.hidden}, dtype}},
                   .grad_req = requests});
}

HostTensorMap Params(const RecurrentAttrs& attrs) {
  HostTensorMap params = {{"w", Uniform({GatesOf(attrs) * attrs.hidden, attrs.hidden}, -0.2, 0.2)}};
  if (attrs.cell == RecurrentCell::kGru && attrs.reset_after) params["b"] = Uniform({attrs.hidden});
  for (auto& [name, value] : params) value = value.Cast(DType::kFloat32);
  return params;
}

// Its output and gradients.
std::vector<HostTensor> Step(Executor& layer, const HostTensorMap& params, const HostTensor& x) {
  layer.SetParams(params);
  layer.Forward({{"x", x}});
  layer.Backward();
  return {layer.Output(0), layer.Gradient("x"), layer.Gradient("w")};
}

HostTensor Data(const RecurrentAttrs& attrs) {
  return Uniform({kSteps, kSamples, GatesOf(attrs) * attrs.hidden}).Cast(DType::kFloat32);
}

TEST_F(CudaLibraryRecurrentTest, Plans) {
  struct Expected {
    RecurrentAttrs attrs;
    int64_t products;  // of a step, forward and backward
    // Of weights: (rows, columns, how far columns are apart) by cuBLASLt's names, and the alignment that is promised.
    std::set<std::vector<uint64_t>> weights;
  };
  const std::vector<Expected> all = {
      {{.hidden = kUnits}, 2, {{64, 256, 64, 64}}},
      {{.cell = RecurrentCell::kTanh, .hidden = kUnits}, 2, {{64, 64, 64, 64}}},
      {{.cell = RecurrentCell::kGru, .hidden = kUnits}, 2, {{64, 192, 64, 64}}},
      {{.cell = RecurrentCell::kGru, .hidden = kUnits, .reset_after = false}, 4, {{64, 128, 64, 64}, {64, 64, 64, 64}}},
      {{.cell = RecurrentCell::kGru, .hidden = 65, .reset_after = false}, 4, {{65, 130, 65, 64}, {65, 65, 65, 8}}},
  };
  for (const Expected& expected : all) {
    SCOPED_TRACE(fmt::format("cell {} of {}", static_cast<int>(expected.attrs.cell), expected.attrs.hidden));
    Executor layer = LayerOf(expected.attrs);
    std::set<std::vector<uint64_t>> weights;
    for (const fake::PlanSeen& plan : fake::TakePlans()) {
      if (plan.d.columns != kSamples) continue;  // the gradient of weights, which is a product of all steps
      EXPECT_EQ(plan.b.columns, uint64_t{kSamples});
      weights.insert({plan.a.rows, plan.a.columns, static_cast<uint64_t>(plan.a.ld), plan.preference.alignments[0]});
    }
    EXPECT_EQ(weights, expected.weights);
    const int64_t before = fake::Matmuls();
    Step(layer, Params(expected.attrs), Data(expected.attrs));
    // And one for the gradient of weights, or two, where what the reset gate leaves has its own.
    const int64_t of_weights = expected.attrs.cell == RecurrentCell::kGru && !expected.attrs.reset_after ? 2 : 1;
    EXPECT_EQ(fake::Matmuls() - before, expected.products * kSteps + of_weights);
  }
}

// Few units are one kernel's.
TEST_F(CudaLibraryRecurrentTest, NotOfFewUnits) {
  LayerOf({.hidden = 63});
  for (const fake::PlanSeen& plan : fake::TakePlans()) EXPECT_NE(plan.d.columns, uint64_t{kSamples});
}

// States are not rounded to 16 bits between steps: products are of float32, with TF32.
TEST_F(CudaLibraryRecurrentTest, SixteenBits) {
  const RecurrentAttrs attrs{.hidden = kUnits};
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
    SCOPED_TRACE(ToString(dtype));
    LayerOf(attrs, dtype);
    int seen = 0;
    for (const fake::PlanSeen& plan : fake::TakePlans()) {
      if (plan.d.columns != kSamples) continue;
      ++seen;
      EXPECT_EQ(plan.a.type, dtype == DType::kFloat64 ? CUDA_R_64F : CUDA_R_32F);
      EXPECT_EQ(plan.operation.compute, dtype == DType::kFloat64   ? CUBLAS_COMPUTE_64F
                                        : dtype == DType::kFloat32 ? CUBLAS_COMPUTE_32F
                                                                   : CUBLAS_COMPUTE_32F_FAST_TF32);
    }
    EXPECT_EQ(seen, 2);
  }
}

TEST_F(CudaLibraryRecurrentTest, OwnKernelsWhereItCannot) {
  const RecurrentAttrs attrs{.cell = RecurrentCell::kGru, .hidden = kUnits, .reset_after = false};
  const HostTensor x = Data(attrs);
  const HostTensorMap params = Params(attrs);
  const auto results = [&] {
    Executor layer = LayerOf(attrs);
    return Step(layer, params, x);
  };
  const int64_t before = fake::Matmuls();
  const std::vector<HostTensor> by_library = results();
  const int64_t after = fake::Matmuls();
  EXPECT_GT(after, before);
  fake::FindNoAlgorithm(true);
  const std::vector<HostTensor> refused = results();
  cuda::UseCublasLt(nullptr);
  const std::vector<HostTensor> without = results();
  EXPECT_EQ(fake::Matmuls(), after);
  EXPECT_EQ(refused, without);
  for (size_t i = 0; i < without.size(); ++i) ExpectNear(by_library[i], without[i], 1e-5, "by the library");
}

// What weights that are no numbers make of a step stays with samples that have it.
TEST_F(CudaLibraryRecurrentTest, SamplesThatAreOverAreNotTouched) {
  const RecurrentAttrs attrs{.cell = RecurrentCell::kTanh, .hidden = kUnits, .initial = true, .lengths = true};
  const auto result = Recurrent({Variable("x"), Variable("w"), Variable("h"), Variable("n")}, attrs, "y");
  Executor layer(
      MakeLoss(result[1]),
      {.device = Cuda(0),
       .inputs = {{"x", {kSteps, kSamples, kUnits}}, {"h", {kSamples, kUnits}}, {"n", {kSamples}, DType::kInt32}},
       .grad_req = std::map<std::string, GradReq>{{"h", GradReq::kWrite}}});
  HostTensor w = Uniform({kUnits, kUnits}).Cast(DType::kFloat32);
  w.data<float>()[0] = std::numeric_limits<float>::infinity();
  layer.SetParams({{"w", w}});
  const int64_t before = fake::Matmuls();
  layer.Forward({{"x", Data(attrs)},
                 {"h", Uniform({kSamples, kUnits}).Cast(DType::kFloat32)},
                 {"n", Values({kSamples}, {0, 2}).Cast(DType::kInt32)}});
  layer.Backward();
  const HostTensor gradient = layer.Gradient("h");
  EXPECT_GT(fake::Matmuls(), before);
  for (int64_t i = 0; i < kUnits; ++i) EXPECT_EQ(gradient.data<float>()[static_cast<size_t>(i)], 1) << i;
}

// By the library's products and by one kernel: it is said by the node's name, and the next batch is done.
TEST_F(CudaLibraryRecurrentTest, LengthsThatCannotBe) {
  for (const int64_t hidden : {int64_t{2}, kUnits}) {
    const RecurrentAttrs attrs{.cell = RecurrentCell::kTanh, .hidden = hidden, .lengths = true};
    Executor layer(
        Recurrent({Variable("x"), Variable("w"), Variable("n")}, attrs, "y")[0],
        {.device = Cuda(0), .inputs = {{"x", {kSteps, kSamples, hidden}}, {"n", {kSamples}}}, .for_training = false});
    layer.SetParams(Params(attrs));
    const auto message = [&](double length) {
      layer.ArgumentArray("n").CopyFrom(Values({kSamples}, {2, length}).Cast(DType::kFloat32));  // unseen by others
      layer.Forward({{"x", Data(attrs)}});
      return MessageOf<DataError>([&] { layer.Output(0); });
    };
    for (const char* bad : {"1.5", "4", "-1", "nan"}) {
      const std::string said = message(std::stod(bad));
      EXPECT_NE(said.find(fmt::format("\"y\": {} is not in 0..3", bad)), std::string::npos) << said;
      EXPECT_EQ(message(3), "nothing was thrown");
    }
  }
}

TEST_F(CudaLibraryRecurrentTest, NaNPassesRelu) {
  for (const int64_t hidden : {int64_t{2}, kUnits}) {
    const RecurrentAttrs attrs{.cell = RecurrentCell::kRelu, .hidden = hidden};
    Executor layer(Recurrent({Variable("x"), Variable("w")}, attrs, "y")[0],
                   {.device = Cuda(0), .inputs = {{"x", {1, 1, hidden}}}, .for_training = false});
    layer.SetParams({{"w", Uniform({hidden, hidden}).Cast(DType::kFloat32)}});
    HostTensor x(DType::kFloat32, {1, 1, hidden});
    x.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    x.data<float>()[1] = -1;
    layer.Forward({{"x", x}});
    const HostTensor y = layer.Output(0);
    EXPECT_TRUE(std::isnan(y.data<float>()[0])) << hidden;
    EXPECT_EQ(y.data<float>()[1], 0) << hidden;
  }
}

// Captured and one by one: the same bits.
TEST_F(CudaLibraryRecurrentTest, GraphsGiveTheSame) {
  const RecurrentAttrs attrs{.hidden = kUnits};
  const HostTensorMap params = Params(attrs);
  std::vector<HostTensor> batches, results[2];
  for (int step = 0; step < 4; ++step) batches.push_back(Data(attrs));
  for (const bool graphs : {false, true}) {
    cuda::UseGraphs(graphs);
    Executor layer = LayerOf(attrs);
    const int64_t launches = fake::GraphLaunches();
    for (const HostTensor& batch : batches) {
      for (HostTensor& result : Step(layer, params, batch)) results[graphs].push_back(std::move(result));
    }
    EXPECT_EQ(fake::GraphLaunches() > launches, graphs);
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace bindery
