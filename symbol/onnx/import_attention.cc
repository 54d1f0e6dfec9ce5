// Attention, and places told by angles.
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "symbol/onnx/attention.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kMask = 3, kPastKey = 4, kPastValue = 5, kFilled = 6;  // inputs
constexpr int kPresentKey = 1, kPresentValue = 2, kProducts = 3;     // outputs

// What ONNX calls qk_matmul_output, for those who look into attention: the products of queries and keys, with a matrix
// of them stored. `mode`: as they are, capped, with the mask, behind the softmax.
Symbol Products(Importer& im, const Symbol& query, Symbol key, const Symbol& mask, const AttentionAttrs& attrs,
                int64_t mode) {
  const Shape q = im.ShapeOf(query), k = im.ShapeOf(key);
  const int64_t heads = q[1], kv_heads = k[1], queries = q[2], keys = k[2], depth = q[3];
  if (std::min({heads, kv_heads, queries, keys, depth}) < 1 || heads % kv_heads != 0) {
    Throw<ModelError>("its output 3 can be had where the extents of queries {} and keys {} are known", q, k);
  }
  std::vector<int64_t> shared;
  for (int64_t i = 0; i < heads; ++i) shared.push_back(i / (heads / kv_heads));
  key = Take(key, im.List(shared), {.axis = 1});
  const double scale = attrs.scale > 0 ? attrs.scale : 1 / std::sqrt(static_cast<double>(depth));
  Symbol scores = MatMul(query, key, {.transpose_b = true}) * scale;
  if (mode > 0 && attrs.softcap > 0) scores = Tanh(scores / attrs.softcap) * attrs.softcap;
  if (mode < 2) return scores;
  const DType dtype = im.DTypeOf(query);
  const auto number = [&](double value) { return bindery::Constant(HostTensor::Full(dtype, {}, value)); };
  CheckTerms(CheckedMul(queries, keys, "a matrix of scores"));
  HostTensor windows = HostTensor::Full(dtype, {queries, keys}, -kInfinity);
  for (int64_t i = 0; i < queries; ++i) {
    const KeyRange range = SeenKeys(attrs, i, keys);
    for (int64_t j = range.first; j < range.last; ++j) windows.Set(i * keys + j, 0);
  }
  Symbol bias = bindery::Constant(std::move(windows));
  if (!mask.empty()) {
    bias = bias + (im.DTypeOf(mask) == DType::kBool ? Where(mask, number(0), number(-kInfinity)) : mask);
  }
  scores = scores + bias;
  if (mode == 2) return scores;
  return Where(Greater(scores, number(-kInfinity)), Softmax(scores, {.axis = -1}), number(0));
}

// A mask may end before the last key: those behind it are not seen.
Symbol OfAllKeys(Importer& im, const Symbol& mask, int64_t keys) {
  const Shape shape = im.ShapeOf(mask);
  const int64_t last = shape.rank() - 1, width = shape.rank() == 0 ? 1 : shape[-1];
  if (width == kUnknownDim || width == 1 || width >= keys) return mask;
  const double value = im.DTypeOf(mask) == DType::kBool ? 0 : -kInfinity;
  return Pad(mask, {.begin = {0}, .end = {keys - width}, .axes = {last}, .value = value});
}

