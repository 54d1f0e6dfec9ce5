// Chains of elementwise operators as one kernel: the bits that the operators give one by one, and what NVIDIA's own
// NVRTC makes of their sources. Of images and their files: fused_image_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/cuda/library.h"
#include "executor/executor.h"
#include "executor/kernels/cuda/fused_image.h"
#include "executor/kernels/cuda/fused_source.h"
#include "executor/kernels/native_functions.h"
#include "symbol/ops.h"
#include "tests/executor/cuda/fake/nvrtc.h"
#include "tests/executor/values.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

namespace fake = cuda::fake;
using cuda::FusedProgram;

class CudaFusedTest : public testing::Test {
 protected:
  ~CudaFusedTest() override {
    cuda::UseNvrtc(fake::Nvrtc());
    cuda::UseFusedFolder("");
    fake::RefuseSources(false);
    unsetenv("BINDERY_NVRTC");
  }
};

struct Results {
  std::vector<HostTensor> values;      // the outputs, then the gradients of all inputs
  std::vector<std::string> operators;  // of the plan's calls
  std::vector<std::string> implementations;
};

// A training step of `outputs` on a GPU, by what it is bound to.
Results StepOf(const Symbol& outputs, const HostTensorMap& inputs, DType dtype, int gpu = 0) {
  ExecutorOptions options{.device = Cuda(gpu)};
  std::map<std::string, GradReq> requests;
  for (const auto& [name, value] : inputs) {
    const std::string layout = std::string("CDE").substr(0, static_cast<size_t>(value.shape().rank()));
    options.inputs.push_back({.name = name, .shape = value.shape(), .dtype = dtype, .layout = layout});
    requests[name] = GradReq::kWrite;
  }
  options.grad_req = requests;
  Executor executor(outputs, options);
  HostTensorMap values;
  for (const auto& [name, value] : inputs) values[name] = value.Cast(dtype);
  executor.Forward(values);
  HostTensorMap gradients;
  for (size_t i = 0; i < outputs.entries().size(); ++i) {
    const HostTensor head = executor.Output(static_cast<int>(i));
    gradients[executor.plan().outputs[i].name] = Uniform(head.shape()).Cast(head.dtype());
  }
  executor.Backward(gradients);
  Results results;
  for (size_t i = 0; i < outputs.entries().size(); ++i) results.values.push_back(executor.Output(static_cast<int>(i)));
  for (const auto& [name, value] : inputs) results.values.push_back(executor.Gradient(name));
  for (const PlanCall& call : executor.plan().calls) {
    results.operators.push_back(call.op);
    results.implementations.push_back(call.implementation);
  }
  return results;
}

int CountCallsOf(const Executor& executor, const std::string& implementation) {
  return static_cast<int>(std::ranges::count(executor.plan().calls, implementation, &PlanCall::implementation));
}
int CountFused(const Results& results) {
  return static_cast<int>(std::ranges::count(results.implementations, "fused"));
}

// Fused and one by one: the same bits, NaN included. Returns what the fused plan is.
Results ExpectSame(const Symbol& outputs, const HostTensorMap& inputs, DType dtype) {
  const int64_t before = fake::FusedLaunched();
  const Results fused = StepOf(outputs, inputs, dtype);
  EXPECT_GT(fake::FusedLaunched(), before);
  cuda::UseNvrtc(nullptr);
  const Results plain = StepOf(outputs, inputs, dtype);
  cuda::UseNvrtc(fake::Nvrtc());
  EXPECT_EQ(CountFused(plain), 0);
  EXPECT_GT(CountFused(fused), 0);
  EXPECT_LT(fused.operators.size(), plain.operators.size());
  EXPECT_EQ(fused.values.size(), plain.values.size());
  for (size_t i = 0; i < plain.values.size(); ++i) {
    const HostTensor &a = fused.values[i], &b = plain.values[i];
    EXPECT_EQ(a.dtype(), b.dtype());
    EXPECT_EQ(a.shape(), b.shape());
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<size_t>(b.bytes())), 0) << ToString(dtype) << ", value " << i;
  }
  return fused;
}

constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16};

