// The tables' own rules, users' kernels and reorders.
#include "executor/kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "engine/team.h"
#include "symbol/ops.h"
#include "symbol/ops/rules.h"
#include "tests/executor/blocked_format.h"
#include "tests/executor/graph_runner.h"

namespace bindery {
namespace {

// An operator of one input, made for users' kernels.
const OpDef& NewOp(const std::string& name) {
  AddOp({.name = name, .doc = "a user's", .infer = rule::Like(0)});
  return FindOp(name);
}

KernelSpec SpecOf(const OpDef& op, const ValueType& type, int threads = 1) {
  KernelSpec spec;
  spec.op = &op;
  spec.node_name = "node1";
  spec.inputs = spec.outputs = {type};
  spec.input_formats = {Format::Plain()};
  spec.input_is_open = {false};
  spec.output_wishes = {std::nullopt};
  spec.output_used = {true};
  spec.threads = threads;
  return spec;
}

const ValueType kVector{DType::kFloat32, {4}, -1};

Kernel AddOneKernel() {
  return {.implementation = "mine",
          .input_formats = {Format::Plain()},
          .output_formats = {Format::Plain()},
          .inplace = {{0, 0}},
          .bind = [](const KernelArgs& args) -> Call {
            return [x = static_cast<const float*>(args.inputs[0]), y = static_cast<float*>(args.outputs[0])] {
              for (int i = 0; i < 4; ++i) y[i] = x[i] + 1;
            };
          }};
}

template <class F>
std::string MessageOf(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "nothing was thrown";
}

TEST(MakeKernel, RunsAUsersKernelUnderEveryPolicy) {
  const OpDef& op = NewOp("PlusOne");
  AddKernel("PlusOne", [](const KernelSpec&) { return std::optional(AddOneKernel()); });
  const Symbol y = Apply(op, {}, {Variable("x")}, "y");
  for (KernelPolicy policy : {KernelPolicy::kFast, KernelPolicy::kReference}) {
    const RunResult result = RunGraph(y, {{"x", HostTensor::From({4}, {1, 2, 3, 4})}}, {.policy = policy});
    EXPECT_EQ(result.outputs[0], HostTensor::From({4}, {2, 3, 4, 5}));
    EXPECT_EQ(result.implementations.at("y"), "mine");
  }
}

TEST(MakeKernel, SaysWhatIsMissing) {
  const OpDef& op = NewOp("Nobody");
  EXPECT_EQ(MessageOf([&] { MakeKernel(SpecOf(op, kVector), KernelPolicy::kFast); }),
            "no kernel for operator \"Nobody\" on cpu with dtype float32");
  AddKernel("Nobody", [](const KernelSpec&) { return std::optional<Kernel>(); });  // declines
  EXPECT_EQ(MessageOf([&] {
              MakeKernel(SpecOf(op, {DType::kInt8, {4}, -1}), KernelPolicy::kFast);
            }),
            "no kernel for operator \"Nobody\" on cpu with dtype int8");
}

TEST(MakeKernel, ChecksWhatAMakerReturns) {
  int number = 0;
  const auto message = [&](const std::function<void(Kernel&)>& spoil) {
    const std::string name = fmt::format("Spoilt{}", number++);
    const OpDef& op = NewOp(name);
    AddKernel(name, [spoil](const KernelSpec&) {
      Kernel kernel = AddOneKernel();
      spoil(kernel);
      return std::optional(kernel);
    });
    return MessageOf([&] { MakeKernel(SpecOf(op, kVector, 4), KernelPolicy::kFast); });
  };
  EXPECT_EQ(message([](Kernel& k) { k.bind = nullptr; }),
            "the kernel \"mine\" made for operator \"Spoilt0\" (node \"node1\") has no bind function");
  EXPECT_NE(message([](Kernel& k) { k.input_formats.clear(); }).find("one format per input"), std::string::npos);
  EXPECT_NE(message([](Kernel& k) { k.output_formats.resize(2); }).find("one format per output"), std::string::npos);
  EXPECT_NE(message([](Kernel& k) { k.scratch_bytes = -1; }).find("negative"), std::string::npos);
  EXPECT_NE(message([](Kernel& k) { k.threads = 2; }).find("one thread or the whole team"), std::string::npos);
  EXPECT_NE(message([](Kernel& k) { k.inplace = {{1, 0}}; }).find("in-place pair"), std::string::npos);
}

TEST(AddKernel, RefusesASecondOne) {
  const auto maker = [](const KernelSpec&) { return std::optional(AddOneKernel()); };
  AddKernel("Once", maker);
  EXPECT_EQ(MessageOf([&] { AddKernel("Once", maker); }), "operator \"Once\" has a kernel already");
  EXPECT_EQ(MessageOf([&] { AddKernel("Convolution", maker); }), "operator \"Convolution\" has a built-in kernel");
  EXPECT_EQ(MessageOf([&] { AddKernel("Empty", nullptr); }), "the kernel maker given for operator \"Empty\" is empty");
}

// --- Reorders: there and back gives the same bits, whatever the bits are, and padding is zero (which the runner
// watches).

std::vector<uint8_t> Reordered(const std::vector<uint8_t>& bytes, DType dtype, const Shape& shape, const Format& from,
                               const Format& to, KernelPolicy policy, int threads = 1) {
  const TeamScope team(threads);
  const Kernel kernel = MakeReorder(dtype, shape, from, to, threads, policy);
  // Aligned as kernels may expect.
  HostTensor source(DType::kUInt8, {static_cast<int64_t>(bytes.size())});
  std::ranges::copy(bytes, source.data<uint8_t>().data());
  HostTensor target = HostTensor::Full(DType::kUInt8, {StorageBytes(to, dtype, shape)}, 0xab);
  HostTensor scratch(DType::kUInt8, {kernel.scratch_bytes});
  void* const in[] = {source.raw()};
  void* const out[] = {target.raw()};
  const StepBlock step;
  kernel.bind({in, out, scratch.raw(), &step})();
  const auto* begin = static_cast<const uint8_t*>(target.raw());
  return {begin, begin + target.bytes()};
}

class ReorderTest : public testing::TestWithParam<KernelPolicy> {};
INSTANTIATE_TEST_SUITE_P(Tables, ReorderTest, testing::Values(KernelPolicy::kReference, KernelPolicy::kFast),
                         [](const auto& info) { return info.param == KernelPolicy::kFast ? "fast" : "reference"; });

TEST_P(ReorderTest, ThereAndBack) {
  const Shape shape{3, 20, 2, 5};
  const Format formats[] = {Format::Plain(),
                            Format::ChannelsLast(4),
                            Format::Permuted({1, 0, 3, 2}),
                            Blocked({0, 1, 2, 3}, {{1, 8}}),
                            Blocked({0, 1, 2, 3}, {{1, 16}}),
                            Blocked({0, 1, 2, 3}, {{1, 8}, {0, 8}}),
                            Blocked({2, 3, 1, 0}, {{0, 2}, {1, 4}, {0, 2}})};
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kInt8}) {
    std::vector<uint8_t> bytes(shape.Elements() * SizeOf(dtype));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37 % 113);  // no NaN in any type
    for (const Format& to : formats) {
      const std::vector<uint8_t> there = Reordered(bytes, dtype, shape, Format::Plain(), to, GetParam());
      EXPECT_EQ(Reordered(there, dtype, shape, to, Format::Plain(), GetParam()), bytes) << ToString(to);
      for (const Format& third : formats) {  // and from one to another, as the reference does it
        EXPECT_EQ(Reordered(there, dtype, shape, to, third, GetParam()),
                  Reordered(bytes, dtype, shape, Format::Plain(), third, KernelPolicy::kReference))
            << ToString(to) << " to " << ToString(third);
      }
    }
  }
}