void ImportAttention(Importer& im) {
  im.Ignore({"softmax_precision"});  // ours adds up in float32, or in float64
  const bool causal = im.Flag("is_causal");
  AttentionAttrs attrs{.heads = im.Int("q_num_heads", 0),
                       .kv_heads = im.Int("kv_num_heads", 0),
                       .scale = im.Float("scale", 0),
                       .softcap = im.Float("softcap", 0),
                       .causal = causal,
                       .left_window = im.Int("left_window_size", -1),
                       .right_window = im.Int("right_window_size", -1)};
  const int64_t mode = im.Int("qk_matmul_output_mode", 0);
  Symbol query = im.In(0), key = im.In(1), value = im.In(2);
  const int rank = im.RankOf(query);
  if ((rank != 3 && rank != 4) || im.RankOf(key) != rank || im.RankOf(value) != rank) {
    Throw<ModelError>("inputs 0 to 2: expected 3 axes or 4, got {}, {} and {}", rank, im.RankOf(key), im.RankOf(value));
  }
  const bool folded = rank == 3;
  if (folded && (attrs.heads < 1 || attrs.kv_heads < 1)) {
    Throw<ModelError>("attributes \"q_num_heads\" and \"kv_num_heads\" are needed for inputs of three axes");
  }
  const bool has_past = im.Has(kPastKey);
  if (has_past != im.Has(kPastValue))
    Throw<ModelError>("input 4, the past keys, and input 5, the past values, go together");
  const bool has_filled = im.Has(kFilled), has_windows = causal || attrs.left_window >= 0 || attrs.right_window >= 0;
  if (has_past && has_filled) Throw<ModelError>("input 6, how many keys there are, and a past do not go together");
  const bool looks_inside =
      has_past || has_filled || im.IsRead(kPresentKey) || im.IsRead(kPresentValue) || im.IsRead(kProducts);
  if (folded && looks_inside) {
    query = Apart(query, attrs.heads);
    key = Apart(key, attrs.kv_heads);
    value = Apart(value, attrs.kv_heads);
  }
  const DType dtype = im.DTypeOf(query);
  Symbol mask = im.Has(kMask) ? im.In(kMask) : Symbol();
  if (!mask.empty() && !IsFloat(im.DTypeOf(mask)) && im.DTypeOf(mask) != DType::kBool) {
    mask = Cast(mask, {.dtype = dtype});
  }
  if (has_past) {  // queries come after its keys
    key = Concat({im.In(kPastKey), key}, {.axis = 2});
    value = Concat({im.In(kPastValue), value}, {.axis = 2});
  }
  if (!mask.empty()) mask = OfAllKeys(im, mask, im.ShapeOf(key)[folded && !looks_inside ? 1 : 2]);
  // Windows that are computed, where it is not known what place the first query has.
  const auto windows_at = [&](const Symbol& offset) {
    mask = Both(im, mask, Seen(query, key, offset, attrs.left_window, causal ? 0 : attrs.right_window), dtype);
    attrs.causal = false;
    attrs.left_window = attrs.right_window = -1;
  };
  if (has_past && has_windows) {
    attrs.offset = im.ShapeOf(im.In(kPastKey))[2];
    if (attrs.offset == kUnknownDim) {
      windows_at(ExtentOf(im.In(kPastKey), 2));
      attrs.offset = 0;
    }
  }
  if (has_filled) {  // queries are the last of so many keys, behind which nothing is
    const Symbol filled = Reshape(Cast(im.In(kFilled), {.dtype = DType::kInt64}), {.shape = {-1, 1, 1, 1}});
    if (has_windows) windows_at(filled - ExtentOf(query, 2));
    mask = Both(im, mask, Less(UpTo(ExtentOf(key, 2)), filled), dtype);
  }
  if (!folded || !looks_inside) {
    im.Out(Attention(query, key, value, mask, attrs, im.name()));
  } else {
    im.Out(Together(Attention(query, key, value, mask, attrs, im.name())));
  }
  if (im.IsRead(kPresentKey)) im.Out(kPresentKey, key);
  if (im.IsRead(kPresentValue)) im.Out(kPresentValue, value);
  if (im.IsRead(kProducts)) im.Out(kProducts, Products(im, query, key, mask, attrs, mode));
}

// The input (N, T, heads D) or (N, heads, T, D), turned by angles (N, 1, T, numbers / 2).
void OutTurned(Importer& im, int64_t heads, const Symbol& cosine, const Symbol& sine) {
  const Symbol x = im.In(0);
  const int rank = im.RankOf(x);
  if (rank != 3 && rank != 4) Throw<ModelError>("input 0: expected 3 or 4 axes, got {}", rank);
  const bool folded = rank == 3, interleaved = im.Flag("interleaved");
  const int64_t said = im.Int("rotary_embedding_dim", 0), last = im.ShapeOf(x)[-1], pairs = im.ShapeOf(cosine)[-1];
  if (folded && heads < 1) Throw<ModelError>("attribute \"num_heads\" is needed for an input of three axes");
  if (last == kUnknownDim || (folded && last % heads != 0)) Throw<ModelError>("{} numbers in all heads", last);
  const int64_t turned = said != 0 ? said : folded ? last / heads : last;
  if (turned % 2 != 0 || turned / 2 != pairs)
    Throw<ModelError>("{} numbers of each head are turned, by {} angles", turned, pairs);
  const Symbol y = Turned(im, folded ? Apart(x, heads) : x, cosine, sine, interleaved);
  im.Out(folded ? Together(y) : y);
}

void ImportRotaryEmbedding(Importer& im) {
  const auto angles = [&](int input) {
    return im.Has(3) ? AnglesAt(im, im.In(input), im.In(3)) : ExpandDims(im.In(input), {.axes = {1}});
  };
  OutTurned(im, im.Int("num_heads", 0), angles(1), angles(2));
}

// ONNX Runtime's has places first: one is that of the first query.
void ImportRotaryEmbeddingAtPlaces(Importer& im) {
  for (const char* key : {"is_packed_batching", "scale"}) {
    if (im.HasAttribute(key) && (key[0] == 's' ? im.Float(key, 1) != 1 : im.Flag(key))) {
      Throw<ModelError>("attribute \"{}\": only its default can be had", key);
    }
  }
  const Symbol x = im.In(0), time = ExtentOf(x, im.RankOf(x) == 4 ? 2 : 1);
  const Symbol places = im.RankOf(im.In(1)) == 1 ? Cast(im.In(1), {.dtype = DType::kInt64}) + UpTo(time) : im.In(1);
  int64_t heads = im.Int("num_heads", 0);
  if (const int64_t pairs = im.ShapeOf(im.In(2))[-1]; heads == 0 && pairs > 0) heads = im.ShapeOf(x)[-1] / 2 / pairs;
  OutTurned(im, heads, AnglesAt(im, im.In(2), places), AnglesAt(im, im.In(3), places));
}

}  // namespace

