// The built-in update rules (engine/kernels/update_loop.h says what one is made of). w: the weight, s: its states,
// c: the numbers that the rule's Prepare gives, in its order: first what multiplies the step (the learning rate, with
// such corrections as do not change from element to element), then the weight decay. What is constexpr nvcc compiles
// for GPUs, too. Its operations round in one way everywhere, so bits should be the same there (it has not run on one
// yet); but for the power of a fraction that Nadam::Prepare takes, whose last bit may differ.
#pragma once

#include <cmath>
#include <tuple>

#include "engine/kernels/faded.h"
#include "engine/kernels/update.h"

namespace bindery::update_rules {

// base^n for n >= 0, by squaring: unlike std::pow the same on all kinds of devices. Its relative error is at most about
// n 2^-53: as large as what the rounding of base itself makes of base^n.
constexpr double Power(double base, int64_t n) {
  double power = 1;
  for (; n > 0; n /= 2, base *= base) {
    if (n % 2 == 1) power *= base;
  }
  return power;
}

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
    s[0] = Faded(c[2] * s[0] - c[0] * (g + c[1] * w));
    w += s[0];
  }
};

// Nesterov's momentum, which looks ahead:
//   m = momentum m - lr (g + wd w);  w = w + momentum m - lr (g + wd w)
struct Nesterov {
  static constexpr int kStates = 1;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) { return Momentum::Prepare(a); }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    const T step = c[0] * (g + c[1] * w);
    s[0] = Faded(c[2] * s[0] - step);
    w += c[2] * s[0] - step;
  }
};

// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2, where c[2] to c[5] are these four factors.
template <class T>
[[gnu::always_inline]] constexpr void MoveMeans(const T* c, T g, T* s) {
  s[0] = Faded(c[2] * s[0] + c[3] * g);
  s[1] = c[4] * s[1] + c[5] * (g * g);
}

// Kingma and Ba, with G = g + wd w, t the number of the update:
//   m = beta1 m + (1 - beta1) G;  v = beta2 v + (1 - beta2) G^2
//   w = w - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
struct Adam {
  static constexpr int kStates = 2;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    const double beta1 = a.settings[0], beta2 = a.settings[1];
    return {a.learning_rate / (1 - Power(beta1, a.step)), a.weight_decay, beta1, 1 - beta1, beta2, 1 - beta2,
            1 / std::sqrt(1 - Power(beta2, a.step)),      a.settings[2]};
  }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    Move(c, g + c[1] * w, w, s);
  }
  // The step by a gradient that has the decay in it.
  template <class T>
  [[gnu::always_inline]] static constexpr void Move(const T* c, T g, T& w, T* s) {
    MoveMeans(c, g, s);
    w -= c[0] * s[0] / (c[6] * std::sqrt(s[1]) + c[7]);
  }
};

// Loshchilov and Hutter: Adam whose weight decay does not go through the averages:
//   w = (1 - lr wd) w;  then Adam's step with G = g
struct AdamW {
  static constexpr int kStates = 2;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    UpdateNumbers numbers = Adam::Prepare(a);
    numbers[1] *= a.learning_rate;
    return numbers;
  }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    w -= c[1] * w;
    Adam::Move(c, g, w, s);
  }
};

// Dozat's Nesterov-accelerated Adam, with G = g + wd w, mu_t = beta1 (1 - 0.5 * 0.96^(schedule_decay t)) and P_t = the
// product of mu_1 to mu_t:
//   m, v as in Adam
//   w = w - lr ((1 - mu_t) / (1 - P_t) G + mu_{t+1} / (1 - P_{t+1}) m) / (sqrt(v / (1 - beta2^t)) + epsilon)
struct Nadam {
  static constexpr int kStates = 2;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    const double beta1 = a.settings[0], beta2 = a.settings[1], decay = std::pow(0.96, a.settings[3]);
    double power = 1, mu = 0, product = 1;
    for (int64_t t = 1; t <= a.step; ++t) {
      power *= decay;
      mu = beta1 * (1 - 0.5 * power);
      product *= mu;
      if (product < 1e-17) {  // nothing beside 1, and later ones, too
        power = Power(decay, a.step);
        mu = beta1 * (1 - 0.5 * power);
        break;
      }
    }
    const double next = beta1 * (1 - 0.5 * power * decay);
    return {a.learning_rate * (1 - mu) / (1 - product),
            a.weight_decay,
            beta1,
            1 - beta1,
            beta2,
            1 - beta2,
            1 / std::sqrt(1 - Power(beta2, a.step)),
            a.settings[2],
            a.learning_rate * next / (1 - product * next)};
  }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    g += c[1] * w;
    MoveMeans(c, g, s);
    w -= (c[0] * g + c[8] * s[0]) / (c[6] * std::sqrt(s[1]) + c[7]);
  }
};

