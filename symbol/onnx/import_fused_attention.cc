// Attention of ONNX Runtime's own domain.
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "symbol/onnx/attention.h"
#include "symbol/ops.h"

namespace bindery::onnx {
namespace {

// Attributes, as far as their numbers are not these, and inputs and outputs behind what is known.
void CheckDefaults(const Importer& im, std::initializer_list<std::pair<const char*, int64_t>> attributes,
                   std::initializer_list<int> inputs, std::initializer_list<int> outputs) {
  for (const auto& [key, number] : attributes) {
    if (im.Int(key, number) != number) Throw<ModelError>("attribute \"{}\": only {} can be had", key, number);
  }
  for (const int input : inputs) {
    if (im.Has(input)) Throw<ModelError>("its input {} cannot be had", input);
  }
  for (const int output : outputs) {
    if (im.IsRead(output)) Throw<ModelError>("its output {} cannot be had", output);
  }
}

int64_t Heads(const Importer& im, const char* key) {
  const int64_t heads = im.Int(key, 0);
  constexpr int64_t kMost = 1 << 20;
  if (heads < 1 || heads > kMost) {
    Throw<ModelError>("attribute \"{}\": expected 1 to {}, got {}", key, kMost, heads);
  }
  return heads;
}

// The extent of the last axis, which has to be known.
int64_t WidthOf(Importer& im, const Symbol& x) {
  const Shape shape = im.ShapeOf(x);
  const int64_t width = shape.rank() == 0 ? kUnknownDim : shape[-1];
  if (width == kUnknownDim) Throw<ModelError>("the width of {} is not known{}", shape, im.HowToState());
  return width;
}

// Neighbouring parts of these widths along the last axis.
std::vector<Symbol> Parts(const Symbol& x, const std::vector<int64_t>& widths) {
  std::vector<Symbol> parts;
  int64_t begin = 0;
  for (const int64_t width : widths) {
    if (width < 1) Throw<ModelError>("widths of queries, keys and values: expected more than 0, got {}", width);
    parts.push_back(Slice(x, {.begin = {begin}, .end = {begin + width}, .axes = {-1}}));
    begin += width;
  }
  return parts;
}

// Part i of an axis, which goes.
Symbol PartAt(const Symbol& x, int64_t axis, int64_t i) {
  return Squeeze(Slice(x, {.begin = {i}, .end = {i + 1}, .axes = {axis}}), {.axes = {axis}});
}

// What is added to scores for a mask of keys that are padding: of int, 0 where they are, (N, S) or (N, T, S); or how
// many there are before the padding, (N).
Symbol OfPadding(Importer& im, int input, const Symbol& key, DType dtype) {
  const Symbol mask = Cast(im.In(input), {.dtype = DType::kInt64});
  const int rank = im.RankOf(mask);
  const PartialExtents counts = im.ExtentsOf(mask), samples = im.ExtentsOf(key);
  if (rank < 1 || rank > 3 || (rank == 1 && counts[0] != samples[0])) {
    Throw<ModelError>("input {}: a mask of keys, or how many there are of each sample, can be had, got {}", input,
                      im.ShapeOf(mask));
  }
  const Symbol seen =
      rank == 1 ? Less(UpTo(ExtentOf(key, 2)), Reshape(mask, {.shape = {-1, 1, 1, 1}}))
                : Greater(ExpandDims(mask, {.axes = rank == 2 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1}}),
                          Int64(0));
  return Added(seen, dtype, im.Float("mask_filter_value", -10000));
}

// Queries, keys and values (N, heads, T, D), those of the past, which may be empty, masks, and where queries come
// after the past, causal: the result (N, T, heads D), for output 0; `key` and `value` become those of the past, too.
Symbol Attended(Importer& im, const Symbol& query, Symbol* key, Symbol* value, const Symbol& past_key,
                const Symbol& past_value, int padding, int bias, bool causal) {
  im.Ignore({"mask_filter_value"});  // without a mask
  Symbol offset = Int64(0);
  if (!past_key.empty()) {
    offset = ExtentOf(past_key, 2);
    *key = Concat({past_key, *key}, {.axis = 2});
    *value = Concat({past_value, *value}, {.axis = 2});
  }
  const DType dtype = im.DTypeOf(query);
  Symbol mask = im.Has(padding) ? OfPadding(im, padding, *key, dtype) : Symbol();
  if (im.Has(bias)) mask = Both(im, mask, im.In(bias), dtype);
  AttentionAttrs attrs{.scale = im.Float("scale", 0), .causal = causal && past_key.empty()};
  if (causal && !past_key.empty()) mask = Both(im, mask, Seen(query, *key, offset, -1, 0), dtype);
  return Together(Attention(query, *key, *value, mask, attrs), im.name());
}

// (N, T, all three) by the widths that are said, or thirds. The past is keys and values in one.
void OutAttended(Importer& im, const Symbol& projected, int padding, int past, int bias) {
  CheckDefaults(im, {{"do_rotary", 0}, {"past_present_share_buffer", 0}}, {}, {});
  im.Ignore({"rotary_embedding_dim"});
  const int64_t heads = Heads(im, "num_heads"), all = WidthOf(im, projected);
  std::vector<int64_t> widths = im.Ints("qkv_hidden_sizes");
  if (widths.empty()) widths.assign(3, all / 3);
  if (widths.size() != 3 || CheckedAdd(CheckedAdd(widths[0], widths[1]), widths[2]) != all) {
    Throw<ModelError>("{} numbers of queries, keys and values are not as many as their widths say", all);
  }
  std::vector<Symbol> parts = Parts(projected, widths);
  for (Symbol& part : parts) part = Apart(part, heads);
  const bool has_past = im.Has(past);
  const Symbol past_key = has_past ? PartAt(im.In(past), 0, 0) : Symbol();
  const Symbol past_value = has_past ? PartAt(im.In(past), 0, 1) : Symbol();
  im.Out(Attended(im, parts[0], &parts[1], &parts[2], past_key, past_value, padding, bias, im.Flag("unidirectional")));
  if (im.IsRead(1)) {
    im.Out(1, Concat({ExpandDims(parts[1], {.axes = {0}}), ExpandDims(parts[2], {.axes = {0}})}, {.axis = 0}));
  }
}

}  // namespace