TEST_F(CudaFusedTest, GivesTheSameBits) {
  const Symbol x = Variable("x"), y = Variable("y"), row = Variable("row"), one = Variable("one");
  Symbol z = Tanh(x * y + row);
  z = Curve(z * one, {.type = CurveType::kGelu});
  z = Exp(Sigmoid(z - y) * 0.3) / (1.5 + Square(x));
  const HostTensorMap inputs = {
      {"x", Uniform({3, 5, 7})}, {"y", Uniform({3, 5, 7})}, {"row", Uniform({5, 1})}, {"one", Uniform({1})}};
  for (const DType dtype : kFloats) ExpectSame(z, inputs, dtype);
}

// Packs that reach beyond the end, beyond the end of an axis that an operand is stretched along, or neither: of operands
// that are stretched along the last axis, or along others.
TEST_F(CudaFusedTest, ExtentsThatDoNotDivide) {
  const Symbol x = Variable("x"), column = Variable("column"), row = Variable("row"), one = Variable("one");
  const Symbol y = Tanh(x * row + column) * one;
  for (const Shape& shape : {Shape({1, 1}), Shape({1, 3}), Shape({2, 4}), Shape({3, 5}), Shape({4, 6}), Shape({5, 8}),
                             Shape({64, 65}), Shape({33, 128})}) {
    const HostTensorMap inputs = {
        {"x", Uniform(shape)}, {"column", Uniform({shape[0], 1})}, {"row", Uniform({shape[1]})}, {"one", Uniform({1})}};
    for (const DType dtype : kFloats) ExpectSame(y, inputs, dtype);
  }
}

// What plain kernels pass on, chains pass on.
TEST_F(CudaFusedTest, PassesOnWhatIsNotANumber) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  const Symbol x = Variable("x"), y = Variable("y");
  const HostTensorMap inputs = {{"x", Values({6}, {kNaN, 1, -kInf, kInf, -0.0, -2})},
                                {"y", Values({6}, {1, kNaN, 2, kInf, 0, -0.0})}};
  for (const DType dtype : kFloats) {
    const Results results = ExpectSame(Relu(Maximum(x, y) * Minimum(y, x)) + x, inputs, dtype);
    EXPECT_TRUE(std::isnan(results.values[0].At(0)));
    EXPECT_TRUE(std::isnan(results.values[0].At(1)));
  }
}

// Every function that there is, with the one behind it that makes a chain of it.
TEST_F(CudaFusedTest, EveryFunction) {
  const Symbol x = Variable("x"), y = Variable("y");
  const HostTensorMap inputs = {{"x", Uniform({40}, 0.1, 0.9)}, {"y", Uniform({40}, 0.1, 0.9)}};
  for (const CurveType type :
       {CurveType::kLeakyRelu, CurveType::kSelu, CurveType::kCelu, CurveType::kGelu, CurveType::kGeluTanh,
        CurveType::kSwish, CurveType::kHardSigmoid, CurveType::kHardSwish, CurveType::kHardTanh,
        CurveType::kThresholdedRelu, CurveType::kShrink, CurveType::kMish, CurveType::kSmoothL1}) {
    ExpectSame(Curve(x - y, {.type = type, .alpha = 0.3, .beta = 0.7}) * y, inputs, DType::kFloat32);
  }
  for (const ActivationType type : {ActivationType::kRelu, ActivationType::kSigmoid, ActivationType::kTanh,
                                    ActivationType::kSoftRelu, ActivationType::kSoftSign}) {
    ExpectSame(Activation(x - y, {type}) * y, inputs, DType::kFloat16);
  }
  ExpectSame(Power(x, y) + PRelu(x - y, y), inputs, DType::kFloat32);
  ExpectSame(Erf(Log1p(x)) * Sqrt(Abs(Negative(y))), inputs, DType::kFloat64);
}

// A value that somebody else reads, as a head, or a reduction, or two chains, is in memory.
TEST_F(CudaFusedTest, ValuesThatOthersReadStay) {
  const Symbol x = Variable("x");
  const Symbol a = Exp(x) * 2.0, b = Tanh(a) + 1.0;
  const HostTensorMap inputs = {{"x", Uniform({4, 6})}};
  const Results heads = ExpectSame(Group({a, b}), inputs, DType::kFloat32);
  EXPECT_EQ(heads.values[0].shape(), Shape({4, 6}));
  ExpectSame(Sum(b, {.axes = {1}, .keepdims = true}) + Square(b) * 3.0, inputs, DType::kFloat32);
}

