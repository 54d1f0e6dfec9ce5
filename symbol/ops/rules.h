// What operators' definitions have in common: families of `infer` rules, pieces of rules, and checks of attributes.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "symbol/op_def.h"

namespace bindery::rule {

using Value = InferContext::Value;

// --- Families: one element type and one shape for all inputs and outputs, and
void AllAlike(InferContext& c);                      // no batch,
std::function<void(InferContext&)> Like(int input);  // the samples of that input,
void LikeEach(InferContext& c);                      // or those of every input

// --- Pieces. In a gradient operator the data's shape is that of an output and the output's that of an input; rules
// written for Values serve an operator and its gradients alike.
void SameShape(std::initializer_list<Value> values);
void SameDType(std::initializer_list<Value> values);
void Same(std::initializer_list<Value> values);  // both
void SameDTypes(InferContext& c);                // of all inputs and outputs
void ExpectFloat(Value value);                   // ShapeError for other types than floating point
// The samples of the one, an input, are those of the other, an output, as far as `kept` says which axes they share;
// whichever is which.
template <class Kept>
void Share(const Value& a, const Value& b, const Kept& kept) {
  const auto where = [&](int axis) { return kept(axis) ? axis : -1; };
  a.Carry(b, where);
  b.Carry(a, where);
}
// A by-product that only kernels can read: this shape and type are nominal, they give it an opaque format of the size
// that they need.
void State(Value value);
// y = x, always a view.
OpDef View(OpDef op);
// The gradient of what does not follow from the inputs, or but in jumps.
inline std::vector<Symbol> NoGradient(const GradientContext&) { return {}; }
// Sums and statistics over data of this type: float64 for float64, else float32.
DType StatisticsDType(DType data);

Shape Unknown(int rank);  // (?, ?, ...)
// An axis attribute within a shape; negative ones count from the end. Throws ShapeError out of range. (Shape's own
// operations take int: a 64-bit attribute must come through here.)
int Axis(int64_t axis, const Shape& shape);
// All that a list names, in its order; an empty one: 0, 1, ..., so many. Throws ShapeError if one is named twice, too.
std::vector<int> AxesIn(const Shape& shape, std::vector<int64_t> axes, size_t if_empty = 0);
// Extents from axis `first` on multiplied; kUnknownDim if one of them is unknown. Checked.
int64_t ProductFrom(const Shape& shape, int first);
// Fills the only unknown extent among the axes `first`.. of a shape whose product there is `product`, if it divides.
Shape FillFromProduct(Shape shape, int first, int64_t product);
// Throws ShapeError unless the rank is `rank`; `axes` tells what they are: "(N, C, H, W)".
void ExpectRank(const Shape& shape, int rank, const char* axes);

// (data, place) -> output: data's shape without the axis, or with extent 1 there, which are places', too, where there
// are such. ShapeError where places have nothing to point to. Samples along the axis are mixed.
void InferAlongAxis(int64_t along, bool keepdims, Value data, Value place, Value output);

// The rank of the one is the other's, if that is known: true if both are now.
bool SameRank(Value a, Value b);

// --- Extents that follow the batch. As attributes they are two lists: `fixed`, and `batches`, which is empty if all
// are fixed; extent i is fixed[i] + batches[i] * N.
struct ExtentList {
  const std::vector<int64_t>&fixed, &batches;
  size_t size() const { return fixed.size(); }
  Extent operator[](size_t i) const { return {fixed[i], batches.empty() ? 0 : batches[i]}; }
  bool Follows(size_t i) const { return (*this)[i].batches != 0; }
  int FirstFollowing() const;  // or -1
  // No value while the batch is needed and not known. Checked; `what` it is: "an extent".
  std::optional<int64_t> At(size_t i, std::optional<int64_t> batch, const char* what) const;
  void CheckLength(const char* field) const;  // ModelError unless `batches` is empty or as long as `fixed`
};
// Extent i of a shape: kUnknownDim while it is not known. ShapeError if it is negative.
int64_t ExtentAt(const ExtentList& list, size_t i, std::optional<int64_t> batch);
Shape ShapeAt(const ExtentList& list, std::optional<int64_t> batch);  // the same of all
void CheckExtentsAttr(const ExtentList& shape);                       // ModelError: not a shape's extents
void CheckShapeAttr(const ExtentList& shape);                         // ModelError: more axes than a shape can have
std::vector<int64_t> FixedParts(const Extents& extents);
std::vector<int64_t> BatchParts(const Extents& extents);
// What gradients are made of: operators with such attributes.
Symbol ReshapeTo(const Symbol& data, const Extents& shape, const std::string& name = {});
Symbol BroadcastTo(const Symbol& data, const Extents& shape, const std::string& name = {});
Symbol SumTo(const Symbol& data, const Extents& shape);
Symbol Zeros(const Extents& shape, DType dtype);

// --- Attributes: throw ModelError.
void CheckFinite(const char* field, double value);
void CheckNotNegative(const char* field, double value);  // and finite
void CheckAtLeast(const char* field, int64_t value, int64_t least);
void CheckAxisAttr(const char* field, int64_t axis);  // -8 to 7
template <OpAttrs A>
void CheckAxis(const AnyAttrs& attrs) {
  CheckAxisAttr("axis", attrs.get<A>().axis);
}
void CheckAxesAttr(const char* field, const std::vector<int64_t>& axes);  // at most 8, each in range, none twice
std::string ToString(const std::vector<int64_t>& list);                   // "(5, 5)"

}  // namespace bindery::rule