// Kingma and Ba's variant by the largest gradient, with G = g + wd w:
//   m = beta1 m + (1 - beta1) G;  u = max(beta2 u, |G| + epsilon);  w = w - lr / (1 - beta1^t) m / u
struct Adamax {
  static constexpr int kStates = 2;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    const double beta1 = a.settings[0];
    return {
        a.learning_rate / (1 - Power(beta1, a.step)), a.weight_decay, beta1, 1 - beta1, a.settings[1], a.settings[2]};
  }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    g += c[1] * w;
    s[0] = Faded(c[2] * s[0] + c[3] * g);
    const T size = (g < 0 ? -g : g) + c[5], kept = c[4] * s[1];
    s[1] = kept > size ? kept : size;  // NaN stays NaN
    w -= c[0] * s[0] / s[1];
  }
};

// Tieleman and Hinton, with G = g + wd w:
//   v = rho v + (1 - rho) G^2;  w = w - lr G / (sqrt(v) + epsilon)
struct RmsProp {
  static constexpr int kStates = 1;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    return {a.learning_rate, a.weight_decay, a.settings[0], a.settings[1], 1 - a.settings[1], a.settings[2]};
  }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    g += c[1] * w;
    s[0] = c[3] * s[0] + c[4] * (g * g);
    w -= c[0] * g / (std::sqrt(s[0]) + c[5]);
  }
};
// m = momentum m - lr G / (sqrt(v) + epsilon);  w = w + m
struct RmsPropMomentum {
  static constexpr int kStates = 2;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) { return RmsProp::Prepare(a); }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    g += c[1] * w;
    s[1] = c[3] * s[1] + c[4] * (g * g);
    s[0] = Faded(c[2] * s[0] - c[0] * g / (std::sqrt(s[1]) + c[5]));
    w += s[0];
  }
};

// Graves: RMSProp by the variance around a running mean:
//   v = rho v + (1 - rho) G^2;  a = rho a + (1 - rho) G
//   m = momentum m - lr G / (sqrt(max(v - a^2, 0)) + epsilon);  w = w + m
struct CenteredRmsProp {
  static constexpr int kStates = 3;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) { return RmsProp::Prepare(a); }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    g += c[1] * w;
    s[1] = c[3] * s[1] + c[4] * (g * g);
    s[2] = c[3] * s[2] + c[4] * g;
    const T variance = s[1] - s[2] * s[2];
    // Rounding may take it below zero.
    s[0] = Faded(c[2] * s[0] - c[0] * g / (std::sqrt(variance < 0 ? 0 : variance) + c[5]));
    w += s[0];
  }
};

// Duchi, Hazan and Singer, with G = g + wd w:
//   h = h + G^2;  w = w - lr / (1 + (t - 1) lr_decay) G / (sqrt(h) + epsilon)
struct AdaGrad {
  static constexpr int kStates = 1;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    return {a.learning_rate / (1 + static_cast<double>(a.step - 1) * a.settings[0]), a.weight_decay, a.settings[1]};
  }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    g += c[1] * w;
    s[0] += g * g;
    w -= c[0] * g / (std::sqrt(s[0]) + c[2]);
  }
};

// Zeiler, with G = g + wd w; the published rule has lr = 1:
//   v = rho v + (1 - rho) G^2;  d = sqrt(u + epsilon) / sqrt(v + epsilon) G;  u = rho u + (1 - rho) d^2;  w = w - lr d
struct AdaDelta {
  static constexpr int kStates = 2;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    return {a.learning_rate, a.weight_decay, a.settings[0], 1 - a.settings[0], a.settings[1]};
  }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    g += c[1] * w;
    s[0] = c[2] * s[0] + c[3] * (g * g);
    const T d = std::sqrt(s[1] + c[4]) / std::sqrt(s[0] + c[4]) * g;
    s[1] = c[2] * s[1] + c[3] * (d * d);
    w -= c[0] * d;
  }
};

// McMahan and others, "Ad click prediction", with wd as lambda2 (there is no step of lr = 0):
//   z = z + g - (sqrt(n + g^2) - sqrt(n)) / lr w;  n = n + g^2
//   w = 0 if |z| <= lambda1, else (sign(z) lambda1 - z) / ((beta + sqrt(n)) / lr + wd)
struct Ftrl {
  static constexpr int kStates = 2;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    const double per_rate = a.learning_rate > 0 ? 1 / a.learning_rate : 0;
    return {a.learning_rate, a.weight_decay, a.settings[0], a.settings[1], per_rate};
  }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    const T squares = s[1] + g * g, after = std::sqrt(squares), sum = after + std::sqrt(s[1]);
    const T growth = sum == 0 ? 0 : g * g / sum;  // the difference of the roots
    const T z = s[0] + g - growth * c[4] * w;
    const T size = z < 0 ? -z : z, beyond = z < 0 ? z + c[2] : z - c[2];
    const T next = size <= c[2] ? 0 : -beyond / ((c[3] + after) * c[4] + c[1]);
    const bool moves = c[0] > 0;
    s[0] = moves ? z : s[0];
    s[1] = moves ? squares : s[1];
    w = moves ? next : w;
  }
};

template <class T>
[[gnu::always_inline]] constexpr T SignOf(T x) {
  return x > 0 ? T(1) : x < 0 ? T(-1) : x;  // NaN stays NaN
}

