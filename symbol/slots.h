// The inputs and the outputs of an operator, declared:
//
//   .inputs = {"data", "weight", Optional("bias", Unless(&ConvolutionAttrs::no_bias))},
//   .outputs = {"output", Hidden("mask")},
//
// An input that is there and that the caller leaves out becomes a variable of the name; one that is absent is not among
// the node's inputs at all. What follows an absent one moves up.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "symbol/attrs.h"

namespace bindery {

// A question to a node's attributes.
using AttrTest = std::function<bool(const AnyAttrs&)>;
template <OpAttrs A>
AttrTest If(bool A::*flag) {
  return [flag](const AnyAttrs& attrs) { return attrs.get<A>().*flag; };
}
template <OpAttrs A>
AttrTest Unless(bool A::*flag) {
  return [flag](const AnyAttrs& attrs) { return !(attrs.get<A>().*flag); };
}
template <OpAttrs A>
AttrTest If(bool (*test)(const A&)) {
  return [test](const AnyAttrs& attrs) { return test(attrs.get<A>()); };
}

struct Slot {
  Slot(const char* name) : name(name) {}  // NOLINT: a name is a slot
  std::string name;
  AttrTest present = {};                               // empty: always
  bool is_auxiliary = false;                           // an input that is a state of the operator
  bool is_many = false;                                // name0, name1, ...
  std::function<int64_t(const AnyAttrs&)> count = {};  // of many; empty: as many as are given, at least one
  AttrTest hidden = {};                                // of an output; empty: never
};
Slot Optional(const char* name, AttrTest present);
Slot Auxiliary(const char* name);
Slot Variadic(const char* stem, std::function<int64_t(const AnyAttrs&)> count = {});  // must be the only slot
// An output for the gradient alone, which users do not see. What follows it is hidden as well.
Slot Hidden(
    Slot output, AttrTest when = [](const AnyAttrs&) { return true; });

class Slots {
 public:
  Slots() = default;  // none
  Slots(std::initializer_list<Slot> slots) : Slots(std::vector<Slot>(slots)) {}
  explicit Slots(std::vector<Slot> slots);

  // Of a node with these attributes, in order. `given`: the number of inputs that the caller passed.
  std::vector<std::string> Names(const AnyAttrs& attrs, int given = 0) const;
  int Count(const AnyAttrs& attrs, int given = 0) const;
  int Visible(const AnyAttrs& attrs) const;
  // Where a slot is among the node's, or -1 if it is absent.
  int Place(const AnyAttrs& attrs, int slot) const;
  bool IsAuxiliary(const std::string& name) const;

  const std::vector<Slot>& slots() const { return slots_; }  // as declared
  bool has_auxiliary() const { return has_auxiliary_; }
  bool may_hide() const { return may_hide_; }

 private:
  bool IsPresent(const Slot& slot, const AnyAttrs& attrs) const { return !slot.present || slot.present(attrs); }
  std::vector<Slot> slots_;
  bool has_optional_ = false, has_auxiliary_ = false, may_hide_ = false;
};

}  // namespace bindery
