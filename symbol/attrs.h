// Attributes of an operator: a plain struct with defaulted values and one list of its fields,
//
//   struct SoftmaxAttrs {
//     int64_t axis = -1;
//     static FieldList Fields() { return {{"axis", &SoftmaxAttrs::axis, "axis of the sum"}}; }
//   };
//
// from which saving, loading, printing, comparing and the command line's help are made. Field types: bool, int64_t,
// double, std::string, std::vector of int64_t, double or std::string, DType, HostTensor (as std::shared_ptr<const
// HostTensor>), and any enum with
//   std::span<const EnumName> EnumNames(E*)   found by argument-dependent look-up.
//
// A list is one type for all structs: every file that names operators reads all of theirs, and a type for each (a tuple
// of its fields) took half of the time that symbol/ops.h takes to compile.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/host_tensor.h"

namespace bindery {

// The stored form, as in a model file. Enums and dtypes are strings.
using AttrValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string>, std::shared_ptr<const HostTensor>>;
using AttrMap = std::map<std::string, AttrValue>;
std::string ToString(const AttrValue& value);  // "5", "(5, 5)", "max", "true"

struct EnumName {
  int value;
  const char* name;
};

// One field of a struct, without its C++ type.
class Field {
 public:
  enum class Kind { kBool, kInt, kDouble, kString, kInts, kDoubles, kStrings, kDType, kTensor, kEnum };

  template <class A, class T>
  Field(const char* name, T A::*member, const char* doc = "")
      : name_(name), doc_(doc), kind_(KindOf<T>()), offset_(std::bit_cast<std::ptrdiff_t>(member)) {
    // The ABI of this platform (Itanium's) keeps a pointer to a data member as its distance from the object's start.
    if constexpr (KindOf<T>() == Kind::kEnum) {
      enum_names_ = EnumNames(static_cast<T*>(nullptr));
      load_enum_ = [](const void* value) { return static_cast<int>(*static_cast<const T*>(value)); };
      store_enum_ = [](void* value, int number) { *static_cast<T*>(value) = static_cast<T>(number); };
    }
  }

  const char* name() const { return name_; }
  const char* doc() const { return doc_; }
  Kind kind() const { return kind_; }
  const void* In(const void* attrs) const { return static_cast<const char*>(attrs) + offset_; }
  void* In(void* attrs) const { return static_cast<char*>(attrs) + offset_; }
  // Of an enum:
  std::span<const EnumName> enum_names() const { return enum_names_; }
  int EnumIn(const void* attrs) const { return load_enum_(In(attrs)); }
  void SetEnumIn(void* attrs, int value) const { store_enum_(In(attrs), value); }

 private:
  template <class T>
  static constexpr Kind KindOf() {
    if constexpr (std::is_same_v<T, bool>)
      return Kind::kBool;
    else if constexpr (std::is_same_v<T, int64_t>)
      return Kind::kInt;
    else if constexpr (std::is_same_v<T, double>)
      return Kind::kDouble;
    else if constexpr (std::is_same_v<T, std::string>)
      return Kind::kString;
    else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
      return Kind::kInts;
    else if constexpr (std::is_same_v<T, std::vector<double>>)
      return Kind::kDoubles;
    else if constexpr (std::is_same_v<T, std::vector<std::string>>)
      return Kind::kStrings;
    else if constexpr (std::is_same_v<T, DType>)
      return Kind::kDType;
    else if constexpr (std::is_same_v<T, std::shared_ptr<const HostTensor>>)
      return Kind::kTensor;
    else {
      static_assert(std::is_enum_v<T>, "not a type of attributes: see the head of symbol/attrs.h");
      return Kind::kEnum;
    }
  }

  const char *name_, *doc_;
  Kind kind_;
  std::ptrdiff_t offset_;
  std::span<const EnumName> enum_names_;
  int (*load_enum_)(const void* value) = nullptr;
  void (*store_enum_)(void* value, int number) = nullptr;
};
using FieldList = std::vector<Field>;
// The fields of a struct whose first base has fields: those, then its own.
FieldList Joined(FieldList base, const FieldList& own);

template <class A>
concept OpAttrs = std::default_initializable<A> && requires {
  { A::Fields() } -> std::same_as<FieldList>;
};

struct NoAttrs {
  static FieldList Fields() { return {}; }
};

// What is known of one field, for documentation and help.
struct FieldInfo {
  std::string name, type, default_value, doc;
};

class AttrsType;

// An attributes struct of any operator: shared, immutable.
class AnyAttrs {
 public:
  AnyAttrs();  // NoAttrs
  template <OpAttrs A>
  AnyAttrs(A attrs);  // NOLINT: implicit on purpose
  // The struct; throws Error if the operator has attributes of another type.
  template <OpAttrs A>
  const A& get() const;
  AttrMap ToMap() const;      // fields that differ from their default
  AttrMap ToFullMap() const;  // all fields
  const AttrsType& type() const { return *type_; }
  bool operator==(const AnyAttrs& other) const;  // of one type and Equal

 private:
  friend class AttrsType;
  AnyAttrs(const AttrsType* type, std::shared_ptr<const void> value) : type_(type), value_(std::move(value)) {}
  const AttrsType* type_;
  std::shared_ptr<const void> value_;
};

// Descriptor of an attributes struct; one object per type.
class AttrsType {
 public:
  // `make` gives a struct of the defaults.
  AttrsType(std::shared_ptr<void> (*make)(), FieldList fields)
      : make_(make), defaults_(make()), fields_(std::move(fields)) {}
  AttrsType(const AttrsType&) = delete;
  AttrsType& operator=(const AttrsType&) = delete;

  // Throws ModelError naming the field, what it takes and what came: unknown field (with nearest match), wrong type, a
  // value that does not fit, an unknown enum name (with the choices).
  AnyAttrs FromMap(const AttrMap& map) const;
  AttrMap ToMap(const void* attrs, bool all) const;  // all fields, or those that differ from their default
  bool Equal(const void* a, const void* b) const;    // field by field; tensors by content
  std::vector<FieldInfo> Fields() const;

 private:
  friend class AnyAttrs;
  [[noreturn]] void ThrowGot(const AttrsType& other) const;

  std::shared_ptr<void> (*make_)();
  std::shared_ptr<const void> defaults_;
  FieldList fields_;
};

// The descriptor of A.
template <OpAttrs A>
const AttrsType& AttrsOf() {
  static const AttrsType type([]() -> std::shared_ptr<void> { return std::shared_ptr<A>(new A()); }, A::Fields());
  return type;
}

template <OpAttrs A>
AnyAttrs::AnyAttrs(A attrs) : AnyAttrs(&AttrsOf<A>(), std::shared_ptr<const A>(new A(std::move(attrs)))) {}

template <OpAttrs A>
const A& AnyAttrs::get() const {
  if (type_ != &AttrsOf<A>()) AttrsOf<A>().ThrowGot(*type_);
  return *static_cast<const A*>(value_.get());
}

}  // namespace bindery
