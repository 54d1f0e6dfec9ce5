#include "symbol/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/error.h"
#include "symbol/ops/broadcast.h"
#include "symbol/ops/fully_connected.h"
#include "symbol/ops/rules.h"

namespace bindery {
namespace {

using rule::Value;

void CheckAttentionAttrs(const AttentionAttrs& attrs) {
  rule::CheckAtLeast("heads", attrs.heads, 0);
  rule::CheckAtLeast("kv_heads", attrs.kv_heads, 0);
  if (attrs.heads > 0 && attrs.kv_heads > 0 && attrs.heads % attrs.kv_heads != 0) {
    Throw<ModelError>("heads {} are not divisible by kv_heads {}", attrs.heads, attrs.kv_heads);
  }
  rule::CheckNotNegative("scale", attrs.scale);
  rule::CheckNotNegative("softcap", attrs.softcap);
  rule::CheckAtLeast("left_window", attrs.left_window, -1);
  rule::CheckAtLeast("right_window", attrs.right_window, -1);
  constexpr int64_t kMost = INT32_MAX;  // so that a sum of two overflows nowhere
  if (std::max({attrs.left_window, attrs.right_window, std::abs(std::max(attrs.offset, -kMost - 1))}) > kMost) {
    Throw<ModelError>("windows and offset must be at most {}", kMost);
  }
}

// What is known of an extent, from several places.
class Known {
 public:
  operator int64_t() const { return extent_; }  // NOLINT: it is one
  void Add(int64_t extent) {
    if (extent_ == kUnknownDim) extent_ = extent;  // where they differ, setting shapes complains
  }
  // Of an axis that holds so many parts of this extent.
  void AddPart(int64_t whole, int64_t parts, const char* what) {
    if (whole == kUnknownDim || parts == kUnknownDim) return;
    if (parts == 0 || whole % parts != 0)
      Throw<ShapeError>("an extent of {} is not divisible by {} {}", whole, parts, what);
    Add(whole / parts);
  }

