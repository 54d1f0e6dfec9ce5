#include "symbol/ops/attention.h"

#include "tests/executor/cases/operator_cases.h"

namespace bindery {

std::vector<OperatorCase> AttentionCases() {
  std::vector<OperatorCase> cases;
  const Symbol q = Variable("q"), k = Variable("k"), v = Variable("v"), mask = Variable("mask");
  struct Sizes {
    int64_t heads = 2, kv_heads = 2, queries = 3, keys = 4, depth = 3, width = 2;
  };
  const auto add = [&](const std::string& name, const AttentionAttrs& attrs, const Sizes& s) -> OperatorCase& {
    cases.push_back({.name = "attention, " + name,
                     .symbol = Attention(q, k, v, attrs, "y"),
                     .inputs = {{"q", Uniform({2, s.heads, s.queries, s.depth})},
                                {"k", Uniform({2, s.kv_heads, s.keys, s.depth}, -2, 2)},
                                {"v", Uniform({2, s.kv_heads, s.keys, s.width}, -1, 2)}},
                     .batch_axes = {{"q", 0}, {"k", 0}, {"v", 0}},
                     .terms = static_cast<double>(s.keys * s.depth),
                     .tolerance = 4,
                     .magnitude = 1});
    return cases.back();
  };
  add("plain", {}, {}).wrong_shapes = {{{"q", {2, 2, 3, 3}}, {"k", {2, 2, 4, 5}}, {"v", {2, 2, 4, 2}}},
                                       {{"q", {2, 3, 3, 3}}, {"k", {2, 2, 4, 3}}, {"v", {2, 2, 4, 2}}},
                                       {{"q", {2, 2, 3, 3}}, {"k", {2, 2, 4, 3}}, {"v", {2, 2, 5, 2}}}};
  add("scaled", {.scale = 0.5}, {.depth = 5});
  add("capped", {.scale = 2, .softcap = 1.5}, {});
  add("causal", {.causal = true}, {.queries = 5, .keys = 5});
  add("causal with fewer queries", {.causal = true, .offset = 2}, {.queries = 3, .keys = 5});
  add("causal with queries that see nothing", {.causal = true, .offset = -2}, {.queries = 5, .keys = 3});
  add("windows", {.left_window = 1, .right_window = 1}, {.queries = 5, .keys = 6});
  add("grouped heads", {}, {.heads = 6, .kv_heads = 2});
  add("one query", {}, {.queries = 1, .keys = 9});
  add("more than a block", {.causal = true}, {.heads = 2, .kv_heads = 1, .queries = 70, .keys = 67, .depth = 2});
  cases.back().wrt.emplace();  // finite differences take long: a large case and attention_test have its gradients

  const auto add_masked = [&](const std::string& name, const Shape& shape, bool is_bool,
                              const AttentionAttrs& attrs = {}) {
    OperatorCase& c = add(name, attrs, {});
    c.symbol = Attention(q, k, v, mask, attrs, "y");
    c.inputs["mask"] = is_bool ? Integers(shape, 0, 1) : Uniform(shape, -2, 1);
    if (is_bool) c.dtypes["mask"] = DType::kBool;
    c.batch_axes.clear();
  };
  add_masked("added numbers", {2, 2, 3, 4}, false);
  add_masked("added numbers of heads", {2, 3, 4}, false, {.softcap = 2});
  add_masked("added numbers of keys", {2, 1, 1, 4}, false, {.causal = true, .offset = 1});
  add_masked("bool", {2, 2, 3, 4}, true);
  add_masked("bool of queries and keys", {3, 4}, true);

  const auto add_folded = [&](const std::string& name, const AttentionAttrs& attrs, int64_t heads, int64_t kv_heads) {
    OperatorCase& c = add(name, attrs, {});
    c.inputs = {
        {"q", Uniform({2, 3, heads * 3})}, {"k", Uniform({2, 4, kv_heads * 3})}, {"v", Uniform({2, 4, kv_heads * 2})}};
    c.wrong_shapes = {{{"q", {2, 3, 7}}, {"k", {2, 4, 6}}, {"v", {2, 4, 6}}}};
  };
  add_folded("heads within the last axis", {.heads = 2}, 2, 2);
  add_folded("grouped heads within the last axis", {.heads = 4, .kv_heads = 2, .causal = true}, 4, 2);
  return cases;
}

}  // namespace bindery
