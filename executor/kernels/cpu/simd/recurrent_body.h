// Part of loops_body.h: one step of LSTM and GRU for one sample, and its gradient.

inline V Clipped(V v, Real limit) { return v > limit ? Splat(limit) : v < -limit ? Splat(-limit) : v; }

// The derivative of a clipped gate: nothing where it is as far as it goes. NaN passes.
struct Within {
  V low, high;
  explicit Within(const Table::GateEnds& ends) : low(Splat(ends.low)), high(Splat(ends.high)) {}
  V operator()(V gradient, V gate) const { return ((gate <= low) | (gate >= high)) ? Splat(0) : gradient; }
};

void LstmStep(const Table::Lstm& s, int64_t n) {
  ForColumns(
      n, [&](int64_t at, auto load, auto store) __attribute__((always_inline)) {
        const auto gate = [&](int k) __attribute__((always_inline)) { return load(s.x[k] + at) + load(s.product[k] + at); };
        const auto peep = [&](int k, V cell) __attribute__((always_inline)) {
          return s.peephole[k] ? load(s.peephole[k] + at) * cell : Splat(0);
        };
        const V before = load(s.cell + at);
        const V i = sigmoid(Clipped(gate(0) + peep(0, before), s.clip));
        const V f = s.coupled ? 1 - i : sigmoid(Clipped(gate(1) + peep(1, before), s.clip));
        const V g = tanh(Clipped(gate(2), s.clip));
        const V cell = f * before + i * g;
        const V o = sigmoid(Clipped(gate(3) + peep(2, cell), s.clip));
        store(s.next_cell + at, cell);
        store(s.output + at, o * tanh(cell));
        if (!s.saved[0]) return;
        store(s.saved[0] + at, i);
        store(s.saved[1] + at, f);
        store(s.saved[2] + at, g);
        store(s.saved[3] + at, o);
      });
}

void LstmStepGrad(const Table::LstmGrad& s, int64_t n) {
  const Within sigmoids(s.sigmoids), tanhs(s.tanhs);
  ForColumns(
      n, [&](int64_t at, auto load, auto store) __attribute__((always_inline)) {
        const auto peep = [&](int k, V gradient) __attribute__((always_inline)) {
          return s.peephole[k] ? load(s.peephole[k] + at) * gradient : Splat(0);
        };
        const V i = load(s.saved[0] + at), f = load(s.saved[1] + at), g = load(s.saved[2] + at);
        const V o = load(s.saved[3] + at), before = load(s.cell + at), dh = load(s.dh + at);
        const V bent = tanh(f * before + i * g);
        const V d_o = sigmoids(dh * bent * o * (1 - o), o);
        const V dc = load(s.dc + at) + dh * o * (1 - bent * bent) + peep(2, d_o);
        const V df = s.coupled ? Splat(0) : sigmoids(dc * before * f * (1 - f), f);
        const V di = sigmoids((s.coupled ? dc * (g - before) : dc * g) * i * (1 - i), i);
        store(s.dx[0] + at, di);
        store(s.dx[1] + at, df);
        store(s.dx[2] + at, tanhs(dc * i * (1 - g * g), g));
        store(s.dx[3] + at, d_o);
        store(s.dc + at, dc * f + peep(0, di) + peep(1, df));
      });
}

void GruStep(const Table::Gru& s, int64_t n) {
  ForColumns(
      n, [&](int64_t at, auto load, auto store) __attribute__((always_inline)) {
        const auto gate = [&](int k) __attribute__((always_inline)) {
          const V product = load(s.product[k] + at);
          return s.gates_are_ready ? product : sigmoid(Clipped(load(s.x[k] + at) + product, s.clip));
        };
        const V r = gate(0), z = gate(1), product = load(s.product[2] + at), before = load(s.before + at);
        const V candidate = tanh(Clipped(load(s.x[2] + at) + (s.gates_are_ready ? product : r * product), s.clip));
        store(s.output + at, candidate + z * (before - candidate));
        if (!s.saved[0]) return;
        store(s.saved[0] + at, r);
        store(s.saved[1] + at, z);
        store(s.saved[2] + at, candidate);
        store(s.saved[3] + at, s.gates_are_ready ? r * before : product);
      });
}

void GruStepGrad(const Table::GruGrad& s, int64_t n) {
  const Within sigmoids(s.sigmoids), tanhs(s.tanhs);
  ForColumns(
      n, [&](int64_t at, auto load, auto store) __attribute__((always_inline)) {
        const V r = load(s.saved[0] + at), z = load(s.saved[1] + at), candidate = load(s.saved[2] + at);
        const V dh = load(s.dh + at);
        const V d = tanhs(dh * (1 - z) * (1 - candidate * candidate), candidate);
        store(s.dx[1] + at, sigmoids(dh * (load(s.before + at) - candidate) * z * (1 - z), z));
        store(s.dx[2] + at, d);
        store(s.dh + at, dh * z);
        if (!s.d_product) return;
        store(s.dx[0] + at, sigmoids(d * load(s.saved[3] + at) * r * (1 - r), r));
        store(s.d_product + at, d * r);
      });
}
