// Initial values of parameters and auxiliary states.
//
//   Initializer("xavier")                          uniform in +-sqrt(3 / ((fan in + fan out) / 2))
//   Initializer("xavier(gaussian, in, 2)")         N(0, 2 / fan in)
//
//   zero, one, constant(value)
//   uniform(s = 0.07)           in +-s
//   uniform(low, high)
//   normal(sigma = 0.01)
//   xavier(distribution = uniform | gaussian, fan = avg | in | out, magnitude = 3)
//                               scale = sqrt(magnitude / fan): the range, or the deviation
//   msra(fan = avg | in | out, slope = 0.25)
//                               xavier(gaussian, fan, 2 / (1 + slope^2)), for rectifiers of that slope
//   he                          xavier(gaussian, in, 2)
//   orthogonal(scale = 1.414)   rows, or columns if they are fewer, at right angles and of length `scale` (Saxe et al.,
//                               2014), of the weight seen as (out, all else); k of them of n elements cost k^2 n
//   bilinear                    (..., height, width): what a Deconvolution interpolates by
//   lstm_bias(forget = 1)       a bias of i, f, g, o: that of f is `forget`, the others 0
// Settings stand in this order, or with their names: "xavier(magnitude=6)".
//
// By patterns of names, the first that fits first, in which * is any text and ? any character:
//   "*_l?_input_bias: lstm_bias, embed_*: normal(0.02), xavier"
// The last one, without a pattern, is for weights that no pattern fits; without it there must be none.
//
// The fans of a weight (out, in, kernel...) are in * kernel area and out * kernel area (Glorot and Bengio, 2010; He et
// al., 2015). A value depends on seed, parameter's name and shape alone: not on the other parameters.
//
// Thread safety: immutable; any thread may use one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/host_tensor.h"
#include "base/philox.h"
#include "symbol/infer.h"
#include "symbol/model.h"
#include "symbol/symbol.h"

namespace bindery {

class ExecutorGroup;

class Initializer {
 public:
  explicit Initializer(std::string_view text = "xavier");  // throws Error with the forms above
  const std::string& text() const { return text_; }

  // Throws ShapeError if the initializer needs fans or planes and the shape has none, ModelError if no pattern fits the
  // name and nothing is for what is left.
  HostTensor Make(const std::string& name, const Shape& shape, DType dtype, uint64_t seed) const;
  bool HasPatternFor(const std::string& name) const;

 private:
  using FillFn = std::function<void(const Shape& shape, PhiloxStream* random, std::span<float> values)>;
  friend class InitializerParser;
  struct Rule {
    std::string pattern, text;  // of names; empty: all
    FillFn fill;
  };
  const Rule* RuleFor(const std::string& name) const;

  std::string text_;
  std::vector<Rule> rules_;
};

// `own`, the variable's annotation "init", wins if it is not empty; then a pattern of `weights`; then the name's
// ending: weight -> `weights`; bias, beta, min, running_mean, moving_mean, moving_inv_var -> 0; gamma, max,
// running_var, moving_var -> 1. Throws Error for other endings.
HostTensor InitialValue(const std::string& name, const Shape& shape, DType dtype, const Initializer& weights,
                        uint64_t seed, std::string_view own = {});

// The values of some variables of a symbol, each with its own annotation.
HostTensorMap InitialValues(const Symbol& symbol, const std::map<std::string, ValueType>& variables,
                            const Initializer& weights, uint64_t seed);

// The network with values of all its variables but `inputs`: data and labels, with their shapes. Throws ShapeError if
// these do not say all others.
Model InitialModel(const Symbol& symbol, const ShapeMap& inputs, const Initializer& weights, uint64_t seed);

// Sets all parameters and auxiliary states of a group: the model's values, and initial ones of what it lacks. Throws
// what ExecutorGroup::SetParams does for values that are not the group's.
void SetInitialParams(ExecutorGroup* group, const Model& values, const Initializer& weights, uint64_t seed);

}  // namespace bindery
