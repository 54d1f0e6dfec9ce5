#include <utility>

#include "base/error.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

using rule::Value;

// op(x) of a vector or a matrix as rows and columns; extents may be unknown.
std::pair<int64_t, int64_t> RowsAndColumns(const Shape& shape, bool transposed, bool vector_is_row) {
  std::pair<int64_t, int64_t> size;
  if (shape.rank() == 2)
    size = {shape[0], shape[1]};
  else
    size = vector_is_row ? std::pair{int64_t{1}, shape[0]} : std::pair{shape[0], int64_t{1}};
  if (transposed) std::swap(size.first, size.second);
  return size;
}

void CheckRanks(const DotAttrs& attrs, const Shape& a, const Shape& b) {
  if (a.rank() != b.rank() || a.rank() < 1 || a.rank() > 2) {
    Throw<ShapeError>("expected two matrices or two vectors, got {} and {}", a, b);
  }
  if (a.rank() == 1 && attrs.transpose_a && attrs.transpose_b) {
    throw ShapeError("the product of a transposed column and row of vectors is not provided: reshape them to matrices");
  }
}

// Matrices: op(a) (m, k), op(b) (k, n), output (m, n), in every direction.
void InferMatrices(const DotAttrs& attrs, Value a, Value b, Value output) {
  const auto set = [](Value value, int64_t rows, int64_t columns, bool transposed) {
    value.Set(transposed ? Shape{columns, rows} : Shape{rows, columns});
  };
  set(a, kUnknownDim, kUnknownDim, false);
  set(b, kUnknownDim, kUnknownDim, false);
  output.Set(rule::Unknown(2));
  const auto pick = [](int64_t first, int64_t second) { return first != kUnknownDim ? first : second; };
  const auto [m_of_a, k_of_a] = RowsAndColumns(*a.shape(), attrs.transpose_a, true);
  const auto [k_of_b, n_of_b] = RowsAndColumns(*b.shape(), attrs.transpose_b, false);
  if (k_of_a != kUnknownDim && k_of_b != kUnknownDim && k_of_a != k_of_b) {
    Throw<ShapeError>("{}{} x {}{}: the inner extents {} and {} differ", *a.shape(), attrs.transpose_a ? "^T" : "",
                      *b.shape(), attrs.transpose_b ? "^T" : "", k_of_a, k_of_b);
  }
  const Shape out = *output.shape();
  const int64_t m = pick(m_of_a, out[0]), k = pick(k_of_a, k_of_b), n = pick(n_of_b, out[1]);
  set(a, m, k, attrs.transpose_a);
  set(b, k, n, attrs.transpose_b);
  output.Set({m, n});
  // The samples are rows of op(a) or columns of op(b); along the contracted axis they are summed.
  a.Carry(output, [&](int axis) { return axis == (attrs.transpose_a ? 1 : 0) ? 0 : -1; });
  b.Carry(output, [&](int axis) { return axis == (attrs.transpose_b ? 0 : 1) ? 1 : -1; });
}

void InferDot(InferContext& c) {
  const auto& attrs = c.attrs<DotAttrs>();
  const Value a = c.in(0), b = c.in(1), output = c.out(0);
  rule::SameDTypes(c);
  if (!a.shape() && output.shape() && output.shape()->rank() == 2) a.Set(rule::Unknown(2));
  if (!rule::SameRank(a, b)) return;
  CheckRanks(attrs, *a.shape(), *b.shape());
  if (a.shape()->rank() == 2) return InferMatrices(attrs, a, b, output);
  if (!attrs.transpose_a && !attrs.transpose_b) {
    rule::SameShape({a, b});
    output.Set({1});
  } else if (attrs.transpose_b) {  // (1) x (K)^T
    a.Set({1});
    rule::SameShape({b, output});
  } else {  // (K)^T x (1)
    b.Set({1});
    rule::SameShape({a, output});
  }
}

Symbol Product(const Symbol& a, bool transpose_a, const Symbol& b, bool transpose_b) {
  return Dot(a, b, {transpose_a, transpose_b});
}

// y = A B:      dA = dy B^T,    dB = A^T dy
// y = A^T B:    dA = B dy^T,    dB = A dy
// y = A B^T:    dA = dy B,      dB = dy^T A
// y = A^T B^T:  dA = B^T dy^T,  dB = dy^T A^T
std::vector<Symbol> DotGradient(const GradientContext& g) {
  const auto& [ta, tb] = g.attrs<DotAttrs>();
  const Symbol &dy = g.output_grad(0), a = g.input(0), b = g.input(1);
  std::vector<Symbol> result(2);
  if (g.wants(0)) result[0] = ta ? Product(b, tb, dy, true) : Product(dy, false, b, !tb);
  if (g.wants(1)) result[1] = tb ? Product(dy, true, a, ta) : Product(a, !ta, dy, false);
  return result;
}

}  // namespace

DotSizes ProductSizes(const DotAttrs& attrs, const Shape& a, const Shape& b) {
  CheckRanks(attrs, a, b);
  const auto [m, k] = RowsAndColumns(a, attrs.transpose_a, true);
  const auto [k_of_b, n] = RowsAndColumns(b, attrs.transpose_b, false);
  if (k != k_of_b) Throw<ShapeError>("the inner extents {} and {} differ", k, k_of_b);
  return {m, k, n};
}

const OpDef& DotOp() {
  static const OpDef op = {
      .name = "Dot",
      .doc = "The product of two matrices, or the inner product of two vectors.",
      .attrs_type = &AttrsOf<DotAttrs>(),
      .inputs = {"a", "b"},
      .infer = InferDot,
      .gradient = DotGradient,
      .zero_to_zero = true,
  };
  return op;
}

}  // namespace bindery