// Bernstein and others, with G = g + wd w; wd_lh decays the weight apart from the sign:
//   w = (1 - lr wd_lh) w - lr sign(G)
struct SignSgd {
  static constexpr int kStates = 0;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    return {a.learning_rate, a.weight_decay, a.settings[0], 1 - a.settings[0], a.learning_rate * a.settings[1]};
  }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T*) {
    w -= c[4] * w + c[0] * SignOf(g + c[1] * w);
  }
};
// m = momentum m + (1 - momentum) G;  w = (1 - lr wd_lh) w - lr sign(m)
struct Signum {
  static constexpr int kStates = 1;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) { return SignSgd::Prepare(a); }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    s[0] = c[2] * s[0] + c[3] * (g + c[1] * w);
    w -= c[4] * w + c[0] * SignOf(s[0]);
  }
};

// Chen and others, found by symbolic search:
//   w = w - lr (sign(beta1 m + (1 - beta1) g) + wd w);  m = beta2 m + (1 - beta2) g
struct Lion {
  static constexpr int kStates = 1;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    const double beta1 = a.settings[0], beta2 = a.settings[1];
    return {a.learning_rate, a.weight_decay, beta1, 1 - beta1, beta2, 1 - beta2};
  }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    w -= c[0] * (SignOf(c[2] * s[0] + c[3] * g) + c[1] * w);
    s[0] = c[4] * s[0] + c[5] * g;
  }
};

// Factor of the rate by norms: |w| / |direction|, 1 where either is 0, as where nothing was measured.
constexpr double TrustRatio(double weight, double direction) {
  return weight > 0 && direction > 0 ? weight / direction : 1;
}

// You, Gitman and Ginsburg, "Large batch training of convolutional networks", with its rate inside the momentum:
//   r = eta |w| / (|g| + wd |w| + epsilon), 1 where eta |w| or |g| is 0;  m = momentum m - lr r (g + wd w);  w = w + m
struct Lars {
  static constexpr int kStates = 1;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    const double weight = std::sqrt(a.squares.weight), gradient = std::sqrt(a.squares.direction);
    const double ratio =
        gradient > 0 ? TrustRatio(a.settings[1] * weight, gradient + a.weight_decay * weight + a.settings[2]) : 1;
    return {a.learning_rate * ratio, a.weight_decay, a.settings[0]};
  }
  template <class T>
  [[gnu::always_inline]] static constexpr T Direction(const T*, T g, T, T*) {
    return g;
  }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    Momentum::Step(c, g, w, s);
  }
};

// You and others, "Large batch optimization for deep learning", t the number of the update:
//   m, v as in AdamW;  u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + wd w
//   w = w - lr phi(|w|) / |u| u, or lr u where either norm is 0
// with phi(x) = x between the bounds lower and upper (0: none).
struct Lamb {
  static constexpr int kStates = 2;
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    const double lower = a.settings[3], upper = a.settings[4];
    double weight = std::sqrt(a.squares.weight);
    if (weight < lower) weight = lower;
    if (upper > 0 && weight > upper) weight = upper;
    UpdateNumbers numbers = Adam::Prepare(a);
    numbers[0] = a.learning_rate * TrustRatio(weight, std::sqrt(a.squares.direction));
    numbers[8] = 1 / (1 - Power(a.settings[0], a.step));
    return numbers;
  }
  template <class T>
  [[gnu::always_inline]] static constexpr T Direction(const T* c, T g, T w, T* s) {
    MoveMeans(c, g, s);
    return c[8] * s[0] / (c[6] * std::sqrt(s[1]) + c[7]) + c[1] * w;
  }
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T g, T& w, T* s) {
    w -= c[0] * Direction(c, g, w, s);
  }
};

// Averages of weights (train/optimizers/averaging.h) are rules, too: of one state, and of no gradient.
struct Average {
  static constexpr int kStates = 1;
  template <class T>
  [[gnu::always_inline]] static constexpr void Step(const T* c, T, T& w, T* s) {
    s[0] = c[0] * w + c[1] * s[0];
  }
};

// average = decay average + (1 - decay) w, from the first w on
struct Ema : Average {
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    const double decay = a.step == 1 ? 0 : a.settings[0];
    return {1 - decay, decay};
  }
};

// The mean of w after the updates start, start + every, ...; before, w
struct Swa : Average {
  static constexpr UpdateNumbers Prepare(const UpdateArgs& a) {
    const auto since = a.step - static_cast<int64_t>(a.settings[0]);
    const auto every = a.settings[1] < 1 ? int64_t{1} : static_cast<int64_t>(a.settings[1]);
    if (since > 0 && since % every != 0) return {0, 1};
    const double part = since > 0 ? 1 / static_cast<double>(since / every + 1) : 1;
    return {part, 1 - part};
  }
};

using All = std::tuple<Sgd, Momentum, Nesterov, Adam, AdamW, Nadam, Adamax, RmsProp, RmsPropMomentum, CenteredRmsProp,
                       AdaGrad, AdaDelta, Ftrl, SignSgd, Signum, Lars, Lamb, Lion, Ema, Swa>;

}  // namespace bindery::update_rules
