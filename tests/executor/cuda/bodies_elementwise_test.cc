// Bodies of elementwise kernels and of random numbers (bodies_fixture.h).
#include <utility>

#include "executor/kernels/cuda/elementwise_body.h"
#include "executor/kernels/cuda/random_body.h"
#include "symbol/ops/activation.h"
#include "symbol/ops/curve.h"
#include "symbol/ops/dropout.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/loss.h"
#include "symbol/ops/random.h"
#include "symbol/ops/shape_ops.h"
#include "tests/engine/cuda/cpu_block.h"
#include "tests/executor/cuda/bodies_fixture.h"

namespace bindery::cuda {
namespace {

struct Named {
  const char* name;
  unsigned flags;
};
template <class... F>
std::vector<Named> AllOf(std::type_identity<FunctionList<F...>>) {
  return {Named{F::kName, F::kFlags}...};
}

// Of tensors of one shape, or stretched to the first's.
MapArgs ArgsOf(Family family, int function, const std::vector<const HostTensor*>& in) {
  MapArgs args{.family = family, .function = function, .inputs = static_cast<int32_t>(in.size())};
  const Shape& shape = in[0]->shape();
  args.compute = in[0]->dtype();
  args.grid = GridOver(shape);
  args.flat = shape.rank() <= 1;
  for (size_t k = 0; k < in.size(); ++k) {
    args.in[k] = From(*in[k]);
    args.strides[k] = StridesIn(shape, in[k]->shape());
    args.mixed |= in[k]->dtype() != args.compute;
  }
  return args;
}

// 43 numbers: ten packs of neighbours, and three; moderate ones, and what is special among floats.
HostTensor Mixed(DType dtype, double sign) {
  HostTensor x = Uniform({43}, -3, 3);
  const bool is_float = IsFloat(dtype);
  const double specials[] = {0, 1, -1, 2, is_float ? NAN : 3, is_float ? INFINITY : 4, is_float ? -INFINITY : 5, 0.5};
  for (size_t i = 0; i < std::size(specials); ++i) x.Set(static_cast<int64_t>(5 * i), sign * specials[i]);
  return x.Cast(dtype);
}

void ExpectFunctions(Family family, const std::vector<Named>& functions, size_t inputs) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16, DType::kInt32,
                            DType::kUInt8, DType::kUInt64}) {
    const bool is_unsigned = dtype == DType::kUInt8 || dtype == DType::kUInt64;
    std::vector<HostTensor> in = {Mixed(dtype, 1), Mixed(dtype, -1)};
    for (int64_t i = 0; i < 43; ++i) in[1].Set(i, in[1].At((i * 7 + 3) % 43));  // all kinds of pairs
    in.resize(inputs);
    std::vector<const HostTensor*> operands;
    for (const HostTensor& x : in) operands.push_back(&x);
    for (size_t place = 0; place < functions.size(); ++place) {
      const auto [name, flags] = functions[place];
      SCOPED_TRACE(name);
      if ((flags & kFloatsOnly) && !IsFloat(dtype)) continue;
      if ((flags & kIntegersOnly) && IsFloat(dtype)) continue;
      // The reference saturates (IntegersWrapAround).
      if (is_unsigned && (flags & kWraps)) continue;
      if (dtype == DType::kInt32 && std::string_view(name) == "Power") continue;
      MapArgs args = ArgsOf(family, static_cast<int>(place), operands);
      args.saturates = (flags & kSaturates) != 0;
      ExpectOut(args, Reference(ElementwiseOp(name), {}, in)[0]);
    }
  }
}

TEST(CudaElementwiseBodiesTest, Functions) {
  ExpectFunctions(Family::kUnary, AllOf(std::type_identity<native::UnaryFunctions>()), 1);
  ExpectFunctions(Family::kPredicate, AllOf(std::type_identity<native::Predicates>()), 1);
  ExpectFunctions(Family::kBinary, AllOf(std::type_identity<native::BinaryFunctions>()), 2);
  ExpectFunctions(Family::kRelation, AllOf(std::type_identity<native::Relations>()), 2);
}

TEST(CudaElementwiseBodiesTest, IntegersWrapAround) {
  const HostTensor a = Values({5}, {0, 200, 250, 3, 16}).Cast(DType::kUInt8);
  const HostTensor b = Values({5}, {1, 2, 250, 0, 2}).Cast(DType::kUInt8);
  const auto check = [&](const char* name, std::initializer_list<double> expected) {
    const size_t place = native::BinaryFunctions::Find(name);
    ExpectOut(ArgsOf(Family::kBinary, static_cast<int>(place), {&a, &b}), Values({5}, expected).Cast(DType::kUInt8));
  };
  check("Add", {1, 202, 244, 3, 18});
  check("Sub", {255, 198, 0, 3, 14});
  check("Mul", {0, 144, 36, 0, 32});
  check("Power", {0, 64, 0, 1, 0});
}

