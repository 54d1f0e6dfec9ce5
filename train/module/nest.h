// Nest: a value, or a list of nests: what a model takes and gives when one array is not enough.
//
//   Values x = ListOf(image, ListOf(left, Values(), right));        // Values is a Nest<Array> (train/module/array.h)
//   x[1][0].leaf()
//
// A leaf that was made from nothing is empty, where T knows what that means. Values like any other; immutable.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"

namespace bindery {

template <class T>
class Nest {
 public:
  Nest() = default;  // a leaf, T{}
  template <class U>
  requires(std::convertible_to<U&&, T>) Nest(U&& leaf) : leaf_(std::forward<U>(leaf)) {}
  template <class U>
  requires(std::convertible_to<const U&, T> && !std::same_as<U, T>) Nest(const Nest<U>& other)
      : is_list_(other.is_list()) {
    if (!is_list_) {
      leaf_ = other.leaf();
    } else {
      for (const Nest<U>& item : other.items()) items_.emplace_back(item);
    }
  }
  static Nest FromItems(std::vector<Nest> items) {
    Nest nest;
    nest.is_list_ = true;
    nest.items_ = std::move(items);
    return nest;
  }

  bool is_list() const { return is_list_; }
  const T& leaf() const {  // throws Error if it is a list
    if (is_list_) Throw("a list of {} is no single value: {}", items_.size(), Form());
    return leaf_;
  }
  const std::vector<Nest>& items() const {  // throws Error if it is a leaf
    if (!is_list_) Throw("a single value is no list");
    return items_;
  }
  size_t size() const { return items().size(); }
  const Nest& operator[](size_t i) const {  // throws Error out of range
    if (i >= size()) Throw("item {} of a list of {}: {}", i, size(), Form());
    return items_[i];
  }

  // visit(leaf), in order.
  template <class F>
  void ForEach(const F& visit) const {
    if (!is_list_) return static_cast<void>(visit(leaf_));
    for (const Nest& item : items_) item.ForEach(visit);
  }
  std::vector<T> Leaves() const {
    std::vector<T> leaves;
    ForEach([&](const T& leaf) { leaves.push_back(leaf); });
    return leaves;
  }
  // The same form, of what `make` makes of each leaf, in order.
  template <class F>
  auto Map(const F& make) const -> Nest<std::decay_t<std::invoke_result_t<const F&, const T&>>> {
    using Made = Nest<std::decay_t<std::invoke_result_t<const F&, const T&>>>;
    if (!is_list_) return Made(make(leaf_));
    std::vector<Made> items;
    for (const Nest& item : items_) items.push_back(item.Map(make));
    return Made::FromItems(std::move(items));
  }
  template <class U>
  bool IsLike(const Nest<U>& other) const {
    if (is_list_ != other.is_list()) return false;
    if (!is_list_) return true;
    if (items_.size() != other.size()) return false;
    for (size_t i = 0; i < items_.size(); ++i) {
      if (!items_[i].IsLike(other[i])) return false;
    }
    return true;
  }
  std::string Form() const {  // "_", "(_, (_, _))"
    if (!is_list_) return "_";
    std::string form = "(";
    for (size_t i = 0; i < items_.size(); ++i) form += (i > 0 ? ", " : "") + items_[i].Form();
    return form + ")";
  }

 private:
  bool is_list_ = false;
  T leaf_{};
  std::vector<Nest> items_;
};

// What a leaf becomes in a list; more of them stand beside the types that have one (train/module/array.h).
template <class T>
struct LeafIn {
  using Type = T;
};
template <class T>
struct LeafIn<Nest<T>> {
  using Type = T;
};
template <>
struct LeafIn<const char*> {
  using Type = std::string;
};

// A list of leaves and nests, all of one kind.
template <class First, class... Rest>
auto ListOf(First first, Rest... rest) {
  using Made = Nest<typename LeafIn<First>::Type>;
  static_assert((std::convertible_to<Rest, Made> && ...), "a list has leaves of one type, and nests of such");
  std::vector<Made> items;
  items.reserve(1 + sizeof...(rest));
  items.emplace_back(std::move(first));
  (items.emplace_back(std::move(rest)), ...);
  return Made::FromItems(std::move(items));
}

}  // namespace bindery
