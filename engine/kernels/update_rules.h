// The built-in update rules (engine/kernels/update_loop.h says what one is made of). w: the weight, s: its states,
// c: the numbers that Prepare gives, of which c[0] is the learning rate and c[1] the weight decay. What is constexpr
// nvcc compiles for GPUs, too.
#pragma once

#include <cmath>
#include <tuple>

#include "engine/kernels/update.h"

namespace bindery::update_rules {

// w = w - lr (g + wd w)
struct Sgd {
  static constexpr int kStates = 0;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) { return {a.learning_rate, a.weight_decay}; }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T*) {
    w -= c[0] * (g + c[1] * w);
  }
};

// The learning rate inside the momentum, as MXNet has it:
//   m = momentum m - lr (g + wd w);  w = w + m
struct Momentum {
  static constexpr int kStates = 1;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    return {a.learning_rate, a.weight_decay, a.settings[0]};
  }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    s[0] = c[2] * s[0] - c[0] * (g + c[1] * w);
    w += s[0];
  }
};

// Nesterov's momentum, which looks ahead:
//   m = momentum m - lr (g + wd w);  w = w + momentum m - lr (g + wd w)
struct Nesterov {
  static constexpr int kStates = 1;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    return {a.learning_rate, a.weight_decay, a.settings[0]};
  }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    const T step = c[0] * (g + c[1] * w);
    s[0] = c[2] * s[0] - step;
    w += c[2] * s[0] - step;
  }
};

// Kingma and Ba, with G = g + wd w, t the number of the update:
//   m = beta1 m + (1 - beta1) G;  v = beta2 v + (1 - beta2) G^2
//   w = w - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
struct Adam {
  static constexpr int kStates = 2;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    const double beta1 = a.settings[0], beta2 = a.settings[1], t = static_cast<double>(a.step);
    return {a.learning_rate / (1 - std::pow(beta1, t)), a.weight_decay, beta1, 1 - beta1, beta2, 1 - beta2,
            1 / std::sqrt(1 - std::pow(beta2, t)),      a.settings[2]};
  }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    g += c[1] * w;
    s[0] = c[2] * s[0] + c[3] * g;
    s[1] = c[4] * s[1] + c[5] * (g * g);
    w -= c[0] * s[0] / (c[6] * std::sqrt(s[1]) + c[7]);
  }
};

using All = std::tuple<Sgd, Momentum, Nesterov, Adam>;

}  // namespace bindery::update_rules