TEST(CudaElementwiseBodiesTest, ActivationsAndCurves) {
  for (const DType dtype : kFloats) {
    const HostTensor x = Mixed(dtype, 1), dy = Uniform({43}, 0.5, 2).Cast(dtype);
    for (int type = 0; type < 5; ++type) {
      SCOPED_TRACE(type);
      const ActivationAttrs attrs{static_cast<ActivationType>(type + 1)};
      const HostTensor y = Reference(ActivationOp(), attrs, {x})[0];
      ExpectOut(ArgsOf(Family::kActivation, type, {&x}), y);
      ExpectOut(ArgsOf(Family::kActivationGrad, type, {&dy, &y}), Reference(ActivationGradOp(), attrs, {dy, y})[0]);
    }
    for (int type = 0; type <= static_cast<int>(CurveType::kSmoothL1); ++type) {
      SCOPED_TRACE(type);
      const CurveAttrs attrs{static_cast<CurveType>(type), 0.25, 0.75};
      MapArgs args = ArgsOf(Family::kCurve, type, {&x}), grad = ArgsOf(Family::kCurveGrad, type, {&dy, &x});
      args.a = grad.a = attrs.alpha;
      args.b = grad.b = attrs.beta;
      ExpectOut(args, Reference(CurveOp(), attrs, {x})[0]);
      ExpectOut(grad, Reference(CurveGradOp(), attrs, {dy, x})[0]);
    }
  }
}

TEST(CudaElementwiseBodiesTest, StretchedOperands) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt16}) {
    const std::vector<HostTensor> in = {Integers({2, 3, 5}, -9, 9).Cast(dtype), Integers({3, 1}, 1, 9).Cast(dtype)};
    const size_t place = native::BinaryFunctions::Find("Sub");
    ExpectOut(ArgsOf(Family::kBinary, static_cast<int>(place), {&in[0], &in[1]}), Reference(Sub.op(), {}, in)[0]);
  }
}

TEST(CudaElementwiseBodiesTest, CastsSaturate) {
  const HostTensor numbers = Values({9}, {0, -0.7, 1.5, 300, -300, 1e30, NAN, INFINITY, -INFINITY});
  for (const DType from : kFloats) {
    const HostTensor x = numbers.Cast(from);
    for (const DType to : {DType::kFloat32, DType::kBFloat16, DType::kInt8, DType::kUInt16, DType::kInt64,
                           DType::kUInt64, DType::kBool}) {
      MapArgs args = ArgsOf(Family::kCast, 0, {&x});
      args.saturates = 1;
      ExpectOut(args, Reference(CastOp(), CastAttrs{to}, {x})[0]);
    }
  }
}

// Integers keep their low bits.
TEST(CudaElementwiseBodiesTest, CastsOfIntegers) {
  for (const DType from : {DType::kInt8, DType::kInt16, DType::kInt64, DType::kUInt64, DType::kBool}) {
    const HostTensor x = Values({5}, {0, 1, -1, 200, 70000}).Cast(from);
    for (const DType to : {DType::kInt8, DType::kUInt8, DType::kInt32, DType::kUInt32, DType::kUInt64, DType::kBool,
                           DType::kFloat32, DType::kFloat16}) {
      MapArgs args = ArgsOf(Family::kCast, 0, {&x});
      args.saturates = 1;
      ExpectOut(args, Reference(CastOp(), CastAttrs{to}, {x})[0]);
    }
  }
}

TEST(CudaElementwiseBodiesTest, Gradients) {
  for (const DType dtype : kFloats) {
    const HostTensor x = Mixed(dtype, 1), y = Uniform({43}, -2, 2).Cast(dtype), z = AwayFromZero({43}).Cast(dtype);
    ExpectOut(ArgsOf(Family::kAddReluGrad, 0, {&x, &y, &z}), Reference(AddReluGradOp(), {}, {x, y, z})[0]);
    const LinearRegressionOutputAttrs attrs{.grad_scale = 2.5};
    MapArgs args = ArgsOf(Family::kDifference, 0, {&x, &y});
    args.a = attrs.grad_scale;
    ExpectOut(args, Reference(LinearRegressionOutputGradOp(), attrs, {x, y})[0]);
    HostTensor unknown = x;
    unknown.Set(7, NAN);
    args = ArgsOf(Family::kDifferenceSign, 0, {&unknown, &y});
    args.a = attrs.grad_scale;
    ExpectOut(args, Reference(MAERegressionOutputGradOp(), attrs, {unknown, y})[0]);

    const HostTensor mask = Integers({43}, 0, 1).Cast(DType::kUInt8);
    args = ArgsOf(Family::kMasked, 0, {&y, &mask});
    args.a = 1 / (1 - 0.25);
    ExpectOut(args, Reference(DropoutGradOp(), DropoutAttrs{.p = 0.25}, {y, mask})[0]);
  }
}

