// Attention, and places told by angles.
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "symbol/onnx/importer.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kMask = 3, kPastKey = 4, kPastValue = 5;            // inputs
constexpr int kPresentKey = 1, kPresentValue = 2, kProducts = 3;  // outputs

// (N, T, heads D) as (N, heads, T, D).
Symbol Apart(const Symbol& x, int64_t heads, const std::string& name = {}) {
  return Transpose(Reshape(x, {.shape = {0, 0, heads, -1}}), {.axes = {0, 2, 1, 3}}, name);
}

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

void ImportAttention(Importer& im) {
  im.Ignore({"softmax_precision"});  // ours adds up in float32, or in float64
  const bool causal = im.Flag("is_causal");
  AttentionAttrs attrs{.heads = im.Int("q_num_heads", 0),
                       .kv_heads = im.Int("kv_num_heads", 0),
                       .scale = im.Float("scale", 0),
                       .softcap = im.Float("softcap", 0),
                       .causal = causal};
  const int64_t mode = im.Int("qk_matmul_output_mode", 0);
  if (im.num_inputs() > 6) Throw<ModelError>("its inputs behind the sixth cannot be had");
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
  const bool looks_inside = has_past || im.IsRead(kPresentKey) || im.IsRead(kPresentValue) || im.IsRead(kProducts);
  if (folded && looks_inside) {
    query = Apart(query, attrs.heads);
    key = Apart(key, attrs.kv_heads);
    value = Apart(value, attrs.kv_heads);
  }
  if (has_past) {  // queries come after the keys of the past
    attrs.offset = im.ShapeOf(im.In(kPastKey))[im.AxisOf(im.In(kPastKey), 2)];
    if (causal && attrs.offset == kUnknownDim)
      Throw<ModelError>("input 4: it is not known how many past keys there are");
    if (!causal) attrs.offset = 0;
    key = Concat({im.In(kPastKey), key}, {.axis = 2});
    value = Concat({im.In(kPastValue), value}, {.axis = 2});
  }
  Symbol mask = im.Has(kMask) ? im.In(kMask) : Symbol();
  if (!mask.empty() && !IsFloat(im.DTypeOf(mask)) && im.DTypeOf(mask) != DType::kBool) {
    mask = Cast(mask, {.dtype = im.DTypeOf(query)});
  }
  if (!folded || !looks_inside) {
    im.Out(Attention(query, key, value, mask, attrs, im.name()));
  } else {
    const Symbol y = Transpose(Attention(query, key, value, mask, attrs, im.name()), {.axes = {0, 2, 1, 3}});
    im.Out(Reshape(y, {.shape = {0, 0, -1}}));
  }
  if (im.IsRead(kPresentKey)) im.Out(kPresentKey, key);
  if (im.IsRead(kPresentValue)) im.Out(kPresentValue, value);
  if (im.IsRead(kProducts)) im.Out(kProducts, Products(im, query, key, mask, attrs, mode));
}

// Su et al. 2021, "RoFormer": the first `rotary_embedding_dim` numbers of each head (0: all) are pairs, turned by the
// angles of their places. A pair is number i of either half, or interleaved two neighbours.
void ImportRotaryEmbedding(Importer& im) {
  const Symbol x = im.In(0);
  const int rank = im.RankOf(x);
  if (rank != 3 && rank != 4) Throw<ModelError>("input 0: expected 3 or 4 axes, got {}", rank);
  const bool folded = rank == 3, interleaved = im.Flag("interleaved");
  const int64_t heads = im.Int("num_heads", 0), last = im.ShapeOf(x)[-1];
  if (folded && heads < 1) Throw<ModelError>("attribute \"num_heads\" is needed for an input of three axes");
  if (last == kUnknownDim || (folded && last % heads != 0)) Throw<ModelError>("{} numbers in all heads", last);
  const int64_t depth = folded ? last / heads : last, said = im.Int("rotary_embedding_dim", 0);
  const int64_t turned = said == 0 ? depth : said;
  if (turned < 2 || turned > depth || turned % 2 != 0) Throw<ModelError>("{} of {} numbers are turned", turned, depth);
  const Symbol apart = folded ? Apart(x, heads) : x;  // (N, heads, T, depth)
  const auto numbers = [&](int64_t begin, int64_t end, int64_t step) {
    return Slice(apart, {.begin = {begin}, .end = {end}, .step = {step}, .axes = {3}});
  };
  const int64_t half = turned / 2;
  const Symbol a = interleaved ? numbers(0, turned, 2) : numbers(0, half, 1);
  const Symbol b = interleaved ? numbers(1, turned, 2) : numbers(half, turned, 1);
  const auto angles = [&](int input) {  // (N, 1, T, half)
    const Symbol of_places = im.Has(3) ? Take(im.In(input), im.In(3)) : im.In(input);
    return ExpandDims(of_places, {.axes = {1}});
  };
  const Symbol cosine = angles(1), sine = angles(2);
  Symbol first = cosine * a - sine * b, second = sine * a + cosine * b;
  if (interleaved) {
    first = ExpandDims(first, {.axes = {-1}});
    second = ExpandDims(second, {.axes = {-1}});
  }
  Symbol y = Concat({first, second}, {.axis = -1});
  if (interleaved) y = Reshape(y, {.shape = {0, 0, 0, -1}});
  if (turned < depth) y = Concat({y, numbers(turned, depth, 1)}, {.axis = -1});
  im.Out(folded ? Reshape(Transpose(y, {.axes = {0, 2, 1, 3}}), {.shape = {0, 0, -1}}) : y);
}

}  // namespace

std::span<const ImportRow> AttentionImports() {
  static const std::vector<ImportRow> rows = {
      {"Attention", 23, ImportAttention},
      {"RotaryEmbedding", 23, ImportRotaryEmbedding},
  };
  return rows;
}

}  // namespace bindery::onnx
