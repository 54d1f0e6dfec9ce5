#include "symbol/infer_context.h"

#include "base/error.h"

namespace bindery {

void InferContext::Place(int input, int output, int axis) {
  const BatchPlace& from = places_->inputs[input];
  BatchPlace& to = places_->outputs[output];
  const Shape &source = *Known(false, input).shape, &target = *Known(true, output).shape;
  Check(axis >= -1 && axis < target.rank(), "a rule carries the batch to an axis of the output");
  if (axis < 0 || target[axis] != source[from.axis] || (to.axis >= 0 && to.axis != axis)) {
    places_->lost[output] = true;
  } else if (to.axis < 0) {
    to = {axis, from.fold};
  }
}

void InferContext::PlaceBatch(int output, int axis, std::optional<BatchFold> fold) {
  if (places_ == nullptr || axis < 0) return;
  const int64_t extent = (*Known(true, output).shape)[axis];
  for (int i = 0; i < num_inputs() && !fold; ++i) {
    const BatchPlace& input = places_->inputs[i];
    if (input.axis >= 0 && (*Known(false, i).shape)[input.axis] == extent) fold = input.fold;
  }
  if (!fold && batch() && extent != *batch()) return;
  places_->outputs[output] = {axis, fold.value_or(BatchFold{})};
}

}  // namespace bindery
