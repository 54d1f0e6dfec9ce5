// Sequences of unequal length in one tensor: along `axis` the steps, along `batch_axis` the samples, and how many steps
// of each sample count. Lengths (N) are of any type, whole numbers 0 .. T, where a last step is asked for 1 .. T;
// others are a DataError, when run.
#pragma once

#include "symbol/op_def.h"

namespace bindery {

struct SequenceAttrs {
  int64_t axis = 0, batch_axis = 1;
  static FieldList Fields() {
    return {{"axis", &SequenceAttrs::axis, "axis of the steps"},
            {"batch_axis", &SequenceAttrs::batch_axis, "axis of the samples"}};
  }
};
struct SequenceMaskAttrs : SequenceAttrs {
  double value = 0;
  static FieldList Fields() {
    return Joined(SequenceAttrs::Fields(), {{"value", &SequenceMaskAttrs::value, "behind each sequence's end"}});
  }
};
// All take (data, lengths).
const OpDef& SequenceMaskOp();  // data, and the value from step length[n] on
inline constexpr OpFunction<SequenceMaskAttrs, 2> SequenceMask{SequenceMaskOp};
const OpDef& SequenceReverseOp();  // the first length[n] steps in reverse order, the others as they are
inline constexpr OpFunction<SequenceAttrs, 2> SequenceReverse{SequenceReverseOp};
const OpDef& SequenceLastOp();  // step length[n] - 1; the axis of the steps is gone
inline constexpr OpFunction<SequenceAttrs, 2> SequenceLast{SequenceLastOp};

struct SequenceLastGradAttrs : SequenceAttrs {
  std::vector<int64_t> shape = {}, batches = {};
  static FieldList Fields() {
    using A = SequenceLastGradAttrs;
    return Joined(SequenceAttrs::Fields(), {{"shape", &A::shape, "of data"},
                                            {"batches", &A::batches, "batches added to each extent; default none"}});
  }
};
// (output gradient, lengths) -> data gradient
const OpDef& SequenceLastGradOp();
inline constexpr OpFunction<SequenceLastGradAttrs, 2> SequenceLastGrad{SequenceLastGradOp};

// The axes of steps and of samples in a shape; ShapeError if they are not there, or one.
struct SequenceAxes {
  int steps, samples;
};
SequenceAxes AxesOf(const SequenceAttrs& attrs, const Shape& data);

}  // namespace bindery