 private:
  int64_t extent_ = kUnknownDim;
};

int64_t Product(int64_t a, int64_t b) {
  return a == kUnknownDim || b == kUnknownDim ? kUnknownDim : CheckedMul(a, b, "an extent");
}

struct AttentionValues {
  Value query, key, value, mask, output, maximum, log_sum;
  std::optional<Value> score_grads = {};  // (N, H, T, S)
};

void InferShapes(const AttentionAttrs& attrs, const AttentionValues& v) {
  const Value tensors[] = {v.query, v.key, v.value, v.output};
  int rank = 0;
  for (const Value& value : tensors) {
    if (value.shape()) rank = value.shape()->rank();
  }
  if (rank == 0) return;
  if (rank != 3 && rank != 4) Throw<ShapeError>("expected 4 axes (N, H, T, D), or 3 (N, T, H D), got {}", rank);
  const bool apart = rank == 4;  // are heads an axis of their own?
  if (!apart && attrs.heads == 0) throw ShapeError("heads must be told where they have no axis of their own");
  for (const Value& value : tensors) value.Set(rule::Unknown(rank));
  const Shape q = *v.query.shape(), k = *v.key.shape(), e = *v.value.shape(), y = *v.output.shape();

  Known samples, heads, kv_heads, queries, keys, depth, width;
  if (attrs.heads > 0) heads.Add(attrs.heads);
  if (attrs.kv_heads > 0) kv_heads.Add(attrs.kv_heads);
  for (const Shape& shape : {q, k, e, y}) samples.Add(shape[0]);
  for (const Shape& shape : {q, y}) {
    if (apart) heads.Add(shape[1]);
    queries.Add(shape[rank - 2]);
  }
  for (const Shape& shape : {k, e}) {
    if (apart) kv_heads.Add(shape[1]);
    keys.Add(shape[rank - 2]);
  }
  if (!apart) kv_heads.Add(heads);
  if (heads != kUnknownDim && kv_heads != kUnknownDim && (kv_heads == 0 || heads % kv_heads != 0)) {
    Throw<ShapeError>("{} heads of queries are not divisible by {} of keys", int64_t{heads}, int64_t{kv_heads});
  }
  depth.AddPart(q[-1], apart ? 1 : heads, "heads");
  depth.AddPart(k[-1], apart ? 1 : kv_heads, "heads");
  width.AddPart(e[-1], apart ? 1 : kv_heads, "heads");
  width.AddPart(y[-1], apart ? 1 : heads, "heads");
  const auto set = [&](Value value, int64_t h, int64_t rows, int64_t columns) {
    value.Set(apart ? Shape{samples, h, rows, columns} : Shape{samples, rows, Product(h, columns)});
  };
  set(v.query, heads, queries, depth);
  set(v.key, kv_heads, keys, depth);
  set(v.value, kv_heads, keys, width);
  set(v.output, heads, queries, width);
  for (const Value& of_query : {v.maximum, v.log_sum}) of_query.Set({samples, heads, queries});
  const Shape scores{samples, heads, queries, keys};
  if (v.score_grads) v.score_grads->Set(scores);
  if (v.mask.shape() && !rule::StretchesTo(*v.mask.shape(), scores)) {
    Throw<ShapeError>("a mask {} does not stretch to {}", *v.mask.shape(), scores);
  }
}

void InferTypes(const AttentionValues& v) {
  rule::SameDType({v.query, v.key, v.value, v.output});
  const std::optional<DType> dtype = v.query.dtype();
  if (!dtype) return;
  rule::ExpectFloat(v.query);
  for (const Value& of_query : {v.maximum, v.log_sum}) of_query.SetDType(rule::StatisticsDType(*dtype));
  if (v.score_grads) v.score_grads->SetDType(*dtype);
  if (v.mask.dtype() != DType::kBool) v.mask.SetDType(*dtype);
}

// Samples stay apart; a mask has them if it has that axis.
void CarrySamples(const Value& value, const Value& to, int rank) {
  if (!value.shape()) return;
  value.Carry(to, [&](int axis) { return axis == 0 && value.shape()->rank() == rank ? 0 : -1; });
}

bool IsMasked(const AttentionGradAttrs& attrs) { return attrs.masked; }

void InferAttention(InferContext& c) {
  const AttentionValues v{c.in(0), c.in(1), c.in(2), c.in(3), c.out(0), c.out(1), c.out(2)};
  InferTypes(v);
  InferShapes(c.attrs<AttentionAttrs>(), v);
  for (const Value& to : {v.output, v.maximum, v.log_sum}) {
    for (const Value& from : {v.query, v.key, v.value}) CarrySamples(from, to, from.shape() ? from.shape()->rank() : 0);
    CarrySamples(v.mask, to, 4);
  }
}

void InferAttentionGrad(InferContext& c) {
  const AttentionValues v{c.in(1), c.in(2), c.in(3), c.in(4), c.in(5), c.in(6), c.in(7), c.out(3)};
  rule::Same({c.in(0), v.output});
  rule::Same({c.out(0), v.query});
  rule::Same({c.out(1), v.key});
  rule::Same({c.out(2), v.value});
  InferTypes(v);
  InferShapes(c.any_attrs().get<AttentionGradAttrs>(), v);
  for (int i = 0; i < 4; ++i) {
    for (int from : {0, 1, 2, 3, 5, 6, 7})
      CarrySamples(c.in(from), c.out(i), c.in(from).shape() ? c.in(from).shape()->rank() : 0);
    CarrySamples(v.mask, c.out(i), 4);
  }
}

std::vector<Symbol> AttentionGradient(const GradientContext& g) {
  AttentionGradAttrs attrs{g.attrs<AttentionAttrs>(), false};
  attrs.mask_grad = attrs.masked && g.wants(3) && g.dtype(3) != DType::kBool;
  std::vector<Symbol> inputs = {g.output_grad(0)};
  for (int i = 0; i < g.num_inputs(); ++i) inputs.push_back(g.input(i));
  for (int i = 0; i < 3; ++i) inputs.push_back(g.output(i));
  const Symbol grads = Apply(AttentionGradOp(), attrs, std::move(inputs), "");
  std::vector<Symbol> result = {grads[0], grads[1], grads[2]};
  if (attrs.masked) result.push_back(attrs.mask_grad ? rule::SumTo(grads[3], g.shape(3)) : Symbol());
  return result;
}

// Scores of all queries with all keys, and sums of values; of gradients, which compute the scores again, four products
// more.
double OperationsOfAttention(const Shape& query, const Shape& key, const Shape& output, double of_query,
                             double of_output) {
  return (of_query * static_cast<double>(query.Elements()) + of_output * static_cast<double>(output.Elements())) *
         static_cast<double>(key[-2]);
}

}  // namespace

Symbol Attention(const Symbol& query, const Symbol& key, const Symbol& value, const AttentionAttrs& attrs,
                 const std::string& name) {
  return Apply(AttentionOp(), attrs, {query, key, value}, name);
}

Symbol Attention(const Symbol& query, const Symbol& key, const Symbol& value, const Symbol& mask, AttentionAttrs attrs,
                 const std::string& name) {
  attrs.masked = !mask.empty();
  if (mask.empty()) return Attention(query, key, value, attrs, name);
  return Apply(AttentionOp(), attrs, {query, key, value, mask}, name);
}

Symbol MultiHeadAttention(const Symbol& query, const Symbol& key, const Symbol& value, const Symbol& mask,
                          const MultiHeadAttentionAttrs& attrs, const std::string& name) {
  if (name.empty()) throw ModelError("MultiHeadAttention: the name must be given, its projections are named after it");
  const int64_t kv_heads = attrs.kv_heads == 0 ? attrs.heads : attrs.kv_heads;
  if (attrs.heads < 1 || attrs.width < 1 || attrs.width % attrs.heads != 0 || kv_heads < 1 ||
      attrs.heads % kv_heads != 0) {
    Throw<ModelError>(
        "MultiHeadAttention \"{}\": expected width to be a multiple of heads and heads one of kv_heads, got {}, {} and "
        "{}",
        name, attrs.width, attrs.heads, kv_heads);
  }
  const auto project = [&](const Symbol& x, int64_t width, const char* part) {
    return FullyConnected(x, {.num_hidden = width, .no_bias = attrs.no_bias, .flatten = false}, name + part);
  };
  const int64_t kv_width = attrs.width / attrs.heads * kv_heads;
  const Symbol y = Attention(project(query, attrs.width, "_query"), project(key, kv_width, "_key"),
                             project(value, kv_width, "_value"), mask,
                             {.heads = attrs.heads, .kv_heads = kv_heads, .causal = attrs.causal}, name + "_attention");
  return project(y, attrs.width, "_output");
}

AttentionForm FormOf(const AttentionAttrs& attrs, const Shape& query, const Shape& key, const Shape& value) {
  const bool apart = query.rank() == 4;
  AttentionForm f{};
  f.samples = query[0];
  f.heads = apart ? query[1] : attrs.heads;
  f.kv_heads = apart ? key[1] : attrs.kv_heads == 0 ? attrs.heads : attrs.kv_heads;
  f.queries = query[-2];
  f.keys = key[-2];
  f.depth = apart ? query[3] : query[2] / f.heads;
  f.width = apart ? value[3] : value[2] / f.kv_heads;
  const auto strides = [apart](int64_t heads, int64_t rows, int64_t columns) -> AttentionForm::Strides {
    return {heads * rows * columns, apart ? rows * columns : columns, apart ? columns : heads * columns};
  };
  f.query = strides(f.heads, f.queries, f.depth);
  f.key = strides(f.kv_heads, f.keys, f.depth);
  f.value = strides(f.kv_heads, f.keys, f.width);
  f.output = strides(f.heads, f.queries, f.width);
  f.scale = attrs.scale > 0 ? attrs.scale : 1 / std::sqrt(static_cast<double>(f.depth));
  return f;
}

std::array<int64_t, 4> MaskStrides(const Shape& mask) {
  std::array<int64_t, 4> strides{};
  for (int axis = 1; axis <= mask.rank(); ++axis) {
    strides[4 - axis] = mask[-axis] == 1 ? 0 : mask.CountFrom(mask.rank() - axis + 1);
  }
  return strides;
}

KeyRange SeenKeys(const AttentionAttrs& attrs, int64_t query, int64_t keys) {
  const int64_t place = query + attrs.offset, right = attrs.causal ? 0 : attrs.right_window;
  const int64_t first = attrs.left_window < 0 ? 0 : place - attrs.left_window;
  const int64_t last = right < 0 ? keys : place + right + 1;
  return {std::clamp<int64_t>(first, 0, keys), std::clamp<int64_t>(last, 0, keys)};
}

const OpDef& AttentionOp() {
  static const OpDef op = {
      .name = "Attention",
      .doc = "y = softmax(cap(scale q k^T) + mask) v, of what the windows let a query see, for each sample and head.",
      .attrs_type = &AttrsOf<AttentionAttrs>(),
      .inputs = {"query", "key", "value", Optional("attention_mask", If(&AttentionAttrs::masked))},
      .outputs = {"output", Hidden("maximum"), Hidden("log_sum")},
      .infer = InferAttention,
      .check = [](const AnyAttrs& attrs) { CheckAttentionAttrs(attrs.get<AttentionAttrs>()); },
      .gradient = AttentionGradient,
      .operations = [](auto in, auto out) { return OperationsOfAttention(in[0], in[1], out[0], 2, 2); },
  };
  return op;
}

// With p = exp(s - maximum - log_sum) of the scores s, and dp = dy v^T: ds = p (dp - sum_e dy_e y_e) for each query,
// and dv = p^T dy, dq = scale ds k, dk = scale ds^T q. Of maximum + log_sum nothing of the latter would be left where a
// mask of great numbers hides all keys.
const OpDef& AttentionGradOp() {
  static const OpDef op = {
      .name = "AttentionGrad",
      .doc = "Attention's gradients, for which the scores are computed again.",
      .attrs_type = &AttrsOf<AttentionGradAttrs>(),
      .inputs = {"output_grad", "query", "key", "value", Optional("attention_mask", If(IsMasked)), "output", "maximum",
                 "log_sum"},
      .outputs = {"query_grad", "key_grad", "value_grad", Optional("score_grad", If(&AttentionGradAttrs::mask_grad))},
      .infer = InferAttentionGrad,
      .check = [](const AnyAttrs& attrs) { CheckAttentionAttrs(attrs.get<AttentionGradAttrs>()); },
      .not_differentiable = "the second derivative of attention is not provided",
      .operations = [](auto in, auto) { return OperationsOfAttention(in[1], in[2], in[0], 6, 4); },
  };
  return op;
}

}  // namespace bindery
