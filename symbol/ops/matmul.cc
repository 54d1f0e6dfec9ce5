#include "symbol/ops/matmul.h"

#include <algorithm>

#include "base/error.h"
#include "symbol/compose.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/rules.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

using rule::Value;

// Where an operand's axes are: -1 for the one that a vector lacks. `kept` is the one that the output has.
struct Side {
  int batch;  // axes before the matrix
  int kept, summed;

  Side(const Shape& shape, bool transposed, bool is_left) {
    const int rank = shape.rank();
    if (rank == 0) throw ShapeError("a number is no matrix: multiply it element by element");
    if (rank == 1 && transposed) throw ShapeError("a vector cannot be transposed");
    batch = std::max(rank - 2, 0);
    kept = rank == 1 ? -1 : transposed == is_left ? rank - 1 : rank - 2;
    summed = rank == 1 ? 0 : transposed == is_left ? rank - 2 : rank - 1;
  }
};

// The extent along which two operands' batches go on, one axis; kUnknownDim as long as it is not certain.
int64_t Stretched(int64_t a, int64_t b) {
  if (a == b || b == 1) return a;
  if (a == 1) return b;
  if (a == kUnknownDim) return b;
  if (b == kUnknownDim) return a;
  Throw<ShapeError>("batches of {} and {} matrices do not go together: extents must be equal or 1", a, b);
}

int64_t BatchExtent(const Shape& shape, const Side& side, int from_last) {
  return from_last > side.batch ? 1 : shape[side.batch - from_last];
}

void InferMatMul(InferContext& c) {
  const auto& attrs = c.attrs<MatMulAttrs>();
  const Value a = c.in(0), b = c.in(1), output = c.out(0);
  rule::SameDTypes(c);
  if (!a.shape() || !b.shape()) return;
  const Side left(*a.shape(), attrs.transpose_a, true), right(*b.shape(), attrs.transpose_b, false);
  const int64_t k_of_a = (*a.shape())[left.summed], k_of_b = (*b.shape())[right.summed];
  if (k_of_a != kUnknownDim && k_of_b != kUnknownDim && k_of_a != k_of_b) {
    Throw<ShapeError>("{}{} x {}{}: the inner extents {} and {} differ", *a.shape(), attrs.transpose_a ? "^T" : "",
                      *b.shape(), attrs.transpose_b ? "^T" : "", k_of_a, k_of_b);
  }
  const int64_t k = k_of_a != kUnknownDim ? k_of_a : k_of_b;
  a.Set(a.shape()->With(left.summed, k));
  b.Set(b.shape()->With(right.summed, k));

  const int batch = std::max(left.batch, right.batch), rows = left.kept < 0 ? 0 : 1, columns = right.kept < 0 ? 0 : 1;
  output.Set(rule::Unknown(batch + rows + columns));
  Shape out = *output.shape();
  for (int i = 1; i <= batch; ++i) {
    const int64_t extent = Stretched(BatchExtent(*a.shape(), left, i), BatchExtent(*b.shape(), right, i));
    if (extent != kUnknownDim) out.Set(batch - i, extent);
  }
  const auto keep = [&](Value operand, int axis, int at) {
    if (axis < 0) return;
    if ((*operand.shape())[axis] != kUnknownDim) out.Set(at, (*operand.shape())[axis]);
    operand.Set(operand.shape()->With(axis, out[at]));
  };
  keep(a, left.kept, batch);
  keep(b, right.kept, batch + rows);
  output.Set(out);
  const auto carry = [&](Value operand, const Side& side, int at) {
    operand.Carry(output, [&](int axis) {
      if (axis < side.batch) return axis + batch - side.batch;
      return axis == side.kept ? at : -1;
    });
  };
  carry(a, left, batch);
  carry(b, right, batch + rows);
}

Extents Inserted(Extents shape, size_t at) {
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at), Extent{1, 0});
  return shape;
}

