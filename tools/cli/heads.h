// What a training makes of a model's head, by which it learns.
#pragma once

#include <string>

#include "symbol/model.h"
#include "tools/cli/data.h"

namespace bindery::cli {

// Is a sample's label the number of one class?
bool TakesOneClass(const Model& model);
// Where the head of a model tells more classes apart than the data have. That of a model from a file is as it is, as is
// that of weights from a file; by name it is made for the data.
void WarnOfMoreClasses(const Model& model, int64_t classes, const std::string& name);

// Labels scaled inside the model as its preprocessing has it (label_scale), or not any more. `name` is how errors call
// the model. Throws UsageError for a model of classes, ModelError for other heads.
void ScaleLabelsOf(Model* model, const std::string& name);

// --label-smoothing: of each label, this part is shared by all classes, as PyTorch's cross_entropy has it. Throws
// UsageError unless the model's only head is a softmax over classes.
void SmoothLabels(double part, Model* model, const std::string& name);

// --class-weights, as ParseClassWeights has it: what labels of each class teach counts so much. Throws like that, and
// UsageError as the above.
void WeighClasses(const std::string& text, const LabelCounter& count, Model* model, const std::string& name);
// Has its head such weights, of its file, too?
bool HasClassWeights(const Model& model);

}  // namespace bindery::cli
