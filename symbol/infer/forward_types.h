// Where gradient rules get the types of forward values from.
#pragma once

#include "symbol/gradient.h"
#include "symbol/graph.h"
#include "symbol/infer.h"
#include "symbol/op_def.h"

namespace bindery {

// Types that were inferred already, of one batch. For what operators are made of at bind with numbers, and with the
// batch: extents that are its follow it, so that it is known where it is. Refers to all.
class BoundForwardTypes final : public ForwardTypes {
 public:
  BoundForwardTypes(const Graph& graph, const NodeTypes& types, const NodeNumbers* numbers = nullptr,
                    std::optional<int64_t> batch = {})
      : graph_(graph), types_(types), numbers_(numbers), batch_(batch) {}
  std::optional<Extents> ShapeOf(const Entry& value) const override;
  std::optional<DType> DTypeOf(const Entry& value) const override;
  std::optional<Numbers> NumbersOf(const Entry& value) const override;
  std::optional<int64_t> Batch() const override { return batch_; }
  bool OfEveryBatch() const override { return false; }

 private:
  const Graph& graph_;
  const NodeTypes& types_;
  const NodeNumbers* const numbers_;
  const std::optional<int64_t> batch_;
};

// Types that follow from what is given and declared, inferred when the first is asked for; those of what has axes for
// batches of three sizes: an extent that grows evenly with the batch follows it. Where one grows otherwise, as that of
// every second sample, all are as at the first: a gradient fits this batch alone. Refers to both.
class GivenForwardTypes final : public ForwardTypes {
 public:
  GivenForwardTypes(const Graph& graph, const GivenTypes& given)
      : graph_(graph), given_(given), batch_(BatchOf(graph, given.shapes, given.batch_axes).value_or(kAnyBatch)) {}
  std::optional<Extents> ShapeOf(const Entry& value) const override;
  std::optional<DType> DTypeOf(const Entry& value) const override;
  std::optional<Numbers> NumbersOf(const Entry& value) const override;
  std::optional<int64_t> Batch() const override { return batch_; }
  bool OfEveryBatch() const override { return !Grown().one_more.empty(); }

 private:
  static constexpr int64_t kAnyBatch = 4;  // where none is given any will do; not 1, which broadcasts
  const PartialTypes& AtBatch() const;
  struct GrownTypes {
    PartialTypes one_more;   // with one sample more; empty: nothing follows the batch
    PartialTypes many_more;  // with many
  };
  const GrownTypes& Grown() const;
  PartialTypes InferWith(int64_t batch, const DTypeMap* dtypes) const;

  const Graph& graph_;
  const GivenTypes& given_;
  const int64_t batch_;
  mutable std::optional<PartialTypes> at_batch_;
  mutable std::optional<GrownTypes> grown_;
};

}  // namespace bindery