// A value that only the chain reads, though twice, is none.
TEST_F(CudaFusedTest, ValuesThatTheChainReadsTwice) {
  const Symbol x = Variable("x"), t = Exp(x);
  const Symbol y = t / (1.0 + t) - Square(Tanh(t) * t);
  ExpectSame(y, {{"x", Uniform({3, 9})}}, DType::kFloat32);
  Executor executor(y, {.device = Cuda(0), .inputs = {{"x", {3, 9}}}, .for_training = false});
  EXPECT_EQ(CountCallsOf(executor, "fused"), 1);
}

// Longer ones are several.
TEST_F(CudaFusedTest, LongChains) {
  Symbol z = Variable("x");
  for (int i = 0; i < 40; ++i) z = i % 2 == 0 ? Tanh(z) : z * 1.25;
  const Results results = ExpectSame(z, {{"x", Uniform({33})}}, DType::kFloat32);
  EXPECT_GE(CountFused(results), 3);
  Symbol sum = Variable("x0") * 2.0;
  HostTensorMap inputs = {{"x0", Uniform({33})}};
  for (int i = 1; i < 20; ++i) {
    const std::string name = "x" + std::to_string(i);
    sum = sum + Exp(Variable(name));
    inputs[name] = Uniform({33});
  }
  EXPECT_GE(CountFused(ExpectSame(sum, inputs, DType::kFloat32)), 2);
}

// What a chain reads is alive until its end, and may be more than what it saves: then only those are joined that keep
// no more alive.
TEST_F(CudaFusedTest, TakesNoMoreMemory) {
  const Symbol x = Variable("x"), a = Softmax(x), b = Softmax(x * 2.0), c = Softmax(x * 3.0);
  const Symbol h = Tanh(a * b + c);
  Symbol branch = Softmax(Sqrt(h));
  for (int i = 0; i < 3; ++i) branch = Softmax(Concat({branch, x}, {.axis = 1}) * 0.5);
  branch = Sum(branch, {.axes = {1}, .keepdims = true});
  for (const Symbol& y : {h + branch, Tanh(a * b + c) + Softmax(Softmax(x * 4.0))}) {
    ExecutorOptions options{.device = Cuda(0), .inputs = {{"x", {64, 64}}}, .for_training = false};
    const Executor fused(y, options);
    cuda::UseNvrtc(nullptr);
    const Executor plain(y, options);
    cuda::UseNvrtc(fake::Nvrtc());
    EXPECT_GT(CountCallsOf(fused, "fused"), 0);
    EXPECT_LE(fused.plan().arena_bytes, plain.plan().arena_bytes);
  }
}

// A plan names what a call does, and says how.
TEST_F(CudaFusedTest, ThePlanNamesTheOperators) {
  ExecutorOptions options{.device = Cuda(0), .inputs = {{"x", {5}}}, .for_training = false};
  Executor executor(Tanh(Exp(Variable("x"), "first"), "last"), options);
  ASSERT_EQ(executor.plan().calls.size(), 1u);
  EXPECT_EQ(executor.plan().calls[0].op, "Exp+Activation");
  EXPECT_EQ(executor.plan().calls[0].node, "first+last");
  EXPECT_EQ(executor.plan().calls[0].implementation, "fused");
  options.switches.fusion = false;
  EXPECT_EQ(Executor(Tanh(Exp(Variable("x"))), options).plan().calls.size(), 2u);
}

