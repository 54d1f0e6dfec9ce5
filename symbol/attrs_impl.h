// The templates of symbol/attrs.h. They only find a struct's fields; what is done with them is in attrs.cc.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "symbol/attrs.h"

namespace bindery {
namespace attrs_internal {

enum class FieldKind { kBool, kInt, kDouble, kString, kInts, kDoubles, kStrings, kDType, kTensor, kEnum };

// One field of some struct, without its C++ type.
struct FieldSpec {
  const char* name;
  const char* doc;
  FieldKind kind;
  void* (*address)(void* attrs);
  // Of enums alone:
  std::span<const EnumName> (*enum_names)();
  int (*load_enum)(const void* field);
  void (*store_enum)(void* field, int value);
};
using FieldSpecs = std::span<const FieldSpec>;

template <class T>
constexpr FieldKind KindOf() {
  if constexpr (std::is_same_v<T, bool>)
    return FieldKind::kBool;
  else if constexpr (std::is_same_v<T, int64_t>)
    return FieldKind::kInt;
  else if constexpr (std::is_same_v<T, double>)
    return FieldKind::kDouble;
  else if constexpr (std::is_same_v<T, std::string>)
    return FieldKind::kString;
  else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
    return FieldKind::kInts;
  else if constexpr (std::is_same_v<T, std::vector<double>>)
    return FieldKind::kDoubles;
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return FieldKind::kStrings;
  else if constexpr (std::is_same_v<T, DType>)
    return FieldKind::kDType;
  else if constexpr (std::is_same_v<T, std::shared_ptr<const HostTensor>>)
    return FieldKind::kTensor;
  else {
    static_assert(std::is_enum_v<T>, "not a type of attributes: see symbol/attrs.h");
    return FieldKind::kEnum;
  }
}

template <class A, class T>
T MemberType(Field<A, T>);

template <class A, size_t I>
constexpr FieldSpec SpecOf() {
  constexpr auto field = std::get<I>(A::Fields());
  using T = decltype(MemberType(field));
  FieldSpec spec{
      field.name,  field.doc,
      KindOf<T>(), [](void* attrs) -> void* { return &(static_cast<A*>(attrs)->*std::get<I>(A::Fields()).member); },
      nullptr,     nullptr,
      nullptr};
  if constexpr (KindOf<T>() == FieldKind::kEnum) {
    spec.enum_names = [] { return EnumNames(static_cast<T*>(nullptr)); };
    spec.load_enum = [](const void* value) { return static_cast<int>(*static_cast<const T*>(value)); };
    spec.store_enum = [](void* value, int number) { *static_cast<T*>(value) = static_cast<T>(number); };
  }
  return spec;
}

template <class A, size_t... I>
constexpr std::array<FieldSpec, sizeof...(I)> SpecsOf(std::index_sequence<I...>) {
  return {SpecOf<A, I>()...};
}

template <class T>
bool Same(const T& a, const T& b) {
  return a == b;
}
template <class T>
bool Same(const std::shared_ptr<T>& a, const std::shared_ptr<T>& b) {
  return a == b || (a && b && *a == *b);
}

void Fill(FieldSpecs fields, void* attrs, const AttrMap& map);
// The fields that differ from those of `defaults`; all if that is null.
AttrMap Collect(FieldSpecs fields, const void* attrs, const void* defaults);
std::vector<FieldInfo> Describe(FieldSpecs fields, const void* defaults);
[[noreturn]] void ThrowOtherType(const AttrsType& expected, const AttrsType& got);

template <OpAttrs A>
class AttrsTypeOf final : public AttrsType {
 public:
  AnyAttrs FromMap(const AttrMap& map) const override {
    auto attrs = std::make_shared<A>();
    Fill(kFields, attrs.get(), map);
    return Wrap(this, std::move(attrs));
  }
  AttrMap ToMap(const void* value, bool all) const override {
    const A defaults{};
    return Collect(kFields, value, all ? nullptr : &defaults);
  }
  bool Equal(const void* a, const void* b) const override {
    const A &x = *static_cast<const A*>(a), &y = *static_cast<const A*>(b);
    const auto same = [&](const auto&... field) { return (Same(x.*field.member, y.*field.member) && ...); };
    return std::apply(same, A::Fields());
  }
  std::vector<FieldInfo> Fields() const override {
    const A defaults{};
    return Describe(kFields, &defaults);
  }

 private:
  static constexpr auto kFields = SpecsOf<A>(std::make_index_sequence<std::tuple_size_v<decltype(A::Fields())>>());
};

}  // namespace attrs_internal

template <OpAttrs A>
const AttrsType& AttrsOf() {
  static const attrs_internal::AttrsTypeOf<A> type;
  return type;
}

template <OpAttrs A>
AnyAttrs::AnyAttrs(A attrs) : type_(&AttrsOf<A>()), value_(std::make_shared<const A>(std::move(attrs))) {}

template <OpAttrs A>
const A& AnyAttrs::get() const {
  if (type_ != &AttrsOf<A>()) attrs_internal::ThrowOtherType(AttrsOf<A>(), *type_);
  return *static_cast<const A*>(value_.get());
}

}  // namespace bindery
