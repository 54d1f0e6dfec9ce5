#include "tools/cli/heads.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/ops/heads.h"
#include "symbol/ops/loss.h"
#include "tools/cli/class_weights.h"
#include "tools/cli/console.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/options.h"
#include "train/data/open.h"
#include "train/label_scaling.h"

namespace bindery::cli {
namespace {

// The attributes of the model's only head, of so many classes.
template <class Edit>
void EditSoftmax(const char* option, Model* model, const std::string& name, const Edit& edit) {
  const Node& head = *model->symbol.entries()[0].node;
  const bool is_softmax =
      model->symbol.size() == 1 && !head.is_variable() && &head.attrs().type() == &AttrsOf<SoftmaxOutputAttrs>();
  const int64_t classes = is_softmax ? AnswersOf(*model) : 0;
  if (classes < 1) {
    throw UsageError(fmt::format(
        "{} is for models whose only head is a softmax over classes (SoftmaxOutput); {} has another", option, name));
  }
  auto attrs = head.attrs().get<SoftmaxOutputAttrs>();
  edit(&attrs, classes);
  model->symbol = Symbol(Entry{Remake(head, head.op(), attrs, head.inputs()), model->symbol.entry().output});
}

}  // namespace

bool TakesOneClass(const Model& model) {
  const std::vector<std::string> names = model.symbol.ListArguments();
  const auto label = std::ranges::find(names, "softmax_label");
  const ShapeMap inputs = SampleShapes(model, 2);
  if (label == names.end() || inputs.empty() || HeadKindOf(*model.symbol.entries()[0].node) != HeadKind::kClasses)
    return false;
  const InferredShapes shapes = InferShapesPartial(model.symbol, inputs);
  return shapes.arguments[static_cast<size_t>(label - names.begin())] == Shape{2};
}

void WarnOfMoreClasses(const Model& model, int64_t classes, const std::string& name) {
  if (classes == 0 || !TakesOneClass(model)) return;
  const InferredShapes shapes = InferShapesPartial(model.symbol, SampleShapes(model, 1));
  if (!shapes.outputs[0] || shapes.outputs[0]->rank() != 2) return;
  const int64_t has = (*shapes.outputs[0])[1];
  if (has <= classes) return;
  LogLine(LogLevel::kWarning,
          fmt::format("{} tells {} classes apart, but the data have {}: its head stays as it is (docs/fine_tuning.md)",
                      name, has, classes));
}

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
  EditSoftmax("--label-smoothing", model, name, [&](SoftmaxOutputAttrs* attrs, int64_t classes) {
    // The label's own share of what all classes get stays with it.
    attrs->smooth_alpha = part * static_cast<double>(classes - 1) / static_cast<double>(classes);
  });
}

void WeighClasses(const std::string& text, const LabelCounter& count, Model* model, const std::string& name) {
  EditSoftmax("--class-weights", model, name, [&](SoftmaxOutputAttrs* attrs, int64_t classes) {
    const std::vector<std::string> names = ClassNames(*model);
    attrs->class_weights = ParseClassWeights(text, classes, names, count);
    std::vector<std::string> told;
    for (size_t i = 0; i < attrs->class_weights.size(); ++i) {
      told.push_back(
          fmt::format("{} {:.4g}", i < names.size() ? names[i] : fmt::format("{}", i), attrs->class_weights[i]));
    }
    if (!told.empty()) Tell("{}", Wrapped(fmt::format("class weights: {}", fmt::join(told, ", ")), "  "));
  });
}

bool HasClassWeights(const Model& model) {
  return std::ranges::any_of(model.symbol.entries(), [](const Entry& head) {
    return !head.node->is_variable() && &head.node->attrs().type() == &AttrsOf<SoftmaxOutputAttrs>() &&
           !head.node->attrs().get<SoftmaxOutputAttrs>().class_weights.empty();
  });
}

}  // namespace bindery::cli
