#include "tools/cli/heads.h"

#include <fmt/format.h>

#include "base/error.h"
#include "symbol/graph.h"
#include "symbol/ops/loss.h"
#include "tools/cli/options.h"
#include "train/data/open.h"
#include "train/label_scaling.h"

namespace bindery::cli {

void ScaleLabelsOf(Model* model, const std::string& name) {
  if (ScalingOfLabels(*model).scale != ColumnScale::kNone && !GivesNumbers(*model)) {
    throw UsageError(fmt::format("--data: label_scale is for numbers, but {} gives classes", name));
  }
  try {
    ScaleLabelsAsKept(model);
  } catch (const ModelError& e) {
    Throw<ModelError>("{}: {}", name, e.message());
  }
}

void SmoothLabels(double part, Model* model, const std::string& name) {
  const Node& head = *model->symbol.entries()[0].node;
  const bool is_softmax =
      model->symbol.size() == 1 && !head.is_variable() && &head.attrs().type() == &AttrsOf<SoftmaxOutputAttrs>();
  const int64_t classes = is_softmax ? AnswersOf(*model) : 0;
  if (classes < 1) {
    throw UsageError(
        fmt::format("--label-smoothing is for models whose only head is a softmax over classes (SoftmaxOutput); {} has "
                    "another",
                    name));
  }
  auto attrs = head.attrs().get<SoftmaxOutputAttrs>();
  // The label's own share of what all classes get stays with it.
  attrs.smooth_alpha = part * static_cast<double>(classes - 1) / static_cast<double>(classes);
  model->symbol = Symbol(Entry{Remake(head, head.op(), attrs, head.inputs()), model->symbol.entry().output});
}

}  // namespace bindery::cli