// y = A B:      dA = dy B^T,    dB = A^T dy
// y = A^T B:    dA = B dy^T,    dB = A dy
// y = A B^T:    dA = dy B,      dB = dy^T A
// y = A^T B^T:  dA = B^T dy^T,  dB = dy^T A^T
// each summed over the products that a matrix took part in. Vectors are matrices here.
std::vector<Symbol> MatMulGradient(const GradientContext& g) {
  const auto& [ta, tb] = g.attrs<MatMulAttrs>();
  Symbol dy = g.output_grad(0), a = g.input(0), b = g.input(1);
  const Extents a_shape = g.shape(0), b_shape = g.shape(1);
  Extents y_shape = g.output_shape(0), a_matrix = a_shape, b_matrix = b_shape;
  const bool is_row = a_shape.size() == 1, is_column = b_shape.size() == 1;
  if (is_row) {
    a = rule::ReshapeTo(a, a_matrix = Inserted(a_shape, 0));
    y_shape = Inserted(y_shape, y_shape.size() - (is_column ? 0 : 1));
  }
  if (is_column) {
    b = rule::ReshapeTo(b, b_matrix = Inserted(b_shape, 1));
    y_shape = Inserted(y_shape, y_shape.size());
  }
  if (is_row || is_column) dy = rule::ReshapeTo(dy, y_shape);

  const auto gradient = [&](const Symbol& product, const Extents& matrix, const Extents& shape) {
    const size_t batch = y_shape.size() - 2;
    const bool alike =
        matrix.size() == y_shape.size() && std::equal(y_shape.begin(), y_shape.begin() + batch, matrix.begin());
    const Symbol sum = alike ? product : rule::SumTo(product, matrix);
    return shape == matrix ? sum : rule::ReshapeTo(sum, shape);
  };
  std::vector<Symbol> result(2);
  if (g.wants(0)) {
    const Symbol da = ta ? MatMul(b, dy, {tb, true}) : MatMul(dy, b, {false, !tb});
    result[0] = gradient(da, a_matrix, a_shape);
  }
  if (!g.wants(1)) return result;
  const Extent k = a_matrix.back(), n = y_shape.back();
  if (b_matrix.size() == 2 && a_matrix.size() > 2 && !ta && k.batches == 0 && n.batches == 0 && k.fixed > 0 &&
      n.fixed > 0) {
    // One matrix for all: one product of all rows.
    a = Reshape(a, {.shape = {-1, k.fixed}});
    dy = Reshape(dy, {.shape = {-1, n.fixed}});
    const Symbol db = tb ? MatMul(dy, a, {true, false}) : MatMul(a, dy, {true, false});
    result[1] = b_shape == b_matrix ? db : rule::ReshapeTo(db, b_shape);
  } else {
    const Symbol db = tb ? MatMul(dy, a, {true, ta}) : MatMul(a, dy, {!ta, false});
    result[1] = gradient(db, b_matrix, b_shape);
  }
  return result;
}

// Matrices are MatMul's; vectors are multiplied element by element, one of a single element with all of the other's.
std::vector<Symbol> ComposeDot(const ComposeContext& c) {
  const auto& attrs = c.attrs<DotAttrs>();
  if (c.shapes[0].size() == 2) return {MatMul(c.inputs[0], c.inputs[1], attrs, c.name)};
  if (attrs.transpose_a || attrs.transpose_b) return {Mul(c.inputs[0], c.inputs[1], c.name)};
  return {Sum(c.inputs[0] * c.inputs[1], {.keepdims = true}, c.name)};
}

void InferDot(InferContext& c) {
  const auto& attrs = c.attrs<DotAttrs>();
  const Value a = c.in(0), b = c.in(1), output = c.out(0);
  rule::SameDTypes(c);
  if (!a.shape() && output.shape() && output.shape()->rank() == 2) a.Set(rule::Unknown(2));
  if (!rule::SameRank(a, b)) return;
  const int rank = a.shape()->rank();
  if (rank != b.shape()->rank() || rank < 1 || rank > 2) {
    Throw<ShapeError>("expected two matrices or two vectors, got {} and {}", *a.shape(), *b.shape());
  }
  if (rank == 2) return InferMatMul(c);
  if (attrs.transpose_a && attrs.transpose_b) {
    throw ShapeError("the product of a transposed column and row of vectors is not provided: reshape them to matrices");
  }
  if (attrs.transpose_a || attrs.transpose_b) {
    (attrs.transpose_a ? b : a).Set({1});
    rule::SameShape({attrs.transpose_a ? a : b, output});
  } else {
    rule::SameShape({a, b});
  }
  InferComposed(c, ComposeDot);
}