// Their bits are those of bfloat16 numbers that some instructions take for 0.
TEST_P(ReorderTest, KeepsSmallNumbersOf16Bits) {
  const Shape shape{6, 6, 42, 32};
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < shape.Elements(); ++i) bytes.insert(bytes.end(), {static_cast<uint8_t>(i * 37 % 113), 0});
  for (const DType dtype : {DType::kInt16, DType::kUInt16, DType::kFloat16}) {
    for (const Format& to : {Format::ChannelsLast(4), Blocked({0, 1, 2, 3}, {{1, 8}})}) {
      const std::vector<uint8_t> there = Reordered(bytes, dtype, shape, Format::Plain(), to, GetParam(), 2);
      EXPECT_EQ(Reordered(there, dtype, shape, to, Format::Plain(), GetParam(), 2), bytes)
          << ToString(dtype) << " in " << ToString(to);
    }
  }
}

TEST_P(ReorderTest, PlacesAndPadding) {
  // (1, 3, 1, 2) in blocks of 4 channels: [h][w][c], the fourth channel zero.
  const HostTensor x = HostTensor::From({6}, {1, 2, 3, 4, 5, 6});
  const auto* begin = static_cast<const uint8_t*>(x.raw());
  const std::vector<uint8_t> y = Reordered({begin, begin + x.bytes()}, DType::kFloat32, {1, 3, 1, 2}, Format::Plain(),
                                           Blocked({0, 1, 2, 3}, {{1, 4}}), GetParam());
  const float expected[] = {1, 3, 5, 0, 2, 4, 6, 0};
  ASSERT_EQ(y.size(), sizeof(expected));
  EXPECT_EQ(std::memcmp(y.data(), expected, sizeof(expected)), 0);
}

TEST_P(ReorderTest, EmptyAndOpaque) {
  EXPECT_TRUE(
      Reordered({}, DType::kFloat32, {0, 3, 2, 2}, Format::Plain(), Format::ChannelsLast(4), GetParam()).empty());
  EXPECT_EQ(
      MessageOf([] { MakeReorder(DType::kUInt8, {1}, Format::Opaque(8, "dnnl"), Format::Plain(), 1, GetParam()); }),
      "a value cannot be reordered from opaque:dnnl:8 to plain");
}

}  // namespace
}  // namespace bindery
