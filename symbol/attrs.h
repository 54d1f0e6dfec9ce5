// Attributes of an operator: a plain struct with defaulted values and one list of its fields,
//
//   struct SoftmaxAttrs {
//     int64_t axis = -1;
//     static constexpr auto Fields() { return std::tuple{Field{"axis", &SoftmaxAttrs::axis, "axis of the sum"}}; }
//   };
//
// from which saving, loading, printing, comparing and the command line's help are made. Field types: bool, int64_t,
// double, std::string, std::vector of int64_t, double or std::string, DType, HostTensor (as std::shared_ptr<const
// HostTensor>), and any enum with
//   std::span<const EnumName> EnumNames(E*)   found by argument-dependent look-up.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
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

template <class A, class T>
struct Field {
  const char* name;
  T A::*member;
  const char* doc = "";
};
template <class A, class T>
Field(const char*, T A::*, const char*) -> Field<A, T>;
template <class A, class T>
Field(const char*, T A::*) -> Field<A, T>;

struct EnumName {
  int value;
  const char* name;
};

template <class A>
concept OpAttrs = std::default_initializable<A> && requires {
  A::Fields();
};

struct NoAttrs {
  static constexpr auto Fields() { return std::tuple{}; }
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
  bool operator==(const AnyAttrs& other) const;  // field by field; tensors by content

 private:
  friend class AttrsType;
  AnyAttrs(const AttrsType* type, std::shared_ptr<const void> value) : type_(type), value_(std::move(value)) {}
  const AttrsType* type_;
  std::shared_ptr<const void> value_;
};

// Descriptor of an attributes struct; one object per type.
class AttrsType {
 public:
  virtual ~AttrsType() = default;
  // Throws ModelError naming the field, what it takes and what came: unknown field (with nearest match), wrong type, a
  // value that does not fit, an unknown enum name (with the choices).
  virtual AnyAttrs FromMap(const AttrMap& map) const = 0;
  virtual AttrMap ToMap(const void* value, bool all) const = 0;
  virtual bool Equal(const void* a, const void* b) const = 0;
  virtual std::vector<FieldInfo> Fields() const = 0;

 protected:
  static AnyAttrs Wrap(const AttrsType* type, std::shared_ptr<const void> value) { return {type, std::move(value)}; }
};

template <OpAttrs A>
const AttrsType& AttrsOf();  // the descriptor of A

}  // namespace bindery

#include "symbol/attrs_impl.h"
