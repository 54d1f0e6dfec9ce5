// Pieces of operators' definitions: names, and the rules for shapes, dtypes, batch axes and attributes that many share.
// Private to symbol/ops.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "symbol/op_def.h"

namespace bindery::rule {

// --- Names, always the same.
std::function<std::vector<std::string>(const AnyAttrs&, int)> Inputs(std::vector<std::string> names);
std::function<std::vector<std::string>(const AnyAttrs&)> Outputs(std::vector<std::string> names);
// arg0, arg1, ...: as many as are given, at least one.
std::vector<std::string> AnyNumberOfInputs(const AnyAttrs&, int given);

// --- Shapes.
// One value of a node. In a gradient operator the data's shape is that of an output and the output's that of an input;
// rules written for Values serve an operator and its gradients alike.
class Value {
 public:
  static Value In(InferContext& c, int i) { return {&c, false, i}; }
  static Value Out(InferContext& c, int i) { return {&c, true, i}; }
  std::optional<Shape> shape() const { return is_output_ ? context_->output(index_) : context_->input(index_); }
  void Set(const Shape& shape) const {
    is_output_ ? context_->SetOutput(index_, shape) : context_->SetInput(index_, shape);
  }
  bool Known() const { return shape() && shape()->IsKnown(); }

 private:
  Value(InferContext* context, bool is_output, int index) : context_(context), is_output_(is_output), index_(index) {}
  InferContext* context_;
  bool is_output_;
  int index_;
};

void Alike(std::span<const Value> values);  // one shape for all
void Alike(std::initializer_list<Value> values);
void AllAlike(InferContext& c);  // every input and output

Shape Unknown(int rank);  // (?, ?, ...)
// An axis attribute within a shape; negative ones count from the end. Throws ShapeError out of range. (Shape's own
// operations take int: a 64-bit attribute must come through here.)
int Axis(int64_t axis, const Shape& shape);
// Extents from axis `first` on multiplied; kUnknownDim if one of them is unknown. Checked.
int64_t ProductFrom(const Shape& shape, int first);
// Fills the only unknown extent among the axes `first`.. of a shape whose product there is `product`, if it divides.
Shape FillFromProduct(Shape shape, int first, int64_t product);
// Throws ShapeError unless the rank is `rank`; `axes` tells what they are: "(N, C, H, W)".
void ExpectRank(const Shape& shape, int rank, const char* axes);

bool AlwaysView(const ViewContext&);

// --- Dtypes.
void AlikeDTypes(InferDTypeContext& c, std::initializer_list<int> inputs, std::initializer_list<int> outputs);
// Sums and statistics over data of this type: float64 for float64, else float32.
DType StatisticsDType(DType data);

// --- Batch axes.
void NotBatched(BatchAxisContext& c);                         // parameters' gradients, counts, statistics
std::function<void(BatchAxisContext&)> BatchedAs(int input);  // output 0 as that input, the others not
// Broadcast operands, aligned at the last axis. Not batched if two operands' samples lie along different axes.
void BatchAligned(BatchAxisContext& c);
// Input 0's elements in their order, other extents: the output's axis in which all samples lie whole, with what is
// folded into it; none where one axis would have a part of a sample next to another's. `likely` axes are tried first:
// extents alone may leave several, and every share of a batch must have the same.
void BatchAfterReshape(BatchAxisContext& c, std::initializer_list<int> likely = {});

// --- Extents that follow the batch. As attributes they are two lists: `fixed`, and `batches`, which is empty if all
// are fixed; extent i is fixed[i] + batches[i] * N.
std::vector<int64_t> FixedParts(const Extents& extents);
std::vector<int64_t> BatchParts(const Extents& extents);
// kUnknownDim while the batch is needed and not known. Checked.
int64_t ExtentAt(const std::vector<int64_t>& fixed, const std::vector<int64_t>& batches, size_t i,
                 std::optional<int64_t> batch);
// The first axis whose extent follows the batch, or -1.
int FollowingAxis(const std::vector<int64_t>& batches);
// ModelError unless `batches` is empty or as long as the list that it belongs to.
void CheckBatches(const char* field, const std::vector<int64_t>& batches, const std::vector<int64_t>& fixed);
// What gradients are made of: operators with such attributes.
Symbol ReshapeTo(const Symbol& data, const Extents& shape);
Symbol BroadcastTo(const Symbol& data, const Extents& shape);
Symbol SumTo(const Symbol& data, const Extents& shape);
Symbol Zeros(const Extents& shape, DType dtype);

// --- Attributes: throw ModelError.
void CheckFinite(const char* field, double value);
void CheckAtLeast(const char* field, int64_t value, int64_t least);
void CheckAxisAttr(const char* field, int64_t axis);                      // -8 to 7
void CheckAxesAttr(const char* field, const std::vector<int64_t>& axes);  // at most 8, each in range, none twice
std::string ToString(const std::vector<int64_t>& list);                   // "(5, 5)"
// Of operators that cut along some axes: lists of one length (step and axes may be empty), at most 8, axes as above.
void CheckCut(const std::vector<int64_t>& begin, const std::vector<int64_t>& end, const std::vector<int64_t>& step,
              const std::vector<int64_t>& axes);
// These axes in a shape: `axes`, or the first `count`. Throws ShapeError if one is named twice or is not there.
std::vector<int> CutAxes(const std::vector<int64_t>& axes, size_t count, const Shape& shape);

}  // namespace bindery::rule
