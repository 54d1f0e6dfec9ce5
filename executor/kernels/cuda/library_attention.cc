#include "executor/kernels/cuda/library_attention.h"

#include <limits>
#include <memory>
#include <vector>

#include "base/checked.h"
#include "engine/cuda/cublaslt_api.h"
#include "executor/kernels/cuda/library_product.h"

namespace bindery::cuda {
namespace {

using Lay = PlainAttention::Lay;
using Sides = PlainAttention::Sides;

// Of one product. Each costs the host microseconds, and is a node of a graph: more of them, each of so little work, are
// no gain over one own kernel.
constexpr int64_t kMostCalls = 256;
constexpr int64_t kAlignment = 64;  // of places in scratch

enum class What : uint8_t {
  kScores,   // of all queries (rows, columns) and keys (keys, columns)^T
  kQueries,  // scores (rows, keys) times keys (keys, columns)
  kKeys,     // scores^T (keys, rows) times queries (rows, columns), of all heads that share them
};

// A product of matrices at these addresses.
struct Step {
  What what;
  const Sides* sides;
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  std::shared_ptr<const LibraryProduct> plan = {}, adding = {};  // of the first head that shares keys, of the others
};

struct Operands {
  Lay a, b, c;
};
Operands OperandsOf(const PlainAttention& p, const Step& step) {
  const Lay &queries = step.sides->queries, &keys = step.sides->keys;
  switch (step.what) {
    case What::kScores: return {queries, keys, p.scores};
    case What::kQueries: return {p.scores, keys, queries};
    default: return {p.scores, queries, keys};
  }
}

PlainProduct ProductOf(const PlainAttention& p, const Step& step) {
  const int64_t columns = step.sides->columns;
  PlainProduct product{.batch = p.batch, .dtype = p.dtype, .out = p.dtype, .tf32 = p.tf32};
  switch (step.what) {
    case What::kScores:
      product.m = p.queries, product.n = p.keys, product.k = columns;
      product.transpose_b = true;
      product.out = p.sums;
      break;
    case What::kQueries: product.m = p.queries, product.n = columns, product.k = p.keys; break;
    case What::kKeys:
      product.m = p.keys, product.n = columns, product.k = p.queries;
      product.transpose_a = true;
      break;
  }
  const Operands operands = OperandsOf(p, step);
  const auto place = [&](const Lay& lay, PlainProduct::Lay* to, DType dtype) {
    *to = {lay.matrix, lay.row};
    for (const int64_t offset : {lay.call, lay.head}) to->BeginAt(offset, SizeOf(dtype));
  };
  place(operands.a, &product.a, p.dtype);
  place(operands.b, &product.b, p.dtype);
  place(operands.c, &product.c, product.out);
  return product;
}

bool Plan(Launches& launches, const PlainAttention& p, Step* step) {
  PlainProduct product = ProductOf(p, *step);
  step->plan = step->adding = PlanOf(launches, product);
  if (step->plan && step->what == What::kKeys && p.heads > 1) {
    product.adds = true;
    step->adding = PlanOf(launches, product);
  }
  return step->plan && step->adding;
}

void Add(Launches& launches, const PlainAttention& p, const Step& step, void* workspace) {
  const Operands operands = OperandsOf(p, step);
  const DType out = step.what == What::kScores ? p.sums : p.dtype;
  for (int64_t call = 0; call < p.calls; ++call) {
    for (int64_t head = 0; head < p.heads; ++head) {
      const auto bytes = [&](const Lay& lay, DType dtype) {
        return (call * lay.call + head * lay.head) * SizeOf(dtype);
      };
      AddPlan(launches, head == 0 ? step.plan : step.adding,
              static_cast<const char*>(step.a) + bytes(operands.a, p.dtype),
              static_cast<const char*>(step.b) + bytes(operands.b, p.dtype),
              static_cast<char*>(step.c) + bytes(operands.c, out), workspace);
    }
  }
}

// Products, an own kernel of rows, products.
template <class Args>
bool AddAround(Launches& launches, const PlainAttention& p, std::vector<Step> before, const Args& args,
               std::vector<Step> after, void* workspace) {
  for (std::vector<Step>* const steps : {&before, &after}) {
    for (Step& step : *steps) {
      if (!Plan(launches, p, &step)) return false;
    }
  }
  for (const Step& step : before) Add(launches, p, step, workspace);
  launches.AddRows(args);
  for (const Step& step : after) Add(launches, p, step, workspace);
  return true;
}

// The places of products, of what is made of them in the same places where types are the same, and of the workspace.
struct Places {
  int64_t products, made, of_product, of_made, workspace;
  Places(const PlainAttention& p, int count)
      : products(0), made(0), of_product(RoundUp(CheckedMul(p.elements, SizeOf(p.sums)), kAlignment)),
        of_made(of_product), workspace(CheckedMul(count, of_product)) {
    if (p.sums == p.dtype) return;
    made = workspace;
    of_made = RoundUp(p.elements * SizeOf(p.dtype), kAlignment);
    workspace = CheckedAdd(made, CheckedMul(count, of_made));
  }
};

}  // namespace

std::optional<PlainAttention> PlainAttentionOf(const AttentionShape& s, int64_t samples, DType dtype) {
  if (s.kv_heads < 1 || !CublasLt()) return std::nullopt;
  PlainAttention p{.keys = s.keys,
                   .depth = {.queries = {.row = s.query.row}, .keys = {.row = s.key.row}, .columns = s.depth},
                   .width = {.queries = {.row = s.output.row}, .keys = {.row = s.value.row}, .columns = s.width},
                   .elements = CheckedMul(CheckedMul(samples, s.heads), CheckedMul(s.queries, s.keys)),
                   .dtype = dtype,
                   .sums = ValueOf(dtype),
                   .tf32 = dtype == DType::kFloat32 && Tf32IsUsed()};
  const int64_t shared = s.heads / s.kv_heads, scores = s.queries * s.keys;  // of a head
  Lay* const lays[] = {&p.depth.queries, &p.width.queries, &p.scores, &p.depth.keys, &p.width.keys};

  // Queries of heads that share keys.
  Grid grid = GridOf({shared, s.queries});
  Strides rows[3] = {{{s.query.head, s.query.row}}, {{s.output.head, s.output.row}}, {{scores, s.keys}}};
  JoinAxes(&grid, {&rows[0], &rows[1], &rows[2]});
  const int row = grid.rank - 1;
  if (grid.rank > 0) p.queries = grid.extents[row];
  if (grid.rank > 1) p.heads = grid.extents[0];
  for (int i = 0; i < 3; ++i) {
    lays[i]->row = grid.rank > 0 ? rows[i].of[row] : 0;
    if (grid.rank > 1) lays[i]->head = rows[i].of[0];
  }

  // Samples, and heads of keys: one batch where one stride leads through both, and it is not too long.
  grid = GridOf({samples, s.kv_heads});
  Strides of[5] = {{{s.query.sample, shared * s.query.head}},
                   {{s.output.sample, shared * s.output.head}},
                   {{s.heads * scores, shared * scores}},
                   {{s.key.sample, s.key.head}},
                   {{s.value.sample, s.value.head}}};
  if (CheckedMul(samples, s.kv_heads) <= kMostOfBatch) JoinAxes(&grid, {&of[0], &of[1], &of[2], &of[3], &of[4]});
  const int batch = grid.rank > 1 && grid.extents[1] > grid.extents[0] ? 1 : 0;
  if (grid.rank > 0) p.batch = grid.extents[batch];
  if (grid.rank > 1) p.calls = grid.extents[1 - batch];
  for (int i = 0; i < 5; ++i) {
    if (grid.rank > 0) lays[i]->matrix = of[i].of[batch];
    if (grid.rank > 1) lays[i]->call = of[i].of[1 - batch];
  }

  for (const int64_t extent : {p.queries, p.keys, s.depth, s.width, p.batch}) {
    if (extent < 1 || extent > std::numeric_limits<int32_t>::max()) return std::nullopt;
  }
  if (p.calls * p.heads > kMostCalls || p.batch > kMostOfBatch) return std::nullopt;
  return p;
}

int64_t ScratchBytes(const PlainAttention& p, int count) {
  // All products of a side are of as many numbers.
  const Sides& larger = p.depth.columns > p.width.columns ? p.depth : p.width;
  return CheckedAdd(Places(p, count).workspace, WorkspaceBytes(ProductOf(p, {What::kScores, &larger})));
}

bool AddLibraryAttention(Launches& launches, const PlainAttention& p, AttentionArgs args) {
  const Places places(p, 1);
  args.by_library = 1;
  args.products = {launches.scratch(places.products), p.sums};
  args.parts = {launches.scratch(places.made), p.dtype};
  return AddAround(launches, p, {{What::kScores, &p.depth, args.query.data, args.key.data, args.products.data}}, args,
                   {{What::kQueries, &p.width, args.parts.data, args.value.data, args.out.data}},
                   WorkspaceIn(launches, places.workspace));
}

bool AddLibraryAttention(Launches& launches, const PlainAttention& p, AttentionGradArgs args) {
  const Places places(p, 2);
  char* const products = launches.scratch(places.products);
  char* const value_products = products + places.of_product;
  args.by_library = 1;
  args.products = {products, p.sums};
  args.value_products = {value_products, p.sums};
  args.parts.dtype = args.slopes.dtype = p.dtype;
  if (args.dv.data) args.parts.data = launches.scratch(places.made);
  if (args.dq.data || args.dk.data) args.slopes.data = launches.scratch(places.made + places.of_made);
  std::vector<Step> before = {{What::kScores, &p.depth, args.query.data, args.key.data, products}}, after;
  if (args.slopes.data || args.dmask.data) {
    before.push_back({What::kScores, &p.width, args.dy.data, args.value.data, value_products});
  }
  if (args.dq.data) after.push_back({What::kQueries, &p.depth, args.slopes.data, args.key.data, args.dq.data});
  if (args.dk.data) after.push_back({What::kKeys, &p.depth, args.slopes.data, args.query.data, args.dk.data});
  if (args.dv.data) after.push_back({What::kKeys, &p.width, args.parts.data, args.dy.data, args.dv.data});
  return AddAround(launches, p, std::move(before), args, std::move(after), WorkspaceIn(launches, places.workspace));
}

}  // namespace bindery::cuda