void ImportProjectedAttention(Importer& im) {
  CheckDefaults(im, {}, {6}, {});
  const Symbol projected = MatMul(im.In(0), im.WeightIn(1));
  OutAttended(im, im.Has(2) ? Add(projected, im.WeightIn(2)) : projected, 3, 4, 5);
}

// Input and weight are integers, with scales 3 and 4 and zero points 6 and 7.
void ImportQuantizedAttention(Importer& im) {
  const auto real = [&](int input, int scale, int zero) {
    std::vector<Symbol> inputs = {im.IntegersIn(input), Step(im, scale)};
    if (im.Has(zero)) inputs.push_back(Step(im, zero));
    return Apply(DequantizeLinearOp(), DequantizeAttrs{.axis = -1, .no_zero_point = !im.Has(zero)}, inputs);
  };
  OutAttended(im, Add(MatMul(real(0, 3, 6), real(1, 4, 7)), im.WeightIn(2)), 5, 8, INT32_MAX);
}

void ImportMultiHeadAttention(Importer& im) {
  CheckDefaults(im, {}, {8, 9}, {3});
  const int64_t heads = Heads(im, "num_heads");
  std::vector<Symbol> parts;
  const Symbol query = im.In(0);
  const int rank = im.RankOf(query);
  if (rank == 5) {  // (N, T, heads, 3, D)
    for (const int64_t i : {0, 1, 2}) parts.push_back(Reshape(PartAt(query, 3, i), {.shape = {0, 0, -1}}));
  } else if (im.RankOf(im.In(1)) == 5) {  // (N, S, heads, 2, D)
    parts = {query};
    for (const int64_t i : {0, 1}) parts.push_back(Reshape(PartAt(im.In(1), 3, i), {.shape = {0, 0, -1}}));
  } else {
    parts = {query, im.In(1), im.In(2)};
  }
  std::vector<Symbol> biases;
  if (im.Has(3)) {
    const int64_t width = WidthOf(im, parts[0]);
    const std::vector<int64_t> widths = {width, width, CheckedAdd(WidthOf(im, im.In(3)), -CheckedMul(2, width))};
    biases = Parts(im.WeightIn(3), widths);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (im.RankOf(parts[i]) == 4) continue;  // of another sequence, with heads apart and its bias added
    if (!biases.empty()) parts[i] = Add(parts[i], biases[i]);
    parts[i] = Apart(parts[i], heads);
  }
  if (im.Has(6) != im.Has(7)) Throw<ModelError>("input 6, the past keys, and input 7, the past values, go together");
  const Symbol past_key = im.Has(6) ? im.In(6) : Symbol(), past_value = im.Has(7) ? im.In(7) : Symbol();
  im.Out(Attended(im, parts[0], &parts[1], &parts[2], past_key, past_value, 4, 5, im.Flag("unidirectional")));
  im.Out(1, parts[1]);
  im.Out(2, parts[2]);
}