// f(x + y + z), with and without f.
TEST(CudaElementwiseBodiesTest, Sums) {
  const HostTensor x = Mixed(DType::kFloat32, 1), y = Uniform({43}, -2, 2).Cast(DType::kFloat32);
  const auto relu = static_cast<int>(ActivationType::kRelu) - 1;
  for (const int function : {-1, relu}) {
    HostTensor expected = x;
    for (int64_t i = 0; i < 43; ++i) {
      const double sum = x.At(i) + 2 * y.At(i);
      expected.Set(i, function == relu && sum < 0 ? 0 : sum);
    }
    ExpectOut(ArgsOf(Family::kSum, function, {&x, &y, &y}), expected);
  }
}

TEST(CudaElementwiseBodiesTest, Where) {
  const Shape shape = {2, 3, 5};
  const HostTensor condition = Integers({3, 1}, 0, 1).Cast(DType::kBool);
  for (const DType dtype : {DType::kInt8, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    const HostTensor a = Integers(shape, 0, 50).Cast(dtype), b = Integers({5}, 51, 99).Cast(dtype);
    WhereArgs args{.unit = static_cast<int32_t>(SizeOf(dtype)),
                   .grid = GridOver(shape),
                   .condition = condition.raw(),
                   .in = {a.raw(), b.raw()},
                   .strides = {StridesIn(shape, {3, 1}), StridesIn(shape, shape), StridesIn(shape, {5})}};
    HostTensor expected = a;
    for (int64_t i = 0; i < a.elements(); ++i) {
      if (condition.At(i / 5 % 3) == 0) expected.Set(i, b.At(i % 5));
    }
    ExpectWrites({expected}, 1, [&](const std::vector<Target>& out, int blocks, int threads) {
      args.out = out[0].data;
      RunOnCpu(args, blocks, threads);
    });
  }
}

// ---- random numbers ----

constexpr StepBlock kStep = {.seed = 7, .step = (uint64_t{3} << 32) + 5, .micro_batch = 2, .sample_offset = 11};

// Of the node "y"; of (outer, samples, inner) if samples draw their own.
DrawArgs DrawOf(Draw what, int64_t n) {
  return {.what = what, .words = {.step = &kStep, .inner = Divisor(n), .name_length = 1, .name = "y"}, .n = n};
}

TEST(CudaRandomBodiesTest, NumbersOfTheNode) {
  const RunOptions options{.step = kStep};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    const DrawAttrs drawn{.shape = {5, 9}, .dtype = dtype};
    DrawArgs args = DrawOf(Draw::kUniform, 45);
    args.a = -2;
    args.b = 5;
    ExpectOut(args, Reference(RandomUniformOp(), RandomUniformAttrs{drawn, -2, 3}, {}, 1, options)[0]);
    args.what = Draw::kNormal;
    ExpectOut(args, Reference(RandomNormalOp(), RandomNormalAttrs{drawn, -2, 5}, {}, 1, options)[0]);
  }
  for (const DType dtype : {DType::kInt64, DType::kInt8, DType::kFloat32}) {
    DrawArgs args = DrawOf(Draw::kInt, 45);
    args.low = -3;
    args.range = 13;
    ExpectOut(args,
              Reference(RandomIntOp(), RandomIntAttrs{{.shape = {5, 9}, .dtype = dtype}, -3, 10}, {}, 1, options)[0]);
  }
}

// The second axis has the samples, each with words of its own.
TEST(CudaRandomBodiesTest, SamplesDrawTheirOwn) {
  const HostTensor p = Uniform({2, 4, 3}, 0, 1).Cast(DType::kFloat32);
  const RunOptions options{.step = kStep, .batch_axes = {{"x0", 1}}};
  DrawArgs args = DrawOf(Draw::kBernoulli, 24);
  args.words.per_sample = 1;
  args.words.samples = Divisor(4);
  args.words.inner = Divisor(3);
  args.in = From(p);
  ExpectOut(args, Reference(BernoulliOp(), BernoulliAttrs{}, {p}, 1, options)[0]);
  args.what = Draw::kUniform;
  args.b = 1;
  ExpectOut(args, Reference(RandomUniformOp(), RandomUniformAttrs{{.like = true}}, {p}, 1, options)[0]);
}

