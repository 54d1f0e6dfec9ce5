// What is particular to the fast CPU kernels: formats to and from oneDNN, the choice of layouts, reorders, and that
// usual networks never fall back to the reference. That each kernel computes the right thing is CheckOperator's
// business.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/isa.h"
#include "executor/kernel.h"
#include "executor/kernel_table.h"
#include "executor/kernels/cpu/dnnl_util.h"
#include "executor/kernels/cpu/layout.h"
#include "symbol/ops.h"
#include "tests/executor/blocked_format.h"
#include "tests/executor/kernels/run_kernel.h"

namespace bindery::cpu {
namespace {

const Format kOIhw8i8o = Blocked({0, 1, 2, 3}, {{1, 8}, {0, 8}});

TEST(Layout, ConvolutionsFollowTheTable) {
  const int block = SimdBlock();
  const Format blocked = ChannelBlocked(4, block), last = Format::ChannelsLast(4);
  const auto expect = [](int64_t in, int64_t out, int64_t groups, const Format& input, const Format& output) {
    const Shape data{2, in, 8, 8}, result{2, out, 8, 8};
    const ActivationFormats floats = PreferredActivationFormats(DType::kFloat32, data, result, groups);
    EXPECT_EQ(floats.input, input);
    EXPECT_EQ(floats.output, output);
    const bool amx = Allows(dnnl::cpu_isa::avx512_core_amx);
    const ActivationFormats halves = PreferredActivationFormats(DType::kBFloat16, data, result, groups);
    EXPECT_EQ(halves.input, amx ? Format::ChannelsLast(4) : input);
    EXPECT_EQ(halves.output, amx ? Format::ChannelsLast(4) : output);
  };
  expect(64, 128, 1, blocked, blocked);
  expect(3, 64, 1, Format::Plain(), blocked);
  expect(1, 20, 1, last, last);
  expect(20, 50, 1, last, last);
  expect(4, 64, 1, last, last);
  expect(64, 64, 64, blocked, blocked);  // depth-wise
  expect(4L * block, 4L * block, 4, blocked, blocked);
  expect(8, 8, 4, last, last);
}

TEST(Layout, CanonicalIsPlainWhereTheBytesAre) {
  const Format last = Format::ChannelsLast(4), blocks = ChannelBlocked(4, 8);
  EXPECT_TRUE(Canonical(last, {2, 1, 5, 6}).is_plain());
  EXPECT_TRUE(Canonical(last, {2, 7, 1, 1}).is_plain());
  EXPECT_TRUE(Canonical(blocks, {2, 16, 1, 1}).is_plain());
  EXPECT_TRUE(Canonical(Format::Permuted({1, 0}), {1, 5}).is_plain());
  EXPECT_EQ(Canonical(last, {2, 3, 4, 5}), last);
  EXPECT_EQ(Canonical(blocks, {2, 16, 2, 1}), blocks);
  EXPECT_EQ(Canonical(blocks, {2, 20, 1, 1}), blocks);  // padded
}

TEST(Layout, ChannelsAreFoundWhereverTheyLie) {
  ChannelView view;
  ASSERT_TRUE(ViewChannels(Format::Plain(), {2, 24, 3, 5}, 1, &view));
  EXPECT_TRUE(view.planes);
  EXPECT_EQ(view.rows, 15);
  ASSERT_TRUE(ViewChannels(Format::ChannelsLast(4), {2, 24, 3, 5}, 1, &view));
  EXPECT_EQ(view.lanes, 24);
  EXPECT_EQ(view.rows, 30);
  ASSERT_TRUE(ViewChannels(ChannelBlocked(4, 8), {2, 24, 3, 5}, 1, &view));
  EXPECT_EQ(view.groups, 3);
  EXPECT_EQ(view.rows, 15);
  ASSERT_TRUE(ViewChannels(Format::Plain(), {6, 24}, 1, &view));
  EXPECT_EQ(view.rows, 6);
  EXPECT_FALSE(ViewChannels(ChannelBlocked(4, 8), {2, 20, 3, 5}, 1, &view));
  EXPECT_FALSE(ViewChannels(kOIhw8i8o, {16, 16, 3, 3}, 1, &view));
}

TEST(DnnlUtil, FormatsSurviveTheWayThere) {
  const Shape shapes[] = {{16, 24, 3, 5}, {20, 13, 3, 3}, {2, 1, 4, 4}, {5, 9, 1, 1}};
  const Format formats[] = {Format::Plain(),
                            Format::ChannelsLast(4),
                            ChannelBlocked(4, 8),
                            ChannelBlocked(4, 16),
                            kOIhw8i8o,
                            Blocked({1, 0, 2, 3}, {{0, 16}}),
                            Blocked({0, 2, 3, 1}, {{1, 4}, {0, 8}, {1, 2}})};
  for (const Shape& shape : shapes) {
    for (const Format& format : formats) {
      const auto desc = ToDesc(format, DType::kFloat32, shape);
      ASSERT_TRUE(desc);
      EXPECT_EQ(static_cast<int64_t>(desc->get_size()), StorageBytes(format, DType::kFloat32, shape))
          << ToString(format) << ToString(shape);
      const auto back = FromDesc(*desc, shape);
      ASSERT_TRUE(back) << ToString(format) << ToString(shape);
      // The order of axes of extent 1 may come back differently; the elements must not.
      EXPECT_EQ(StorageElements(*back, shape), StorageElements(format, shape));
      for (int64_t i : {0, 1}) {
        const int64_t index[] = {shape[0] - 1, i % shape[1], shape[2] - 1, 0};
        EXPECT_EQ(ElementOffset(*back, shape, index), ElementOffset(format, shape, index))
            << ToString(format) << ToString(shape);
      }
    }
  }
  EXPECT_FALSE(ToDesc(Format::Opaque(8, "x"), DType::kFloat32, {2}));
  EXPECT_FALSE(ToDesc(Format::Plain(), DType::kFloat64, {2}));
}

TEST(DnnlUtil, GroupedWeights) {
  using dnnl::memory;
  const auto of = [](memory::dims dims, memory::format_tag tag, const Shape& shape) {
    return FromGroupedDesc(memory::desc(dims, memory::data_type::f32, tag), shape);
  };
  EXPECT_TRUE(of({2, 8, 4, 3, 3}, memory::format_tag::goihw, {16, 4, 3, 3})->is_plain());
  EXPECT_EQ(of({2, 16, 8, 3, 3}, memory::format_tag::gOIhw8i8o, {32, 8, 3, 3}), kOIhw8i8o);
  EXPECT_EQ(of({24, 1, 1, 3, 3}, memory::format_tag::Goihw8g, {24, 1, 3, 3}), Blocked({0, 1, 2, 3}, {{0, 8}}));
  EXPECT_FALSE(of({2, 12, 8, 3, 3}, memory::format_tag::gOIhw8i8o, {24, 8, 3, 3}));  // padded within the groups
}

TEST(Reorder, BetweenAllFormats) {
  const Format formats[] = {Format::Plain(), Format::ChannelsLast(4), ChannelBlocked(4, 8), ChannelBlocked(4, 16),
                            kOIhw8i8o};
  for (const Shape& shape : {Shape{3, 13, 4, 5}, Shape{16, 8, 1, 3}, Shape{2, 1, 3, 3}}) {
    for (const Format& from : formats) {
      for (const Format& to : formats) {
        for (DType dtype : {DType::kFloat32, DType::kUInt8, DType::kBFloat16, DType::kFloat64}) {
          const auto kernel = CpuKernels().reorder()(dtype, shape, from, to, 2);
          ASSERT_TRUE(kernel) << ToString(from) << " " << ToString(to);
          const int64_t size = SizeOf(dtype);
          std::vector<std::byte> source(static_cast<size_t>(StorageBytes(from, dtype, shape))),
              target(static_cast<size_t>(StorageBytes(to, dtype, shape)), std::byte{7});
          std::vector<std::byte> scratch(static_cast<size_t>(kernel->scratch_bytes));
          const auto each = [&](const auto& f) {
            int64_t count = 0;
            for (int64_t n = 0; n < shape[0]; ++n)
              for (int64_t c = 0; c < shape[1]; ++c)
                for (int64_t h = 0; h < shape[2]; ++h)
                  for (int64_t w = 0; w < shape[3]; ++w) {
                    const int64_t index[] = {n, c, h, w};
                    f(count++ % 101 + 1, ElementOffset(from, shape, index), ElementOffset(to, shape, index));
                  }
          };
          each([&](int64_t value, int64_t at, int64_t) {
            const float f = static_cast<float>(value);
            const uint64_t u = static_cast<uint64_t>(value) * 0x0101010101010101u;
            std::memcpy(&source[at * size], size == 4 ? static_cast<const void*>(&f) : &u, size);
          });
          void* in = source.data();
          void* out = target.data();
          kernel->bind({{&in, 1}, {&out, 1}, scratch.data(), nullptr})();
          int64_t elements = 0;
          each([&](int64_t, int64_t, int64_t at) {
            elements += std::memcmp(&target[at * size], std::vector<std::byte>(size).data(), size) != 0;
          });
          EXPECT_EQ(elements, shape.Elements());
          each([&](int64_t, int64_t at, int64_t to_at) {
            ASSERT_EQ(std::memcmp(&target[to_at * size], &source[at * size], size), 0)
                << ToString(from) << " " << ToString(to);
            std::memset(&target[to_at * size], 0, size);
          });
          for (std::byte b : target) ASSERT_EQ(b, std::byte{0}) << "padding of " << ToString(to);
        }
      }
    }
  }
}

// The kernel of an operator for values in these formats.
Kernel Make(const OpDef& op, AnyAttrs attrs, std::vector<Shape> inputs, std::vector<Shape> outputs,
            std::vector<Format> formats = {}, Mode mode = Mode::kTrain, DType dtype = DType::kFloat32) {
  KernelSpec spec{.op = &op, .attrs = attrs, .node_name = "node"};
  for (const Shape& shape : inputs) spec.inputs.push_back({.dtype = dtype, .shape = shape, .batch_axis = 0});
  for (const Shape& shape : outputs) spec.outputs.push_back({.dtype = dtype, .shape = shape, .batch_axis = 0});
  formats.resize(inputs.size());
  spec.input_formats = formats;
  spec.input_is_open.resize(inputs.size());
  spec.output_wishes.resize(outputs.size());
  spec.output_used.assign(outputs.size(), true);
  spec.mode = mode;
  return MakeKernel(spec, KernelPolicy::kFast);
}

struct ConvolutionShape {
  int64_t in, size, out, kernel, stride, pad;
};
// Every convolution of LeNet, ResNet-20 and ResNet-50, by kind.
const ConvolutionShape kConvolutions[] = {
    {1, 28, 20, 5, 1, 0},   {20, 12, 50, 5, 1, 0},   {3, 32, 16, 3, 1, 1},    {16, 32, 16, 3, 1, 1},
    {16, 32, 32, 3, 2, 1},  {16, 32, 32, 1, 2, 0},   {64, 8, 64, 3, 1, 1},    {3, 224, 64, 7, 2, 3},
    {64, 56, 256, 1, 1, 0}, {256, 56, 512, 1, 2, 0}, {128, 56, 128, 3, 2, 1}, {512, 7, 2048, 1, 1, 0},
    {512, 7, 512, 3, 1, 1},
};

// A convolution of two samples and its gradients.
struct ConvolutionKernels {
  Kernel forward, data, weight;
};
ConvolutionKernels MakeConvolution(const ConvolutionShape& c, DType dtype) {
  const ConvolutionAttrs attrs{
      .num_filter = c.out, .kernel = {c.kernel, c.kernel}, .stride = {c.stride, c.stride}, .pad = {c.pad, c.pad}};
  const int64_t size = (c.size + 2 * c.pad - c.kernel) / c.stride + 1;
  const Shape x = {2, c.in, c.size, c.size}, y = {2, c.out, size, size}, w = {c.out, c.in, c.kernel, c.kernel},
              b = {c.out};
  const auto make = [&](const OpDef& op, AnyAttrs of, std::vector<Shape> inputs, std::vector<Shape> outputs) {
    return Make(op, std::move(of), std::move(inputs), std::move(outputs), {}, Mode::kTrain, dtype);
  };
  return {make(ConvolutionOp(), attrs, {x, w, b}, {y}),
          make(ConvolutionGradDataOp(), ConvolutionGradDataAttrs{attrs, {c.size, c.size}}, {y, w}, {x}),
          make(ConvolutionGradWeightOp(), attrs, {y, x}, {w, b})};
}

TEST(FastKernels, UsualConvolutionsNeverUseSlowLoops) {
  for (const ConvolutionShape& c : kConvolutions) {
    const auto [forward, data, weight] = MakeConvolution(c, DType::kFloat32);
    for (const Kernel* kernel : {&forward, &data, &weight}) {
      if (kernel == &data && c.in <= 3) continue;  // nobody wants the gradient of an image
      const bool is_fast = kernel->implementation.starts_with("dnnl ") || kernel->implementation.starts_with("direct");
      EXPECT_TRUE(is_fast) << kernel->implementation;
      EXPECT_EQ(kernel->implementation.find("ref"), std::string::npos)
          << c.in << " to " << c.out << ": " << kernel->implementation;
    }
    // Forward and backward agree on how activations lie, so nothing between layers is reordered; but for SSE4.1 oneDNN
    // has no gradients in blocks of channels.
    if (MachineIsa() == Isa::kBaseline) continue;
    EXPECT_EQ(weight.input_formats[0], forward.output_formats[0]);
    EXPECT_EQ(weight.input_formats[1], forward.input_formats[0]);
  }
}

// Where there is AMX, convolutions and their gradients are computed by it, in layouts that agree.
TEST(FastKernels, UsualConvolutionsOfBFloat16AreComputedByAmx) {
  if (!Allows(dnnl::cpu_isa::avx512_core_amx)) GTEST_SKIP() << "no AMX";
  for (const ConvolutionShape& c : kConvolutions) {
    if (c.kernel == 1 && c.stride > 1) continue;  // AVX-512 BF16 serves these
    const auto [forward, data, weight] = MakeConvolution(c, DType::kBFloat16);
    for (const Kernel* kernel : {&forward, &data, &weight}) {
      if (kernel == &data && c.in <= 3) continue;
      EXPECT_NE(kernel->implementation.find("amx"), std::string::npos)
          << c.in << " to " << c.out << ", " << c.kernel << ": " << kernel->implementation;
    }
    EXPECT_EQ(weight.input_formats[0], forward.output_formats[0]);
    EXPECT_EQ(weight.input_formats[1], forward.input_formats[0]);
    EXPECT_EQ(data.input_formats[0], forward.output_formats[0]);
  }
}

TEST(FastKernels, ChannelwiseOperatorsKeepTheLayout) {
  const Shape x = {2, 64, 8, 8}, c = {64};
  for (const Format& format : {Format::Plain(), Format::ChannelsLast(4), ChannelBlocked(4, SimdBlock())}) {
    const std::vector<Kernel> kernels = {
        Make(BatchNormOp(), BatchNormAttrs{}, {x, c, c, c, c}, {x, c, c}, {format}),
        Make(BatchNormGradOp(), BatchNormAttrs{}, {x, x, c, c, c}, {x, c, c}, {format, format}),
        Make(ActivationOp(), ActivationAttrs{}, {x}, {x}, {format}),
        Make(Add.op(), NoAttrs{}, {x, x}, {x}, {format, format}),
        Make(AddRelu.op(), NoAttrs{}, {x, x}, {x}, {format, format}),
        Make(AddReluGradOp(), NoAttrs{}, {x, x, x}, {x}, {format, format, format}),
        Make(ConcatOp(), ConcatAttrs{}, {x, x}, {{2, 128, 8, 8}}, {format, format}),
        Make(SliceOp(), SliceAttrs{.begin = {64}, .end = {128}, .axes = {1}}, {{2, 128, 8, 8}}, {x}, {format}),
    };
    for (const Kernel& kernel : kernels) {
      EXPECT_NE(kernel.implementation, "reference");
      EXPECT_EQ(kernel.input_formats[0], format) << ToString(format);
      EXPECT_EQ(kernel.output_formats[0], format) << ToString(format);
    }
  }
}

TEST(FastKernels, AStateIsReadByItsOwnFamilyOnly) {
  PoolingAttrs attrs{.kernel = {2, 2}, .stride = {2, 2}};
  const Shape x = {2, 8, 6, 6}, y = {2, 8, 3, 3};
  const Kernel forward = Make(PoolingOp(), attrs, {x}, {y, y}, {Format::ChannelsLast(4)});
  ASSERT_EQ(forward.output_formats[1].kind, Format::Kind::kOpaque);
  const PoolingGradAttrs grad{attrs, {6, 6}};
  const Kernel backward = Make(PoolingGradOp(), grad, {y, y}, {x}, {{}, forward.output_formats[1]});
  EXPECT_EQ(backward.input_formats[0], Format::ChannelsLast(4));  // the layout travels in the state's name
  const Kernel reference = Make(PoolingGradOp(), grad, {y, y}, {x}, {{}, Format::Opaque(2 * 8 * 9 * 4, "reference")});
  EXPECT_EQ(reference.implementation, "reference");
}

// A weight that training packed stays packed when one sample is predicted, forward and backward.
TEST(FastKernels, OneSampleTakesTheWeightAsItLies) {
  const FullyConnectedAttrs attrs{.num_hidden = 512};
  const Shape x64 = {64, 1024}, y64 = {64, 512}, x = {1, 1024}, y = {1, 512}, w = {512, 1024}, b = {512};
  const Format packed = Make(FullyConnectedGradWeightOp(), attrs, {y64, x64}, {w, b}).output_formats[0];
  ASSERT_FALSE(packed.is_plain());
  const Kernel forward = Make(FullyConnectedOp(), attrs, {x, w, b}, {y}, {{}, packed, {}});
  EXPECT_EQ(forward.input_formats[1], packed);
  const Kernel backward = Make(FullyConnectedGradDataOp(), attrs, {y, w}, {x}, {{}, packed});
  EXPECT_EQ(backward.input_formats[1], packed);
  EXPECT_EQ(Make(FullyConnectedOp(), attrs, {x, w, b}, {y}).implementation, "loop");  // plain
}

// Of many outputs and rows, gradients of data are by plain weights where these are stored in blocks.
TEST(FastKernels, GradientsOfManyOutputsTakePlainWeights) {
  bool has_blocks = true;
  const auto takes_plain = [&](int64_t rows, int64_t outputs) {
    const FullyConnectedAttrs attrs{.num_hidden = outputs};
    const Shape x = {rows, 64}, y = {rows, outputs}, w = {outputs, 64}, b = {outputs};
    const Format stored = Make(FullyConnectedGradWeightOp(), attrs, {y, x}, {w, b}).output_formats[0];
    has_blocks = has_blocks && stored.num_blocks > 0;
    return Make(FullyConnectedGradDataOp(), attrs, {y, w}, {x}, {{}, stored}).input_formats[1].is_plain();
  };
  const bool many = takes_plain(256, 4096), fewer_rows = takes_plain(255, 4096), fewer = takes_plain(256, 4032);
  if (!has_blocks) GTEST_SKIP() << "oneDNN has no blocks of weights for this processor";
  EXPECT_TRUE(many);
  EXPECT_FALSE(fewer_rows);
  EXPECT_FALSE(fewer);
}

// In full blocks of weights, as oneDNN wants them with AVX-512, the gradient of a small batch is by a loop of our own.
TEST(FastKernels, GradientsInFullBlocksAreByALoop) {
  struct Case {
    int64_t rows, outputs, columns;
    int block = 64;  // of outputs
    bool has_bias = true;
  };
  const auto spec_of = [](const Case& c, int threads) {
    return KernelSpec{.op = &FullyConnectedGradWeightOp(),
                      .attrs = FullyConnectedAttrs{.num_hidden = c.outputs, .flatten = false},
                      .inputs = {FloatOf({c.rows, 1, c.outputs}), FloatOf({c.rows, 1, c.columns})},
                      .outputs = {FloatOf({c.outputs, c.columns}), FloatOf({c.outputs})},
                      .input_formats = {Format::Plain(), Format::Plain()},
                      .input_is_open = {false, false},
                      .output_wishes = {Blocked({0, 1}, {{1, 16}, {0, c.block}}), std::nullopt},
                      .output_used = {true, c.has_bias},
                      .threads = threads};
  };
  const Case suitable[] = {
      {8, 64, 32},       {2, 192, 64},      {128, 64, 48}, {31, 128, 4096}, {32, 512, 784, 64, false},
      {16, 96, 160, 32}, {17, 144, 336, 48}};
  for (const Case& c : suitable) {
    SCOPED_TRACE(fmt::format("{} rows, {} x {}, blocks of {}", c.rows, c.outputs, c.columns, c.block));
    const KernelSpec spec = spec_of(c, 1);
    const Kernel kernel = MakeKernel(spec, KernelPolicy::kFast), truth = MakeKernel(spec, KernelPolicy::kReference);
    EXPECT_EQ(kernel.implementation, "loop");
    EXPECT_EQ(kernel.output_formats[0], *spec.output_wishes[0]);
    for (size_t output = 0; output < (c.has_bias ? 2U : 1U); ++output) {
      const std::vector<float> expected = RunOnNoise(truth, spec, output), actual = RunOnNoise(kernel, spec, output);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-5F) << output << ", " << i;
      for (const int threads : {2, 3}) {
        EXPECT_EQ(RunOnNoise(MakeKernel(spec_of(c, threads), KernelPolicy::kFast), spec, output), actual) << threads;
      }
    }
  }
  for (const Case& c :
       {Case{129, 64, 16}, Case{64, 65, 16}, Case{64, 64, 17}, Case{2, 512, 1040}, Case{65, 1024, 16}}) {
    EXPECT_NE(MakeKernel(spec_of(c, 1), KernelPolicy::kFast).implementation, "loop")
        << c.rows << " rows, " << c.outputs << " x " << c.columns;
  }
}

// What is not asked for is not computed.
TEST(FastKernels, BiasesAloneNeedNoWeightGradient) {
  KernelSpec spec{.op = &ConvolutionGradWeightOp(),
                  .attrs = ConvolutionAttrs{.num_filter = 16, .kernel = {3, 3}},
                  .node_name = "node"};
  for (const Shape& shape : {Shape{2, 16, 6, 6}, Shape{2, 8, 8, 8}})
    spec.inputs.push_back({.shape = shape, .batch_axis = 0});
  for (const Shape& shape : {Shape{16, 8, 3, 3}, Shape{16}}) spec.outputs.push_back({.shape = shape});
  spec.input_formats = {ChannelBlocked(4, 8), ChannelBlocked(4, 8)};
  spec.input_is_open = {false, false};
  spec.output_wishes.resize(2);
  spec.output_used = {false, true};
  const Kernel kernel = MakeKernel(spec, KernelPolicy::kFast);
  EXPECT_EQ(kernel.implementation, "loop");
  EXPECT_EQ(kernel.input_formats, spec.input_formats);  // no reorder, neither of what is read nor of what is not
}

TEST(FastKernels, SmallProductsNeedNoLibrary) {
  EXPECT_EQ(
      Make(FullyConnectedOp(), FullyConnectedAttrs{.num_hidden = 8}, {{8, 8}, {8, 8}, {8}}, {{8, 8}}).implementation,
      "loop");
  EXPECT_EQ(Make(FullyConnectedOp(), FullyConnectedAttrs{.num_hidden = 128}, {{1, 784}, {128, 784}, {128}}, {{1, 128}})
                .implementation,
            "loop");
  EXPECT_TRUE(
      Make(FullyConnectedOp(), FullyConnectedAttrs{.num_hidden = 500}, {{64, 800}, {500, 800}, {500}}, {{64, 500}})
          .implementation.starts_with("dnnl "));
}

}  // namespace
}  // namespace bindery::cpu
