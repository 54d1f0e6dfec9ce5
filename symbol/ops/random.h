// Random numbers. What a sample gets is a function of the run's seed, the node's name, the step, the micro-batch, the
// sample's place in the whole batch and the element's place in the sample alone, as with Dropout: the same on any
// device, in any split and after a resume. Without samples (a fixed shape) all devices draw the same numbers.
//
// Uniform numbers have 24 random bits in every type, those that categories are chosen by 53; rounding to the element
// type may give the upper bound, but of float32 and float64 never that of 0 to 1. No gradient passes.
#pragma once

#include "symbol/op_def.h"

namespace bindery {

// What is drawn: of a shape, or as data has it.
struct DrawAttrs {
  std::vector<int64_t> shape = {};
  DType dtype = DType::kFloat32;
  bool like = false;       // there is data: its shape, samples and element type
  bool own_dtype = false;  // but this element type
  static FieldList Fields() {
    using A = DrawAttrs;
    return {{"shape", &A::shape, "what is drawn, unless as data"},
            {"dtype", &A::dtype, "its element type, unless as data"},
            {"like", &A::like, "draw as data's shape and type are"},
            {"own_dtype", &A::own_dtype, "but of the type `dtype`"}};
  }
};
template <class Bound, int kHigh>
struct DrawBetweenAttrs : DrawAttrs {
  Bound low = 0, high = kHigh;
  static FieldList Fields() {
    using A = DrawBetweenAttrs;
    return Joined(DrawAttrs::Fields(), {{"low", &A::low, "the least"}, {"high", &A::high, "what all are less than"}});
  }
};
using RandomUniformAttrs = DrawBetweenAttrs<double, 1>;
using RandomIntAttrs = DrawBetweenAttrs<int64_t, 2>;
struct RandomNormalAttrs : DrawAttrs {
  double mean = 0, scale = 1;
  static FieldList Fields() {
    using A = RandomNormalAttrs;
    return Joined(DrawAttrs::Fields(),
                  {{"mean", &A::mean, "the mean"}, {"scale", &A::scale, "the standard deviation"}});
  }
};
const OpDef& RandomUniformOp();  // of low <= x < high, but for rounding; floating point
const OpDef& RandomNormalOp();   // Box and Muller (1958); floating point
const OpDef& RandomIntOp();      // low .. high - 1, as whole numbers of any type; bounds up to 2^53
// RandomUniform({{.shape = {2, 3}}, -1, 1}); of data: RandomUniformLike(data).
inline Symbol RandomUniform(const RandomUniformAttrs& attrs, const std::string& name = {}) {
  return Apply(RandomUniformOp(), attrs, {}, name);
}
inline Symbol RandomNormal(const RandomNormalAttrs& attrs, const std::string& name = {}) {
  return Apply(RandomNormalOp(), attrs, {}, name);
}
inline Symbol RandomInt(const RandomIntAttrs& attrs, const std::string& name = {}) {
  return Apply(RandomIntOp(), attrs, {}, name);
}
Symbol RandomUniformLike(const Symbol& data, RandomUniformAttrs attrs = {}, const std::string& name = {});
Symbol RandomNormalLike(const Symbol& data, RandomNormalAttrs attrs = {}, const std::string& name = {});
Symbol RandomIntLike(const Symbol& data, RandomIntAttrs attrs = {}, const std::string& name = {});

struct BernoulliAttrs {
  DType dtype = DType::kFloat32;
  bool own_dtype = false;
  static FieldList Fields() {
    return {{"dtype", &BernoulliAttrs::dtype, "element type of the output"},
            {"own_dtype", &BernoulliAttrs::own_dtype, "else it is data's"}};
  }
};
const OpDef& BernoulliOp();  // 1 with the probability that data gives, else 0
inline constexpr OpFunction<BernoulliAttrs> Bernoulli{BernoulliOp};

struct MultinomialAttrs {
  int64_t sample_size = 1;
  bool logits = false;
  DType dtype = DType::kInt32;
  static FieldList Fields() {
    using A = MultinomialAttrs;
    return {{"sample_size", &A::sample_size, "draws from each row"},
            {"logits", &A::logits, "data holds logarithms of weights, not weights"},
            {"dtype", &A::dtype, "element type of the output"}};
  }
};
// data (N, K), weights of K categories that need not sum to 1, or logarithms -> (N, sample_size) of categories, drawn
// with replacement; of weights that are all 0, or not finite, the last.
const OpDef& MultinomialOp();
inline constexpr OpFunction<MultinomialAttrs> Multinomial{MultinomialOp};

}  // namespace bindery
