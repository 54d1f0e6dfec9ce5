// Sums and the like over axes, products of matrices, and what is accumulated. What is left without an axis has one of
// extent 1 in MXNet.
#include <vector>

#include "symbol/mxnet/importer.h"

namespace bindery::mxnet {
namespace {

using ReduceFn = OpFunction<ReduceAttrs>;

Symbol Reduced(Importer& im, const ReduceFn& f) {
  const ReduceAttrs attrs{.axes = im.Ints("axis"), .keepdims = im.Flag("keepdims"), .exclude = im.Flag("exclude")};
  im.Ignore({"safe_accumulation", "out_dtype"});
  const bool to_scalar = attrs.axes.empty() && !attrs.keepdims && !attrs.exclude;
  const Symbol y = f(im.In(0), attrs, to_scalar ? "" : im.name());
  return to_scalar ? AsVector(y, im.name()) : y;
}

ImportFn Reduce(const ReduceFn& f) {
  return [f](Importer& im) { im.Out(Reduced(im, f)); };
}

void ImportNorm(Importer& im) {
  const int64_t order = im.Int("ord", 2);
  if (order != 1 && order != 2) Throw<ModelError>("attribute \"ord\": only norms of order 1 and 2 can be had");
  im.Out(Reduced(im, order == 1 ? L1Norm : L2Norm));
}

// The place as a number. Without an axis it is that among all elements; files before 0.9.5 say so by -1.
ImportFn Place(const OpFunction<ArgAttrs>& f) {
  return [f](Importer& im) {
    const bool all = !im.Has("axis") || (im.version() < 905 && im.Int("axis") == -1);
    const bool keepdims = im.Flag("keepdims");
    Symbol x = im.In(0);
    if (all) x = Reshape(x, {.shape = {-1}});
    if (all && keepdims) Throw<ModelError>("keepdims without an axis cannot be imported");
    const Symbol place = f(x, {.axis = all ? 0 : im.Int("axis"), .keepdims = keepdims || all});
    im.Out(Cast(place, {.dtype = DType::kFloat32}, im.name()));
  };
}

void ImportArgMaxChannel(Importer& im) {
  im.Out(Cast(ArgMax(im.In(0), {.axis = 1}), {.dtype = DType::kFloat32}, im.name()));
}

// Matrices and vectors; of more axes MXNet joins the last of one with the first of the other.
void ImportDot(Importer& im) {
  im.Expect("forward_stype", {"default"});
  im.Out(Dot(im.In(0), im.In(1), {im.Flag("transpose_a"), im.Flag("transpose_b")}, im.name()));
}

void ImportBatchDot(Importer& im) {
  im.Expect("forward_stype", {"default"});
  im.Out(MatMul(im.In(0), im.In(1), {im.Flag("transpose_a"), im.Flag("transpose_b")}, im.name()));
}

void ImportGemm(Importer& im, bool adds) {
  im.Expect("axis", {"-2"});
  const GemmAttrs attrs{.alpha = im.Float("alpha", 1),
                        .beta = adds ? im.Float("beta", 1) : 0,
                        .transpose_a = im.Flag("transpose_a"),
                        .transpose_b = im.Flag("transpose_b")};
  im.Out(Gemm(im.In(0), im.In(1), adds ? im.In(2) : Symbol(), attrs, im.name()));
}

void ImportCumSum(Importer& im) {
  Symbol x = im.In(0);
  if (const DType to = im.Type("dtype"); im.Has("dtype")) x = Cast(x, {.dtype = to});
  if (!im.Has("axis")) x = Reshape(x, {.shape = {-1}});
  im.Out(CumSum(x, {.axis = im.Int("axis", 0)}, im.name()));
}

}  // namespace

std::span<const ImportRow> ReduceImports() {
  static const std::vector<ImportRow> rows = {
      {"_linalg_gemm", [](Importer& im) { ImportGemm(im, true); }},
      {"_linalg_gemm2", [](Importer& im) { ImportGemm(im, false); }},
      {"_np_cumsum", ImportCumSum},
      {"argmax", Place(ArgMax)},
      {"argmax_channel", ImportArgMaxChannel},
      {"argmin", Place(ArgMin)},
      {"batch_dot", ImportBatchDot},
      {"cumsum", ImportCumSum},
      {"dot", ImportDot},
      {"linalg_gemm", [](Importer& im) { ImportGemm(im, true); }},
      {"linalg_gemm2", [](Importer& im) { ImportGemm(im, false); }},
      {"max", Reduce(Max)},
      {"max_axis", Reduce(Max)},
      {"mean", Reduce(Mean)},
      {"min", Reduce(Min)},
      {"min_axis", Reduce(Min)},
      {"norm", ImportNorm},
      {"prod", Reduce(Prod)},
      {"sum", Reduce(Sum)},
      {"sum_axis", Reduce(Sum)},
  };
  return rows;
}

}  // namespace bindery::mxnet