// What NVRTC refuses, or where it is left out, operators are launched one by one.
TEST_F(CudaFusedTest, WithoutNvrtc) {
  const HostTensorMap inputs = {{"x", Uniform({11})}};
  const Symbol x = Variable("x"), y = Cos(Sin(Atan(x)));
  fake::RefuseSources(true);
  const Results refused = StepOf(y, inputs, DType::kFloat32);
  EXPECT_EQ(CountFused(refused), 0);
  cuda::UseFusedFolder("");
  fake::RefuseSources(false);
  setenv("BINDERY_NVRTC", "no", 1);
  EXPECT_EQ(CountFused(StepOf(y, inputs, DType::kFloat32)), 0);
  setenv("BINDERY_NVRTC", "maybe", 1);
  EXPECT_EQ(MessageOf<Error>([&] { StepOf(y, inputs, DType::kFloat32); }),
            "Error: BINDERY_NVRTC must be yes or no, got \"maybe\"");
  unsetenv("BINDERY_NVRTC");
  const Results fused = StepOf(y, inputs, DType::kFloat32);
  EXPECT_GT(CountFused(fused), 0);
  EXPECT_EQ(fused.values, refused.values);
}

// ---- by themselves ----

// x * stretched + one of 16-bit floats, in memory that begins anywhere: what it must be, and nothing beside it.
TEST_F(CudaFusedTest, OperandsThatAreNotAligned) {
  using enum FusedProgram::Reads;
  constexpr int kColumns = 8, kMost = 3 * kColumns;
  const size_t add = native::BinaryFunctions::Find("Add"), mul = native::BinaryFunctions::Find("Mul");
  const std::string source =
      cuda::FusedSource({.inputs = {{DType::kFloat16, kSame}, {DType::kFloat32, kStretched}, {DType::kBFloat16, kOne}},
                         .steps = {{"BinaryFunctions", mul, DType::kFloat32, {0, 1}},
                                   {"BinaryFunctions", add, DType::kBFloat16, {3, 2}}}});
  alignas(16) float16 x[kMost + 4];
  alignas(16) float row[kColumns + 4];
  for (int i = 0; i < kMost + 4; ++i) x[i] = float16(0.25f * static_cast<float>(i));
  for (int i = 0; i < kColumns + 4; ++i) row[i] = static_cast<float>(i - 5);
  const bfloat16 one(0.5f);
  for (const int n : {kMost, 2 * kColumns, 7, 4, 1}) {
    for (int from = 0; from < 4; ++from) {
      for (int to = 0; to < 4; ++to) {
        alignas(16) bfloat16 y[kMost + 8];
        std::ranges::fill(y, bfloat16(-1.0f));
        const int columns = n % kColumns == 0 ? kColumns : n;
        fake::RunFused(source, {.n = n,
                                .rank = 2,
                                .extents = {n / columns, columns},
                                .strides = {{}, {0, 1}},
                                .in = {x + from, row + 3 - from, &one},
                                .out = y + to});
        for (int i = 0; i < kMost + 8; ++i) {
          const int at = i - to;
          const bool is_result = at >= 0 && at < n;
          const float expected =
              is_result ? static_cast<float>(x[from + at]) * row[3 - from + at % columns] + 0.5f : -1;
          ASSERT_EQ(static_cast<float>(y[i]), static_cast<float>(bfloat16(expected))) << n << ", " << from << ", " << i;
        }
      }
    }
  }
}

// All functions of all lists, of inputs of all kinds.
FusedProgram Everything(bool in_double) {
  using enum FusedProgram::Reads;
  const DType own = in_double ? DType::kFloat64 : DType::kFloat32;
  const std::vector<DType> types = in_double ? std::vector{own} : std::vector{own, DType::kBFloat16, DType::kFloat16};
  FusedProgram program{.in_double = in_double};
  for (const auto reads : {kSame, kOne, kStretched}) {
    program.inputs.push_back({types[program.inputs.size() % types.size()], reads});
  }
  const auto add = [&](const char* list, size_t size, size_t operands) {
    for (size_t place = 0; place < size; ++place) {
      const int last = static_cast<int>(program.inputs.size() + program.steps.size()) - 1;
      std::vector<int> of = {last, static_cast<int>(place % 3)};
      of.resize(operands);
      program.steps.push_back({list, place, types[place % types.size()], of, 0.1, -1e-30});
    }
  };
  add("UnaryFunctions", native::UnaryFunctions::kSize, 1);
  add("BinaryFunctions", native::BinaryFunctions::kSize, 2);
  add("ActivationFunctions", native::ActivationFunctions::kSize, 1);
  add("ActivationGradFunctions", native::ActivationGradFunctions::kSize, 2);
  add("CurveFunctions", native::CurveFunctions::kSize, 1);
  add("CurveFunctions", native::CurveFunctions::kSize, 2);
  add(nullptr, types.size(), 1);
  return program;
}