// Of few categories, and of more than a block looks at together.
TEST(CudaRandomBodiesTest, Categories) {
  for (const int64_t categories : {int64_t{6}, 2 * SumWeightsArgs::kRun + 77}) {
    for (const bool logits : {false, true}) {
      const HostTensor weights = Uniform({5, categories}, logits ? -2 : -0.1, 1).Cast(DType::kFloat32);
      const MultinomialAttrs attrs{.sample_size = 11, .logits = logits};
      std::vector<double> sums(static_cast<size_t>(weights.elements()));
      SumWeightsArgs sum{.logits = logits, .categories = categories, .in = From(weights), .sums = sums.data()};
      DrawArgs args = DrawOf(Draw::kMultinomial, 55);
      args.range = static_cast<uint64_t>(categories);
      args.sums = sums.data();
      args.draws = 11;
      const HostTensor expected = Reference(MultinomialOp(), attrs, {weights}, 1, {.step = kStep})[0];
      for (const int by_block : {0, 1}) {
        sum.rows = {5, by_block};
        ExpectWrites({expected}, 1, [&](const std::vector<Target>& out, int blocks, int threads) {
          std::ranges::fill(sums, -1);
          RunOnCpu(sum, blocks, threads);
          args.out = out[0];
          RunOnCpu(args, blocks, threads);
        });
      }
    }
  }
}

// One of the rest weighs what is no number, or more than any: then the last is drawn, or whatever comes before it.
TEST(CudaRandomBodiesTest, CategoriesOfNoNumber) {
  for (const bool logits : {false, true}) {
    for (const double unusual : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
      HostTensor weights = Uniform({3, 9}, 0, 1).Cast(DType::kFloat32);
      weights.Set(9 + 4, unusual);
      std::vector<double> sums(27);
      DrawArgs args = DrawOf(Draw::kMultinomial, 21);
      args.range = 9;
      args.sums = sums.data();
      args.draws = 7;
      RunOnCpu(SumWeightsArgs{.logits = logits, .rows = {3}, .categories = 9, .in = From(weights), .sums = sums.data()},
               2, 7);
      const MultinomialAttrs attrs{.sample_size = 7, .logits = logits};
      ExpectOut(args, Reference(MultinomialOp(), attrs, {weights}, 1, {.step = kStep})[0]);
    }
  }
}

// Elements decide for themselves, those of all samples and of each: a sample ends within four words.
TEST(CudaRandomBodiesTest, DropoutOfElements) {
  for (const DType dtype : kFloats) {
    const HostTensor x = Uniform({3, 4, 7}).Cast(dtype);
    DropoutArgs args{
        .words = DrawOf(Draw::kMask, 84).words, .n = 84, .least = std::ceil(0.3 * 0x1p24), .a = 1 / 0.7, .x = From(x)};
    RunOptions options{.step = kStep};
    for (const bool per_sample : {false, true}) {
      if (per_sample) {
        options.batch_axes = {{"x0", 1}};
        args.words.per_sample = 1;
        args.words.samples = Divisor(4);
        args.words.inner = Divisor(7);
      }
      const auto expected = Reference(DropoutOp(), DropoutAttrs{.p = 0.3}, {x}, 2, options);
      ExpectWrites(expected, 1, [&](const std::vector<Target>& out, int blocks, int threads) {
        args.y = out[0];
        args.mask = static_cast<uint8_t*>(out[1].data);
        RunOnCpu(args, blocks, threads);
      });
      ExpectWrites({expected[0]}, 1, [&](const std::vector<Target>& out, int blocks, int threads) {
        args.y = out[0];
        args.mask = nullptr;
        RunOnCpu(args, blocks, threads);
      });
    }
  }
}

// A mask along the middle axis, and what it leaves.
TEST(CudaRandomBodiesTest, Dropout) {
  for (const DType dtype : kFloats) {
    const Shape shape = {4, 6, 5};
    const HostTensor x = Uniform(shape).Cast(dtype);
    const auto expected = Reference(DropoutOp(), DropoutAttrs{.p = 0.3, .axes = {1}}, {x}, 2, {.step = kStep});
    DrawArgs draw = DrawOf(Draw::kMask, 20);
    draw.a = std::ceil(0.3 * 0x1p24);
    DropArgs drop{.grid = GridOver(shape), .mask_strides = StridesIn(shape, {4, 1, 5}), .x = From(x), .a = 1 / 0.7};
    ExpectWrites(expected, 1, [&](const std::vector<Target>& out, int blocks, int threads) {
      draw.out = out[1];
      RunOnCpu(draw, blocks, threads);
      drop.mask = static_cast<const uint8_t*>(out[1].data);
      drop.y = out[0];
      RunOnCpu(drop, blocks, threads);
    });
  }
}

}  // namespace
}  // namespace bindery::cuda
