// Part of vector_math_float.h: vectors of floats from and to bfloat16, by the bits that base/dtype.h gives them.

typedef uint16_t Halves __attribute__((vector_size(kLanes * sizeof(uint16_t))));
typedef uint32_t Words __attribute__((vector_size(kBytes)));

inline V Widened(Halves halves) { return (V)(__builtin_convertvector(halves, Words) << 16); }
inline Halves Narrowed(V v) {
  const Words bits = (Words)v, upper = bits >> 16;
  const Words rounded = (bits + 0x7fff + (upper & 1)) >> 16;
  return __builtin_convertvector(v != v ? upper | 0x40 : rounded, Halves);
}

inline V Load(const bfloat16* p) {
  Halves halves;
  __builtin_memcpy(&halves, p, sizeof halves);
  return Widened(halves);
}
inline void Store(bfloat16* p, V v) {
  const Halves halves = Narrowed(v);
  __builtin_memcpy(static_cast<void*>(p), &halves, sizeof halves);
}
inline V LoadPart(const bfloat16* p, int64_t n) {
  Halves halves = {};
  for (int64_t i = 0; i < n; ++i) halves[i] = p[i].bits;
  return Widened(halves);
}
inline void StorePart(bfloat16* p, int64_t n, V v) {
  const Halves halves = Narrowed(v);
  for (int64_t i = 0; i < n; ++i) p[i].bits = halves[i];
}
