#include "symbol/ops/random.h"

#include "base/error.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

using rule::Value;

constexpr int64_t kMostExact = int64_t{1} << 53;

bool IsLike(const DrawAttrs& attrs) { return attrs.like; }

void CheckDraw(const DrawAttrs& attrs) {
  static const std::vector<int64_t> kNone;
  rule::CheckExtentsAttr({attrs.shape, kNone});
}

void ExpectFloat(std::optional<DType> dtype) {
  if (dtype && !IsFloat(*dtype)) Throw<ShapeError>("gives floating point numbers, not {}", *dtype);
}

template <class Attrs>
void InferDraw(InferContext& c) {
  const DrawAttrs& attrs = c.attrs<Attrs>();
  const Value data = c.in(0), output = c.out(0);
  if (!attrs.like || attrs.own_dtype) output.SetDType(attrs.dtype);
  if (!attrs.own_dtype) rule::SameDType({data, output});
  if (!attrs.like) output.Set(Shape(std::span<const int64_t>(attrs.shape)));
  rule::SameShape({data, output});
  data.Carry(output);
  if (!std::is_same_v<Attrs, RandomIntAttrs>) ExpectFloat(output.dtype());
}

template <class Attrs>
OpDef Draw(std::string name, std::string doc, void (*check)(const AnyAttrs&)) {
  doc += fmt::format(" In C++ {0}({{{{.shape = {{5}}}}}}, name), or of data's shape {0}Like(data, {{}}, name).", name);
  return {.name = std::move(name),
          .doc = std::move(doc),
          .attrs_type = &AttrsOf<Attrs>(),
          .inputs = {Optional("data", [](const AnyAttrs& any) { return IsLike(any.get<Attrs>()); })},
          .infer = InferDraw<Attrs>,
          .check = check,
          .gradient = rule::NoGradient,
          .is_random = true};
}

template <class Attrs>
Symbol Like(const OpDef& op, const Symbol& data, Attrs attrs, const std::string& name) {
  attrs.like = true;
  return Apply(op, attrs, {data}, name);
}

}  // namespace

Symbol RandomUniformLike(const Symbol& data, RandomUniformAttrs attrs, const std::string& name) {
  return Like(RandomUniformOp(), data, std::move(attrs), name);
}
Symbol RandomNormalLike(const Symbol& data, RandomNormalAttrs attrs, const std::string& name) {
  return Like(RandomNormalOp(), data, std::move(attrs), name);
}
Symbol RandomIntLike(const Symbol& data, RandomIntAttrs attrs, const std::string& name) {
  return Like(RandomIntOp(), data, std::move(attrs), name);
}

const OpDef& RandomUniformOp() {
  static const OpDef op =
      Draw<RandomUniformAttrs>("RandomUniform", "Numbers low <= x < high, all as likely.", [](const AnyAttrs& any) {
        const auto& attrs = any.get<RandomUniformAttrs>();
        CheckDraw(attrs);
        rule::CheckFinite("low", attrs.low);
        rule::CheckFinite("high", attrs.high);
        rule::CheckFinite("high - low", attrs.high - attrs.low);
      });
  return op;
}

const OpDef& RandomNormalOp() {
  static const OpDef op = Draw<RandomNormalAttrs>(
      "RandomNormal", "Numbers of a normal distribution of this mean and deviation.", [](const AnyAttrs& any) {
        const auto& attrs = any.get<RandomNormalAttrs>();
        CheckDraw(attrs);
        rule::CheckFinite("mean", attrs.mean);
        rule::CheckFinite("scale", attrs.scale);
      });
  return op;
}

const OpDef& RandomIntOp() {
  static const OpDef op =
      Draw<RandomIntAttrs>("RandomInt", "Whole numbers low .. high - 1, all as likely.", [](const AnyAttrs& any) {
        const auto& attrs = any.get<RandomIntAttrs>();
        CheckDraw(attrs);
        if (attrs.low >= -kMostExact && attrs.low < attrs.high && attrs.high <= kMostExact) return;
        Throw<ModelError>("low must be less than high, and both at most 2^53, got {} and {}", attrs.low, attrs.high);
      });
  return op;
}

const OpDef& BernoulliOp() {
  static const OpDef op = {
      .name = "Bernoulli",
      .doc = "1 with the probability that data gives, else 0.",
      .attrs_type = &AttrsOf<BernoulliAttrs>(),
      .infer =
          [](InferContext& c) {
            const auto& attrs = c.attrs<BernoulliAttrs>();
            if (attrs.own_dtype) c.out(0).SetDType(attrs.dtype);
            if (!attrs.own_dtype) rule::SameDType({c.in(0), c.out(0)});
            rule::SameShape({c.in(0), c.out(0)});
            c.in(0).Carry(c.out(0));
          },
      .gradient = rule::NoGradient,
      .is_random = true,
  };
  return op;
}

const OpDef& MultinomialOp() {
  static const OpDef op = {
      .name = "Multinomial",
      .doc = "Categories drawn with the probabilities of each row.",
      .attrs_type = &AttrsOf<MultinomialAttrs>(),
      .infer =
          [](InferContext& c) {
            const auto& attrs = c.attrs<MultinomialAttrs>();
            const Value data = c.in(0), output = c.out(0);
            output.SetDType(attrs.dtype);
            data.Set(rule::Unknown(2));
            output.Set({(*data.shape())[0], attrs.sample_size});
            data.Set({(*output.shape())[0], kUnknownDim});
            if (data.Known() && (*data.shape())[1] == 0 && output.shape()->Elements() != 0) {
              Throw<ShapeError>("there are no categories in {}", *data.shape());
            }
            data.Carry(output, [](int axis) { return axis == 0 ? 0 : -1; });
          },
      .check =
          [](const AnyAttrs& any) { rule::CheckAtLeast("sample_size", any.get<MultinomialAttrs>().sample_size, 0); },
      .gradient = rule::NoGradient,
      .is_random = true,
  };
  return op;
}

}  // namespace bindery