// (..., m, k) times (..., k, n), either of them transposed: of each matrix, a has m k elements. A vector has one row.
double OperationsOfProducts(std::span<const Shape> in, std::span<const Shape> out) {
  const auto extent = [](const Shape& shape, int axis) {
    return shape.rank() >= -axis ? static_cast<double>(shape[axis]) : 1.0;
  };
  const double depth = extent(in[0], -1) * extent(in[0], -2) / std::max(1.0, extent(out[0], -2));
  return 2 * static_cast<double>(out[0].Elements()) * depth;
}

}  // namespace

Symbol Gemm(const Symbol& a, const Symbol& b, const Symbol& c, const GemmAttrs& attrs, const std::string& name) {
  const bool adds = !c.empty() && attrs.beta != 0, scales = attrs.alpha != 1;
  Symbol y = MatMul(a, b, {attrs.transpose_a, attrs.transpose_b}, adds || scales ? "" : name);
  if (scales) y = Mul(y, attrs.alpha, adds ? "" : name);
  return adds ? Add(y, attrs.beta == 1 ? c : c * attrs.beta, name) : y;
}

MatMulForm FormOf(const MatMulAttrs& attrs, const Shape& a, const Shape& b) {
  const Side left(a, attrs.transpose_a, true), right(b, attrs.transpose_b, false);
  MatMulForm form{
      .m = left.kept < 0 ? 1 : a[left.kept], .n = right.kept < 0 ? 1 : b[right.kept], .k = a[left.summed], .batch = {}};
  if (form.k != b[right.summed]) Throw<ShapeError>("the inner extents {} and {} differ", form.k, b[right.summed]);
  for (int i = std::max(left.batch, right.batch); i > 0; --i) {
    const int64_t of_a = BatchExtent(a, left, i), of_b = BatchExtent(b, right, i), extent = Stretched(of_a, of_b);
    if (extent == 1) continue;
    const auto step = [&](const Shape& shape, const Side& side, int64_t own) {
      return own == 1 ? 0 : shape.CountFrom(side.batch - i + 1);
    };
    const MatMulAxis axis{extent, step(a, left, of_a), step(b, right, of_b)};
    // Neighbours along which both go on in the same way are one axis.
    if (!form.batch.empty() && form.batch.back().a == extent * axis.a && form.batch.back().b == extent * axis.b) {
      form.batch.back() = {form.batch.back().extent * extent, axis.a, axis.b};
    } else {
      form.batch.push_back(axis);
    }
  }
  // Rows of all of a's matrices, one after another, times one b: one product.
  if (form.batch.size() == 1 && form.batch[0].b == 0 && !attrs.transpose_a && form.batch[0].a == form.m * form.k) {
    form.m *= form.batch[0].extent;
    form.batch.clear();
  }
  return form;
}

const OpDef& MatMulOp() {
  static const OpDef op = {
      .name = "MatMul",
      .doc = "op(a) op(b) of the matrices in the last two axes; the axes before them stretch.",
      .attrs_type = &AttrsOf<MatMulAttrs>(),
      .inputs = {"a", "b"},
      .infer = InferMatMul,
      .gradient = MatMulGradient,
      .operations = OperationsOfProducts,
      .zero_to_zero = true,
  };
  return op;
}

const OpDef& DotOp() {
  static const OpDef op = {
      .name = "Dot",
      .doc = "The product of two matrices, or the inner product of two vectors.",
      .attrs_type = &AttrsOf<DotAttrs>(),
      .inputs = {"a", "b"},
      .infer = InferDot,
      .compose = ComposeDot,
      .operations = OperationsOfProducts,
  };
  return op;
}

}  // namespace bindery
