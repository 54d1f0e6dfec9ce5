#include "train/label_scaling.h"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "symbol/graph.h"
#include "symbol/ops.h"
#include "symbol/ops/heads.h"
#include "train/data/open.h"

namespace bindery {
namespace {

const std::string kScaledLabels = "in_label_units";  // the node whose output is compared with labels

// Of its only head; nothing: that is none of numbers.
std::optional<int> DegreeOf(const Symbol& symbol) {
  if (symbol.size() != 1 || symbol.entry().node->is_variable()) return std::nullopt;
  return DegreeOfGradient(*symbol.entry().node);
}

// What x was, of one that is scaled.
Symbol WithoutScale(const Symbol& x) {
  if (!x.name().starts_with(kScaledLabels)) return x;
  NodePtr node = x.entry().node;
  Entry first = x.entry();
  // The number that goes through: of the sum, of what hands it on without a gradient, of its offset, of its factor.
  while (!node->inputs().empty() && node->name().starts_with(kScaledLabels)) {
    first = node->inputs()[0];
    node = first.node;
  }
  return Symbol(first);
}

Symbol ConstantRow(const std::vector<double>& values, const std::string& name) {
  HostTensor row(DType::kFloat32, {1, std::ssize(values)});
  for (int64_t i = 0; i < row.elements(); ++i) row.Set(i, values[static_cast<size_t>(i)]);
  return Constant(std::move(row), name);
}

}  // namespace

Symbol ScaleLabels(const Symbol& symbol, const ColumnScaling& scaling) {
  const std::optional<int> degree = DegreeOf(symbol);
  if (!degree) {
    throw ModelError(
        "labels are scaled (label_scale) for a model whose only head compares them with numbers, as "
        "LinearRegressionOutput does");
  }
  CheckScaling(scaling);
  const Node& head = *symbol.entries()[0].node;
  const Symbol x = WithoutScale(Symbol(head.inputs()[0]));
  Symbol y = x;
  if (scaling.scale != ColumnScale::kNone) {
    std::vector<double> units, slopes;
    for (size_t i = 0; i < scaling.first.size(); ++i) {
      const double to = scaling.second[i];
      const double unit = scaling.scale == ColumnScale::kRange ? to - scaling.first[i] : to;
      units.push_back(unit > 0 ? unit : 1);
      slopes.push_back(std::pow(units.back(), -*degree));
    }
    const auto named = [](const char* what) { return kScaledLabels + what; };
    const Symbol product = Mul(x, ConstantRow(units, named("_unit")), named("_times"));
    const Symbol value = Add(product, ConstantRow(scaling.first, named("_origin")), named("_value"));
    // Adds nothing to the value, and all to its gradient, which by the value itself would be times the unit.
    const Symbol slope = Mul(x, ConstantRow(slopes, named("_factor")), named("_slope"));
    const Symbol nothing = Sub(slope, BlockGrad(slope, {}, named("_slope_value")), named("_nothing"));
    y = Add(BlockGrad(value, {}, named("_kept")), nothing, kScaledLabels);
  }
  if (y.entry() == head.inputs()[0]) return symbol;
  return Symbol(Entry{WithInputs(head, {y.entry(), head.inputs()[1]}), symbol.entry().output});
}

void ScaleLabelsAsKept(Model* model) {
  const ColumnScaling scaling = ScalingOfLabels(*model);
  if (DegreeOf(model->symbol)) model->symbol = ScaleLabels(model->symbol, scaling);
}

}  // namespace bindery