Symbol Apart(const Symbol& x, int64_t heads, const std::string& name) {
  return Transpose(Reshape(x, {.shape = {0, 0, heads, -1}}), {.axes = {0, 2, 1, 3}}, name);
}

Symbol Together(const Symbol& x, const std::string& name) {
  return Reshape(Transpose(x, {.axes = {0, 2, 1, 3}}), {.shape = {0, 0, -1}}, name);
}

Symbol Int64(int64_t value) {
  return bindery::Constant(HostTensor::Full(DType::kInt64, {}, static_cast<double>(value)));
}
Symbol ExtentOf(const Symbol& x, int64_t axis) {
  return Reshape(ShapeArray(x, {.begin = axis, .end = axis + 1}), {.shape = {}});
}
Symbol UpTo(const Symbol& extent) { return RangeBy({Int64(0), extent, Int64(1)}, RangeAttrs{.dtype = DType::kInt64}); }

Symbol Seen(const Symbol& query, const Symbol& key, const Symbol& offset, int64_t left, int64_t right) {
  const Symbol keys = UpTo(ExtentOf(key, 2)), places = ExpandDims(UpTo(ExtentOf(query, 2)), {.axes = {-1}}) + offset;
  Symbol seen;
  if (right >= 0) seen = LessEqual(keys, places + Int64(right));
  if (left < 0) return seen;
  const Symbol since = GreaterEqual(keys, places - Int64(left));
  return seen.empty() ? since : And(seen, since);
}

Symbol Added(const Symbol& seen, DType dtype, double otherwise) {
  const auto number = [&](double value) { return bindery::Constant(HostTensor::Full(dtype, {}, value)); };
  return Where(seen, number(0), number(otherwise));
}

Symbol Both(Importer& im, const Symbol& a, const Symbol& b, DType dtype) {
  if (a.empty() || b.empty()) return a.empty() ? b : a;
  const bool truths_a = im.DTypeOf(a) == DType::kBool, truths_b = im.DTypeOf(b) == DType::kBool;
  if (truths_a && truths_b) return And(a, b);
  return Add(truths_a ? Added(a, dtype, -kInfinity) : a, truths_b ? Added(b, dtype, -kInfinity) : b);
}

Symbol Turned(Importer& im, const Symbol& x, const Symbol& cosine, const Symbol& sine, bool interleaved) {
  const int64_t half = im.ShapeOf(cosine)[-1], depth = im.ShapeOf(x)[-1];
  if (half < 1 || half > depth / 2) Throw<ModelError>("{} angles for heads of {} numbers", half, depth);
  const auto numbers = [&](int64_t begin, int64_t end, int64_t step) {
    return Slice(x, {.begin = {begin}, .end = {end}, .step = {step}, .axes = {3}});
  };
  const Symbol a = interleaved ? numbers(0, 2 * half, 2) : numbers(0, half, 1);
  const Symbol b = interleaved ? numbers(1, 2 * half, 2) : numbers(half, 2 * half, 1);
  Symbol first = cosine * a - sine * b, second = sine * a + cosine * b;
  if (interleaved) {
    first = ExpandDims(first, {.axes = {-1}});
    second = ExpandDims(second, {.axes = {-1}});
  }
  Symbol y = Concat({first, second}, {.axis = -1});
  if (interleaved) y = Reshape(y, {.shape = {0, 0, 0, -1}});
  return 2 * half < depth ? Concat({y, numbers(2 * half, depth, 1)}, {.axis = -1}) : y;
}

Symbol AnglesAt(Importer& im, const Symbol& table, const Symbol& places) {
  const Symbol rows = Take(table, places);
  return im.RankOf(rows) == 3 ? ExpandDims(rows, {.axes = {1}}) : rows;
}

std::span<const ImportRow> AttentionImports() {
  static const std::vector<ImportRow> rows = {
      {"Attention", 23, ImportAttention},
      {"RotaryEmbedding", 23, ImportRotaryEmbedding},
      {"com.microsoft.Attention", 1, ImportProjectedAttention},
      {"com.microsoft.GroupQueryAttention", 1, ImportGroupQueryAttention},
      {"com.microsoft.MultiHeadAttention", 1, ImportMultiHeadAttention},
      {"com.microsoft.QAttention", 1, ImportQuantizedAttention},
      {"com.microsoft.RotaryEmbedding", 1, ImportRotaryEmbeddingAtPlaces},
  };
  return rows;
}

}  // namespace bindery::onnx