// Three operands of 16-bit floats, one of them stretched.
FusedProgram Short() {
  using enum FusedProgram::Reads;
  const DType half = DType::kBFloat16;
  return {.inputs = {{half, kSame}, {half, kStretched}, {half, kSame}},
          .steps = {{"BinaryFunctions", native::BinaryFunctions::Find("Mul"), half, {0, 1}},
                    {"BinaryFunctions", native::BinaryFunctions::Find("Add"), half, {3, 2}}}};
}

// Null where there is none, or it cannot be run here; says so.
cuda::NvrtcPtr NvidiasOwn(std::string* problem) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  *problem = "it leaks memory of its own";
  return nullptr;
#endif
  try {
    return cuda::OpenNvrtc("libnvrtc.so.13");
  } catch (const DeviceError& error) {
    *problem = error.message();
    return nullptr;
  }
}

TEST_F(CudaFusedTest, NvidiasOwnCompilesTheSources) {
  std::string problem;
  const cuda::NvrtcPtr api = NvidiasOwn(&problem);
  if (!api) GTEST_SKIP() << problem;
  const std::pair<FusedProgram, int> compiled[] = {
      {Everything(false), 90}, {Everything(true), 90}, {Short(), 80}, {Short(), 100}};
  for (const auto& [program, capability] : compiled) {
    const std::string image = cuda::CompileFused(*api, FusedSource(program), capability);
    EXPECT_EQ(image.substr(1, 3), "ELF");
    EXPECT_NE(image.find("bindery_fused"), std::string::npos);
  }
  const std::string message =
      MessageOf<DeviceError>([&] { cuda::CompileFused(*api, "extern \"C\" __global__ void f() { g(); }", 90); });
  EXPECT_NE(message.find("nvrtcCompileProgram for sm_90: NVRTC_ERROR_COMPILATION"), std::string::npos) << message;
  EXPECT_NE(message.find("identifier \"g\" is undefined"), std::string::npos) << message;
}

// Each operand and the result by one access, of 8 bytes, where they are aligned; and nothing of it by way of memory.
TEST_F(CudaFusedTest, NvidiasOwnMakesOneAccessOfAPack) {
  std::string problem;
  const cuda::NvrtcPtr api = NvidiasOwn(&problem);
  if (!api) GTEST_SKIP() << problem;
  const LibraryFunctions find = cuda::OpenFunctions("libnvrtc.so.13");
  cuda::NvrtcResult (*get_ptx_size)(cuda::NvrtcProgram*, size_t*) = find("nvrtcGetPTXSize");
  cuda::NvrtcResult (*get_ptx)(cuda::NvrtcProgram*, char*) = find("nvrtcGetPTX");
  std::vector<const char*> names, texts;
  for (const cuda::FusedHeader& header : cuda::FusedHeaders()) {
    names.push_back(header.name);
    texts.push_back(header.text);
  }
  cuda::NvrtcProgram* program = nullptr;
  ASSERT_EQ(api->create_program(&program, FusedSource(Short()).c_str(), "short.cu", static_cast<int>(names.size()),
                                texts.data(), names.data()),
            cuda::kNvrtcSuccess);
  const char* const options[] = {"-std=c++20", "-default-device", "--gpu-architecture=compute_80"};
  ASSERT_EQ(api->compile_program(program, 3, options), cuda::kNvrtcSuccess);
  size_t bytes = 0;
  ASSERT_EQ(get_ptx_size(program, &bytes), cuda::kNvrtcSuccess);
  std::string ptx(bytes, '\0');
  ASSERT_EQ(get_ptx(program, ptx.data()), cuda::kNvrtcSuccess);
  api->destroy_program(&program);
  const auto count = [&](const std::string& what) {
    int found = 0;
    for (size_t at = ptx.find(what); at != std::string::npos; at = ptx.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("ld.global.v4.u16"), 3) << ptx;
  EXPECT_EQ(count("st.global.v4.u16"), 1);
  EXPECT_EQ(count(".local"), 0);
}

}  // namespace
}  // namespace bindery
