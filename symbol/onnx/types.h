// What an import function may ask of the values that it has made: their types, as far as they follow from the inputs'.
#pragma once

#include <array>
#include <optional>
#include <unordered_map>
#include <vector>

#include "symbol/extents.h"
#include "symbol/infer_context.h"
#include "symbol/symbol.h"

namespace bindery::onnx {

// An extent: fixed + batches * N, or not known.
using PartialExtents = std::vector<std::optional<Extent>>;

// Inferred node by node when they are asked for, for batches of three sizes: an extent that grows evenly with the batch
// follows it.
class ValueTypes {
 public:
  // `batch`: the smallest of the sizes; where nothing follows the batch, `follows` is false and it does not matter.
  ValueTypes(int64_t batch, bool follows) : batch_(batch), sizes_(follows ? 3 : 1) {}

  // A variable, with the axes of its shape that are the batch's.
  void Declare(const Symbol& variable, DType dtype, const std::optional<Shape>& shape,
               const std::vector<int>& batch_axes = {});
  // The numbers in a value of at most one axis, as far as they are known, from which extents may follow.
  void DeclareNumbers(const Symbol& value, const PartialExtents& numbers);
  std::optional<DType> DTypeOf(const Symbol& value);
  std::optional<PartialExtents> ExtentsOf(const Symbol& value);  // no value: not even the number of axes is known

 private:
  using Sizes = std::array<PartialType, 3>;  // per size of the batch
  const Sizes& Of(const Entry& value);
  std::vector<Sizes> Infer(const NodePtr& node) const;

  const int64_t batch_;
  const size_t sizes_;
  std::unordered_map<const Node*, std::vector<Sizes>> known_;  // per output
  std::vector<NodePtr> alive_;                                 // the nodes in it
};

}  // namespace bindery::onnx
