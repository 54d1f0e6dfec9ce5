// What an operator's `infer` rule sees of its node: the types of its inputs and outputs as far as they are known, and
// where the batch is in them.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "symbol/attrs.h"
#include "symbol/infer/numbers.h"
#include "symbol/slots.h"

namespace bindery {

struct PartialType {
  std::optional<DType> dtype = {};
  std::optional<Shape> shape = {};      // extents may be kUnknownDim
  std::optional<Numbers> numbers = {};  // that it holds, where they follow from constants and shapes
};

// Other axes folded into the batch axis: its extent is outer * N * inner, with the samples in the middle. (N, T, C)
// seen as (-1, C) has inner = T, (T, N, C) seen as (-1, C) has outer = T.
struct BatchFold {
  int64_t outer = 1, inner = 1;
  bool operator==(const BatchFold&) const = default;
};

// A rule reads what is known and sets what follows, of dtypes and of shapes, in every direction; setting merges with
// what is there (unknown extents are filled in), and a contradiction throws ShapeError with the argument's name, what
// was expected and what came. A rule is run until nothing changes; it returns early while it knows too little, and must
// not throw for lack of knowledge. Then, with everything known, it is run once more to tell where the batch goes.
//
// For rules' own complaints: throw ShapeError; the message gets the node in front.
class InferContext {
 public:
  InferContext(const Slots& inputs, const Slots& outputs, const AnyAttrs& attrs)
      : inputs_(inputs), outputs_(outputs), attrs_(attrs) {}
  virtual ~InferContext() = default;

  // An input or an output. Of an absent one (see Optional) nothing is known, and what is set is forgotten.
  class Value {
   public:
    bool exists() const { return index_ >= 0; }
    const std::optional<Shape>& shape() const { return type().shape; }
    std::optional<DType> dtype() const { return type().dtype; }
    bool Known() const { return shape() && shape()->IsKnown(); }  // is all of the shape?
    void Set(const Shape& shape) const {
      if (exists()) context_->Learn(is_output_, index_, shape);
    }
    void SetDType(DType dtype) const {
      if (exists()) context_->Learn(is_output_, index_, dtype);
    }
    // The numbers that it holds; null if nothing is known of them. Only small values have any, of known shape.
    const Numbers* numbers() const { return type().numbers ? &*type().numbers : nullptr; }
    void SetNumbers(Numbers numbers) const {
      if (exists()) context_->Learn(is_output_, index_, std::move(numbers));
    }
    // The samples of this input are those of the output `to`: a batch along axis a of the one is one along where(a) of
    // the other, if the extents there are equal; or it is lost (-1), as where samples are summed or mixed. An output
    // into which inputs bring their batches along different axes, or one of which is lost, has none.
    template <class Where>
    void Carry(const Value& to, const Where& where) const {
      if (context_->places_ == nullptr || is_output_ || !to.is_output_ || !exists() || !to.exists()) return;
      const int axis = context_->places_->inputs[index_].axis;
      if (axis >= 0) context_->Place(index_, to.index_, where(axis));
    }
    void Carry(const Value& to) const {  // along the same axis
      Carry(to, [](int axis) { return axis; });
    }

   private:
    friend class InferContext;
    Value(InferContext* context, bool is_output, int index) : context_(context), is_output_(is_output), index_(index) {}
    const PartialType& type() const {
      static const PartialType kNothing;
      return exists() ? context_->Known(is_output_, index_) : kNothing;
    }
    InferContext* context_;
    bool is_output_;
    int index_;
  };

  const AnyAttrs& any_attrs() const { return attrs_; }
  template <OpAttrs A>
  const A& attrs() const {
    return attrs_.get<A>();
  }
  // By their places in the operator's declaration.
  Value in(int i) { return {this, false, inputs_.Place(attrs_, i)}; }
  Value out(int i) { return {this, true, outputs_.Place(attrs_, i)}; }
  virtual int num_inputs() const = 0;  // of the node
  virtual int num_outputs() const = 0;

  // May the rule take what is likely, though later knowledge could contradict it: an operand whose shape is not known
  // has the other operand's and is not stretched? False until nothing follows without assuming.
  virtual bool may_assume() const = 0;
  // The extent of the batch, if it is known: what attributes that follow the batch are multiples of.
  virtual std::optional<int64_t> batch() const = 0;

  // --- Where the batch is, for the few rules that fold axes or whose attributes follow the batch.
  struct BatchPlace {
    int axis = -1;  // -1: not batched
    BatchFold fold = {};
  };
  // Of an input of the node, when all types are known and the rule is asked where the batch goes; null before.
  const BatchPlace* batch_of_input(int i = 0) const {
    return places_ == nullptr || i >= num_inputs() ? nullptr : &places_->inputs[i];
  }
  void PlaceBatch(int output, int axis, std::optional<BatchFold> fold = {});  // no fold: that of an input of the extent

 protected:
  virtual const PartialType& Known(bool output, int i) const = 0;
  virtual void Learn(bool output, int i, const Shape& shape) = 0;
  virtual void Learn(bool output, int i, DType dtype) = 0;
  virtual void Learn(bool /*output*/, int /*i*/, Numbers /*numbers*/) {}

  struct Places {
    std::vector<BatchPlace> inputs, outputs;
    std::vector<bool> lost;  // per output
  };
  Places* places_ = nullptr;

 private:
  void Place(int input, int output, int axis);
  const Slots &inputs_, &outputs_;
  const AnyAttrs& attrs_;
};

}  // namespace bindery