// Each sample has keys of its own number, of which input 5 tells the last: what is new lies behind those of the past.
void ImportGroupQueryAttention(Importer& im) {
  CheckDefaults(im, {{"causal", 1}, {"qk_output", 0}, {"kv_cache_bit_width", 0}, {"sliding_window_cache", 0}},
                {11, 12, 13, 14, 15, 16}, {3});
  if (im.Int("smooth_softmax", -1) == 1) Throw<ModelError>("attribute \"smooth_softmax\": 1 cannot be had");
  im.Ignore({"k_quant_type", "v_quant_type", "q_norm_epsilon", "k_norm_epsilon", "qk_norm_epsilon"});
  const int64_t heads = Heads(im, "num_heads"), kv_heads = Heads(im, "kv_num_heads");
  std::vector<Symbol> parts = {im.In(0)};
  if (im.Has(1)) {
    parts.insert(parts.end(), {im.In(1), im.In(2)});
  } else {
    const int64_t all = WidthOf(im, parts[0]), depth = all / (heads + 2 * kv_heads);
    if (depth * (heads + 2 * kv_heads) != all) {
      Throw<ModelError>("input 0: {} numbers cannot be shared by {} heads of queries and twice {}", all, heads,
                        kv_heads);
    }
    parts = Parts(parts[0], {heads * depth, kv_heads * depth, kv_heads * depth});
  }
  for (size_t i = 0; i < 3; ++i) parts[i] = Apart(parts[i], i == 0 ? heads : kv_heads);
  const Symbol count = ExtentOf(parts[0], 2);
  const Symbol last = Reshape(Cast(im.In(5), {.dtype = DType::kInt64}), {.shape = {-1, 1}});
  const Symbol past = Maximum(last + Int64(1) - count, Int64(0));  // (N, 1)
  if (im.Flag("do_rotary")) {
    const Symbol places = im.Has(9) ? im.In(9) : past + UpTo(count);
    const Symbol cosine = AnglesAt(im, im.In(7), places), sine = AnglesAt(im, im.In(8), places);
    for (const size_t i : {0, 1}) parts[i] = Turned(im, parts[i], cosine, sine, im.Flag("rotary_interleaved"));
  } else {
    im.Ignore({"rotary_interleaved"});
  }
  if (im.Has(3) != im.Has(4)) Throw<ModelError>("input 3, the past keys, and input 4, the past values, go together");
  if (im.Has(3)) {
    const Symbol room = ExtentOf(im.In(3), 2), places = UpTo(room + count);
    const Symbol from = Where(Less(places, past), places, places + room - past);  // (N, keys)
    const TakeAttrs each{.axis = 2, .batch_dims = 1, .mode = IndexMode::kZero};   // behind the last
    for (const int i : {1, 2}) {
      Symbol& part = parts[static_cast<size_t>(i)];
      part = Take(Concat({im.In(i + 2), part}, {.axis = 2}), from, each);
    }
  }
  const int64_t window = im.Int("local_window_size", -1);
  const Symbol offset = Reshape(past, {.shape = {-1, 1, 1, 1}});
  const DType dtype = im.DTypeOf(parts[0]);
  Symbol mask = Seen(parts[0], parts[1], offset, window > 0 ? window - 1 : -1, 0);
  if (im.Has(10)) mask = Both(im, mask, im.In(10), dtype);
  const AttentionAttrs attrs{.scale = im.Float("scale", 0), .softcap = im.Float("softcap", 0)};
  im.Out(Together(Attention(parts[0], parts[1], parts[2], mask, attrs), im.name()));
  im.Out(1, parts[1]);
  im.Out(2, parts[2]);
}

}  // namespace bindery::onnx
