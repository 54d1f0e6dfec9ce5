// Part of loops_body.h: reductions of rows, and of rows into results side by side.

// As many doubles as a register holds, and the elements that they come from.
constexpr int kDoubles = kBytes / sizeof(double);
typedef double D __attribute__((vector_size(kBytes)));
typedef Real Part __attribute__((vector_size(kDoubles * sizeof(Real))));

inline D LoadDoubles(const Real* p) {
  Part part;
  __builtin_memcpy(&part, p, sizeof part);
  return __builtin_convertvector(part, D);
}

// What is joined of elements x, and how: of vectors and of single numbers.
struct Adds {
  static constexpr double kNothing = 0;
  template <class N>
  static N Merged(N a, N b) {
    return a + b;
  }
};
struct Sums : Adds {
  template <class N>
  static N Joined(N result, N x) {
    return result + x;
  }
};
struct Magnitudes : Adds {
  template <class N>
  static N Joined(N result, N x) {
    return result + (x < 0 ? -x : x);
  }
};
struct Squares : Adds {
  template <class N>
  static N Joined(N result, N x) {
    return result + x * x;
  }
};
struct Products {
  static constexpr double kNothing = 1;
  template <class N>
  static N Joined(N result, N x) {
    return result * x;
  }
  template <class N>
  static N Merged(N a, N b) {
    return a * b;
  }
};

template <class F>
double JoinRow(const Real* x, int64_t n) {
  const D nothing = F::kNothing - D{};
  D r0 = nothing, r1 = nothing, r2 = nothing, r3 = nothing;  // side by side: a step need not wait for the one before
  int64_t i = 0;
  for (; i + 4 * kDoubles <= n; i += 4 * kDoubles) {
    r0 = F::Joined(r0, LoadDoubles(x + i));
    r1 = F::Joined(r1, LoadDoubles(x + i + kDoubles));
    r2 = F::Joined(r2, LoadDoubles(x + i + 2 * kDoubles));
    r3 = F::Joined(r3, LoadDoubles(x + i + 3 * kDoubles));
  }
  for (; i + kDoubles <= n; i += kDoubles) r0 = F::Joined(r0, LoadDoubles(x + i));
  const D all = F::Merged(F::Merged(r0, r1), F::Merged(r2, r3));
  double result = all[0];
  for (int lane = 1; lane < kDoubles; ++lane) result = F::Merged(result, double{all[lane]});
  for (; i < n; ++i) result = F::Joined(result, double{x[i]});
  return result;
}

template <class F>
void JoinTo(const Real* x, double* results, int64_t n) {
  int64_t i = 0;
  for (; i + kDoubles <= n; i += kDoubles) {
    D result;
    __builtin_memcpy(&result, results + i, sizeof result);
    result = F::Joined(result, LoadDoubles(x + i));
    __builtin_memcpy(results + i, &result, sizeof result);
  }
  for (; i < n; ++i) results[i] = F::Joined(results[i], double{x[i]});
}

// F is Maximum or Minimum.
template <class F>
Real Extreme(const Real* x, int64_t n) {
  const F f;
  Real extreme = x[0];
  int64_t i = 0;
  if (n >= kLanes) {
    V m0 = Load(x), m1 = m0, m2 = m0, m3 = m0;
    for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
      m0 = f(m0, Load(x + i));
      m1 = f(m1, Load(x + i + kLanes));
      m2 = f(m2, Load(x + i + 2 * kLanes));
      m3 = f(m3, Load(x + i + 3 * kLanes));
    }
    for (; i + kLanes <= n; i += kLanes) m0 = f(m0, Load(x + i));
    m0 = f(f(m0, m1), f(m2, m3));
    extreme = m0[0];
    for (int lane = 1; lane < kLanes; ++lane) extreme = f(extreme, Real{m0[lane]});
  }
  for (; i < n; ++i) extreme = f(extreme, x[i]);
  return extreme;
}
template <class F>
void ExtremeTo(const Real* x, Real* y, int64_t n) {
  Map2(x, y, y, n, F());
}
