// Attention, of which opset 17 has the parts: products, a softmax, and what queries see.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/checked.h"
#include "symbol/onnx/exporter.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

constexpr double kUnseen = -std::numeric_limits<double>::infinity();

std::string Permuted(Exporter& ex, const std::string& x, const std::vector<int64_t>& axes) {
  const std::string y = ex.Add("Transpose", {x});
  ex.Set("perm", axes);
  return y;
}

// A head for each of the queries': (N, heads, rows, columns) of operand `input`, which has `own` heads, on an axis of
// their own or within the last.
std::string WithHeads(Exporter& ex, int input, int64_t own, int64_t heads) {
  std::string x = ex.In(input);
  if (ex.RankOfInput(input) == 3) {
    x = Permuted(ex, ex.Add("Reshape", {x, ex.Ints({0, 0, own, -1}, "heads")}), {0, 2, 1, 3});
  }
  if (own == heads) return x;
  std::vector<int64_t> shared(static_cast<size_t>(heads));  // by neighbours
  for (int64_t i = 0; i < heads; ++i) shared[static_cast<size_t>(i)] = i / (heads / own);
  x = ex.Add("Gather", {x, ex.Ints(shared, "shared_heads")});
  ex.Set("axis", int64_t{1});
  return x;
}

int64_t Extent(int64_t extent, const char* what) {
  if (extent == kUnknownDim)
    Throw<ModelError>("it is not known how many {} there are; declare the inputs' shapes", what);
  return extent;
}

// Bool (T, S): what the windows let queries see. "" if that is everything; `blind`: a query may see nothing.
std::string SeenInWindows(Exporter& ex, const AttentionAttrs& attrs, int64_t queries, int64_t keys, bool* blind) {
  if (!attrs.causal && attrs.left_window < 0 && attrs.right_window < 0) return "";
  CheckTerms(CheckedMul(Extent(queries, "queries"), Extent(keys, "keys"), "a matrix of what is seen"));
  HostTensor seen(DType::kBool, {queries, keys});
  bool all = true;
  for (int64_t query = 0; query < queries; ++query) {
    const KeyRange range = SeenKeys(attrs, query, keys);
    for (int64_t key = range.first; key < range.last; ++key) seen.Set(query * keys + key, 1);
    *blind = *blind || range.first >= range.last;
    all = all && range.first == 0 && range.last == keys;
  }
  return all ? "" : ex.Constant(seen, "seen");
}

void ExportAttention(Exporter& ex) {
  const auto& attrs = ex.attrs<AttentionAttrs>();
  const bool apart = ex.RankOfInput(0) == 4;  // have heads an axis of their own?
  const Shape query = *ex.ShapeOfInput(0), key = *ex.ShapeOfInput(1);
  const int64_t heads = Extent(apart ? query[1] : attrs.heads, "heads");
  const int64_t kv_heads = Extent(apart ? key[1] : attrs.kv_heads == 0 ? heads : attrs.kv_heads, "heads");
  const DType dtype = ex.DTypeOfInput(0);
  double scale = attrs.scale;
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(Extent(query[-1], "numbers") / (apart ? 1 : heads)));

  const std::string scaled = ex.Add("Mul", {WithHeads(ex, 0, heads, heads), ex.Number(scale, dtype)});
  const std::string keys = Permuted(ex, WithHeads(ex, 1, kv_heads, heads), {0, 1, 3, 2});
  std::string scores = ex.Add("MatMul", {scaled, keys});
  if (attrs.softcap > 0) {
    const std::string cap = ex.Number(attrs.softcap, dtype);
    scores = ex.Add("Mul", {ex.Add("Tanh", {ex.Add("Div", {scores, cap})}), cap});
  }
  const bool added = attrs.masked && ex.DTypeOfInput(3) != DType::kBool;
  if (added) scores = ex.Add("Add", {scores, ex.In(3)});
  bool blind = attrs.masked;
  std::string seen = SeenInWindows(ex, attrs, query[-2], key[-2], &blind);
  const auto also = [&](const std::string& more) { seen = seen.empty() ? more : ex.Add("And", {seen, more}); };
  if (attrs.masked && !added) also(ex.In(3));
  if (!seen.empty()) scores = ex.Add("Where", {seen, scores, ex.Number(kUnseen, dtype)});
  std::string weights = ex.Add("Softmax", {scores});
  ex.Set("axis", int64_t{-1});
  if (added) also(ex.Add("Greater", {ex.In(3), ex.Number(kUnseen, dtype)}));
  // The softmax of a query that sees nothing is of no number.
  if (blind) weights = ex.Add("Where", {seen, weights, ex.Number(0, dtype)});
  const std::string values = WithHeads(ex, 2, kv_heads, heads);
  if (apart) return ex.Out("MatMul", {weights, values});
  const std::string y = Permuted(ex, ex.Add("MatMul", {weights, values}), {0, 2, 1, 3});
  ex.Out("Reshape", {y, ex.Ints({0, 0, -1}, "joined_heads")});
}

}  // namespace

std::span<const ExportRow> AttentionExports() {
  static constexpr ExportRow kRows[] = {{"Attention", ExportAttention}};
  return kRows;
}

}  // namespace bindery::onnx
